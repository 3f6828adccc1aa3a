package simulate

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestFewestThatFindsTheThreshold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 200).Draw(t, "most")
		start := rapid.IntRange(1, 250).Draw(t, "start")
		need := rapid.IntRange(1, 250).Draw(t, "need")
		tries := map[int]int{}
		got, err := FewestThat(start, most, func(n int) (bool, error) {
			if n < 1 || n > most {
				t.Fatalf("%d was tried, of %d", n, most)
			}
			tries[n]++
			return n >= need, nil
		})
		want := Fewest{need, true}
		if need > most {
			want.Number = 0
		}
		if err != nil || got != want {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
		for n, times := range tries {
			if times > 1 {
				t.Fatalf("%d was tried %d times", n, times)
			}
		}
		if len(tries) > 20 {
			t.Fatalf("%d tries", len(tries))
		}
	})
}

// Whatever is enough, the answer is enough, and so is the next number.
func TestFewestThatDoubtsWhatIsNotMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		enough := rapid.SliceOfN(rapid.Bool(), 2, 40).Draw(t, "enough")
		most := len(enough) - 1
		tried := map[int]bool{}
		got, err := FewestThat(rapid.IntRange(1, most).Draw(t, "start"), most, func(n int) (bool, error) {
			tried[n] = enough[n]
			return enough[n], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := got.Number; n > 0 && (!enough[n] || n < most && !enough[n+1]) {
			t.Fatalf("%+v of %v", got, enough)
		}
		monotone := true
		for a, ok := range tried {
			for b, as := range tried {
				monotone = monotone && !(a < b && ok && !as)
			}
		}
		if got.Monotone != monotone {
			t.Fatalf("%+v of %v, tried %v", got, enough, tried)
		}
	})
}

func TestFewestThatEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	tries := 0
	_, err := FewestThat(4, 100, func(n int) (bool, error) {
		if tries++; tries == 3 {
			return false, broken
		}
		return n > 60, nil
	})
	if !errors.Is(err, broken) || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

package simulate

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The cache does what a list does that is searched from end to end.
func TestKVCacheAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 12).Draw(t, "most")
		c := newKVCache(most)
		var list []uint64 // the one used last in front
		use := func(hash uint64) {
			if i := slices.Index(list, hash); i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
			list = slices.Insert(list, 0, hash)
			list = list[:min(len(list), most)]
		}
		// Few hashes and many collisions: the table's slots differ in these bits.
		hashes := rapid.SampledFrom([]uint64{1, 2, 3, 65, 66, 129, 1 << 40, 64, 128, 192, 7 << 50, 4})
		for range rapid.IntRange(1, 60).Draw(t, "uses") {
			text := rapid.SliceOfNDistinct(hashes, 0, 8, rapid.ID).Draw(t, "text")
			if rapid.Bool().Draw(t, "add") {
				c.add(text)
				for _, hash := range slices.Backward(text) {
					use(hash)
				}
				continue
			}
			want := 0
			for want < len(text) && slices.Contains(list, text[want]) {
				use(text[want])
				want++
			}
			if got := c.find(text); got != want {
				t.Fatalf("found %d of %v, want %d", got, text, want)
			}
		}
	})
}

// A cache that has grown still finds all that it has room for.
func TestKVCacheGrows(t *testing.T) {
	const most = 3000
	c := newKVCache(most)
	text := make([]uint64, most)
	for i := range text {
		text[i] = mix(uint64(i))
	}
	c.add(text)
	if got := c.find(text); got != most {
		t.Errorf("%d of %d blocks are there", got, most)
	}
	c.add(text)
	c.add([]uint64{1})
	if got := c.find(text); got != most-1 {
		t.Errorf("%d blocks are there after one more came, want all but the last", got)
	}
}

// Timers come by time, and at one time as they were set.
func TestTimersComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h timers
		times := rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "times")
		for i, at := range times {
			h.push(float64(at), opens, int32(i))
		}
		last := timer{at: -1}
		for range times {
			if next := h.next(); next != h.heap[0].at {
				t.Fatalf("next = %v", next)
			}
			e := h.pop()
			if e.at < last.at || e.at == last.at && e.what < last.what || float64(times[e.what]) != e.at {
				t.Fatalf("%+v comes after %+v", e, last)
			}
			last = e
		}
		if !math.IsInf(h.next(), 1) {
			t.Fatal("something is left")
		}
	})
}

// The agenda's first is the least, whatever was moved.
func TestAgendaAgainstSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "n")
		a := newAgenda(n)
		times := slices.Repeat([]float64{math.Inf(1)}, n)
		for range rapid.IntRange(1, 50).Draw(t, "moves") {
			i := rapid.IntRange(0, n-1).Draw(t, "which")
			at := rapid.SampledFrom([]float64{1, 2, 3, 4, 5, math.Inf(1)}).Draw(t, "at")
			times[i] = at
			a.set(int32(i), at)
			want := slices.Index(times, slices.Min(times))
			if a.next() != slices.Min(times) || int(a.first()) != want {
				t.Fatalf("first is %d at %v, want %d of %v", a.first(), a.next(), want, times)
			}
		}
	})
}

// Of a queue that is never empty, as that of words on their way, nothing stays that has
// left it.
func TestFifo(t *testing.T) {
	var q fifo[*int]
	next, want, longest := 0, 0, 0
	for round := range 1000 {
		for range round % 7 {
			q.push(new(next))
			next++
		}
		longest = max(longest, q.len())
		for range min(q.len()-1, round%5+1) {
			if got := *q.pop(); got != want {
				t.Fatalf("got %d, want %d", got, want)
			}
			want++
		}
		kept := 0
		for _, x := range q.ring {
			if x != nil {
				kept++
			}
		}
		if kept != q.len() || kept != next-want || len(q.ring) > max(8, 2*longest) {
			t.Fatalf("%d are in it, of %d that came; it keeps %d in a ring of %d", q.len(), next, kept, len(q.ring))
		}
	}
}

func TestEstimate(t *testing.T) {
	e := EstimateOf([]float64{2, 4, 4, 4, 5, 5, 7, 9}) // a sample deviation of 2.138
	if math.Abs(e.Mean-5) > 1e-12 || math.Abs(e.PlusMinus-2.365*2.138/math.Sqrt(8)) > 1e-3 {
		t.Errorf("estimate = %+v", e)
	}
	if !math.IsNaN(EstimateOf([]float64{1}).PlusMinus) {
		t.Error("one value has an interval")
	}
	if got := student(40); math.Abs(got-2.021) > 0.002 {
		t.Errorf("t with 40 degrees of freedom = %v, want 2.021", got)
	}
	if got := quantile([]float64{1, 2, 3, 4}, 0.5); got != 2 {
		t.Errorf("median = %v, want 2", got)
	}
}

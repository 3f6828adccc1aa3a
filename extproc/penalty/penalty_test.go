package penalty

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/fleet"
)

// First tokens of an engine in a strained pool are load; its failures are not.
func TestStrained(t *testing.T) {
	for _, strained := range []bool{false, true} {
		b := NewBook()
		b.Set(date(0), map[fleet.PoolID][]fleet.EngineID{"p": {"a", "b", "c"}})
		if strained {
			b.Loaded(date(0), map[fleet.EngineID]Load{"a": Strained})
		}
		say := func(e fleet.EngineID, from, to, seconds float64) {
			for at := from; at < to; at += 0.1 {
				b.Time(e, FirstToken, date(at), seconds)
			}
		}
		for second := range 5 {
			at := float64(second)
			if second < 2 {
				say("a", at, at+1, 0.1)
			} else {
				say("a", at, at+1, 1)
			}
			say("b", at, at+1, 0.1)
			say("c", at, at+1, 0.1)
			b.Step(date(at + 1))
		}
		if penalised := b.Of("a") < 1; penalised == strained {
			t.Errorf("strained %v: penalised %v", strained, penalised)
		}
		for i := range 10 {
			b.Outcome("a", date(5+float64(i)/10), fleet.Refused)
			b.Outcome("b", date(5+float64(i)/10), fleet.Answered)
			b.Outcome("c", date(5+float64(i)/10), fleet.Answered)
		}
		b.Step(date(6.5))
		if b.Of("a") == 1 {
			t.Errorf("strained %v: an engine that refuses is not penalised", strained)
		}
	}
}

// An engine at which requests wait is busy as long as it begins as many answers as others:
// one with a queue that begins few is sick, and so is one that is late without a queue.
func TestBusy(t *testing.T) {
	for _, c := range []struct {
		name   string
		load   Load
		begins int // answers a second, where others begin ten
		want   bool
	}{
		{"a queue, and works as ever", Queued, 10, false},
		{"a queue, and works hard", Queued, 13, false},
		{"a queue, and others have little to do", Queued, 7, false},
		{"a queue, since it is slow", Queued, 3, true},
		{"a queue, since it hangs", Queued, 0, true},
		{"no queue", 0, 10, true},
	} {
		b := NewBook()
		b.Set(date(0), map[fleet.PoolID][]fleet.EngineID{"p": {"a", "b"}})
		say := func(e fleet.EngineID, at, seconds float64, begins int) {
			for i := range 10 {
				b.Time(e, FirstToken, date(at+float64(i)/10), seconds)
			}
			for range begins {
				b.Begins(e)
			}
		}
		for second := range 8 {
			at := float64(second)
			if second < 4 {
				say("a", at, 0.1, 10)
			} else {
				say("a", at, 1, c.begins)
			}
			say("b", at, 0.1, 10)
			if second == 5 { // the queue is told of late
				b.Loaded(date(at), map[fleet.EngineID]Load{"a": c.load})
			}
			b.Step(date(at + 1))
		}
		if penalised := b.Of("a") < 1; penalised != c.want {
			t.Errorf("%s: penalised %v: %+v", c.name, penalised, b.Penalties())
		}
		if b.Of("b") < 1 {
			t.Errorf("%s: the other is penalised", c.name)
		}
		b.Loaded(date(8), nil) // the queue is gone
		b.Step(date(8.25))
		if b.engines["a"].busy {
			t.Errorf("%s: still busy without a queue", c.name)
		}
	}
}

// When the clock is set back, engines are judged as ever, also one that was in trouble, or
// in a pool that was strained.
func TestClockIsSetBack(t *testing.T) {
	for _, back := range []float64{0, 0.4, 3, 10, 3600} {
		for _, before := range []int{0, 1} {
			for _, slow := range []bool{false, true} {
				b := NewBook()
				b.Set(date(0), map[fleet.PoolID][]fleet.EngineID{"p": {"a", "b", "c"}})
				for at := range 20 {
					someGoWrong(b, float64(at), 0, slow)
				}
				b.Loaded(date(18), map[fleet.EngineID]Load{"a": Strained})
				someGoWrong(b, 20, before, slow)
				for at := range 8 { // the strain counts for five at most
					someGoWrong(b, 21-back+float64(at), 5, slow)
				}
				if b.Of("a") == 1 || b.Of("b") < 1 || b.Of("c") < 1 {
					t.Errorf("set back by %v s, slow %v, %d of five bad before: penalties %v", back, slow, before, b.Penalties())
				}
			}
		}
	}
}

// someGoWrong has three engines have twenty requests each in a second: of five of the
// first one some are slow, or fail.
func someGoWrong(b *Book, second float64, ofFive int, slow bool) {
	for i := range 20 {
		began := date(second + float64(i)/20)
		for _, e := range []fleet.EngineID{"a", "b", "c"} {
			seconds, outcome := 0.1, fleet.Answered
			switch bad := e == "a" && i%5 < ofFive; {
			case bad && slow:
				seconds = 1
			case bad:
				outcome = fleet.Refused
			}
			b.Time(e, FirstToken, began, seconds)
			b.Outcome(e, began, outcome)
		}
	}
	b.Step(date(second + 1))
}

// The middle of the others is their median, the upper one of two.
func TestMiddleOfOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Float64Range(0, 9), 1, 9).Draw(t, "all")
		out := rapid.IntRange(-1, len(all)-1).Draw(t, "out")
		own, others := math.NaN(), slices.Clone(all)
		if out >= 0 {
			own, others = all[out], slices.Delete(slices.Clone(all), out, out+1)
		}
		slices.Sort(all)
		slices.Sort(others)
		got, ok := middleOfOthers(all, own)
		if ok != (len(others) > 0) || ok && got != others[len(others)/2] {
			t.Fatalf("middle of the others of %v in %v = %v, %v", own, all, got, ok)
		}
	})
}

// A window counts what a list of all marks does, as far back as it reaches.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		var truth []time.Time
		bad := map[time.Time]float64{}
		now := date(0)
		for range rapid.IntRange(0, 60).Draw(t, "marks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			began := now.Add(-time.Duration(rapid.IntRange(0, 3000).Draw(t, "age")) * time.Millisecond)
			isBad := rapid.Bool().Draw(t, "bad")
			w.add(began, isBad)
			truth = append(truth, began)
			if isBad {
				bad[began]++
			}
		}
		since := now.Add(-time.Duration(rapid.IntRange(0, 10_000).Draw(t, "since")) * time.Millisecond)
		var want sum
		counted := map[time.Time]bool{}
		for _, began := range truth {
			if n := slotOf(began); n < slotOf(since) || n <= slotOf(now)-slots {
				continue
			}
			want.all++
			if !counted[began] {
				want.bad += bad[began]
				counted[began] = true
			}
		}
		if got := w.since(since, now); got != want {
			t.Fatalf("since %v: %+v, want %+v", since, got, want)
		}
	})
}

// What is known of an engine stays when others come and go, and what is not known of is
// let pass.
func TestSet(t *testing.T) {
	b := NewBook()
	b.Outcome("a", date(0), fleet.Refused)
	b.Time("a", FirstToken, date(0), 1)
	b.Stalled("a", date(0))
	b.Step(date(0))
	if b.Waiting("a", date(0), 1e9, true) || b.Of("a") != 1 || b.Penalties() != nil {
		t.Error("an engine that is not there is judged")
	}
	b.Set(date(0), map[fleet.PoolID][]fleet.EngineID{"p": {"b", "a"}, "q": {"c"}})
	for i := range 8 {
		b.Outcome("a", date(float64(i)/10), fleet.Refused)
		b.Outcome("b", date(float64(i)/10), fleet.Answered)
		b.Outcome("c", date(float64(i)/10), fleet.Refused)
	}
	b.Step(date(1))
	if b.Of("a") != Least || b.Of("b") != 1 || b.Of("c") != 1 {
		t.Fatalf("penalties %v, %v, %v", b.Of("a"), b.Of("b"), b.Of("c"))
	}
	b.Set(date(1), map[fleet.PoolID][]fleet.EngineID{"p": {"a", "b", "d"}})
	b.Step(date(2))
	got := b.Penalties()
	if len(got) != 1 || got[0].Engine != "a" || got[0].Pool != "p" || got[0].Fault != "refused" || got[0].AgeSeconds != 1 {
		t.Fatalf("penalties %+v, want one of a", got)
	}
	// Without news it ends when it was said to, within a step.
	clears := got[0].ClearsSeconds
	ended := 2.0
	for ; b.Of("a") < 1 && ended < 100; ended += stepSeconds {
		b.Step(date(ended))
	}
	if math.Abs(ended-2-clears) > 3*stepSeconds {
		t.Errorf("ended after %.2f s, was said to in %.2f", ended-2, clears)
	}
	b.Set(date(9), map[fleet.PoolID][]fleet.EngineID{"p": {"b", "d"}})
	if b.Of("a") != 1 {
		t.Error("an engine that left is penalised")
	}
}

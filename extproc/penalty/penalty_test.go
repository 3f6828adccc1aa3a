package penalty

import (
	"fmt"
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
			b.Loaded(date(0), map[fleet.EngineID]Load{"a": {Strained: true}})
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

// fed is a pool whose engines have so many requests a second, each of which begins its
// answer after a time, and tells of the load of one of them.
type fed struct {
	book *Book
	now  float64
}

func newFed(engines ...fleet.EngineID) *fed {
	f := &fed{book: NewBook()}
	f.book.Set(date(0), map[fleet.PoolID][]fleet.EngineID{"p": engines})
	f.book.Step(date(0))
	return f
}

// pass lets a quarter of a second pass, in which each engine has begun answers that took
// so long; of the first one as many and as long as is said of it.
func (f *fed) pass(rps, first float64, seconds float64, load Load) {
	f.now += stepSeconds
	for i, e := range f.book.pools["p"] {
		n, took := rps, 0.1
		if i == 0 {
			n, took = first, seconds
		}
		for k := math.Floor((f.now - stepSeconds) * n); k < math.Floor(f.now*n); k++ {
			f.book.Begins(e.id)
			f.book.Time(e.id, FirstToken, date(f.now-took), took)
		}
	}
	f.book.Loaded(date(f.now), map[fleet.EngineID]Load{"a": load})
	f.book.Step(date(f.now))
}

// An engine at which requests wait is busy as long as it begins about as many answers as
// its peers, for some seconds. One that begins fewer is sick, and so is one that is late
// without a queue, or with one that lasts.
func TestBusy(t *testing.T) {
	queued := Load{Queued: true}
	for _, c := range []struct {
		name       string
		load       Load
		rps, first float64 // answers that begin, a second
		seconds    int
		want       bool // it is penalised at some time
	}{
		{"no queue", Load{}, 10, 10, 9, true},
		{"a queue, and keeps up", queued, 10, 10, 9, false},
		{"a queue, and works hard", queued, 6, 10, 9, false},
		{"a queue, and begins a little less", queued, 10, 8.5, 9, false},
		{"a queue, and begins clearly less", queued, 10, 6, 9, true},
		{"a queue, since it is slow", queued, 10, 2, 9, true},
		{"a queue that lasts", queued, 10, 10, 15, true},
		{"a queue, and too few come to tell", queued, 0.5, 0.5, 30, true},
		{"a queue, and few come", queued, 1.5, 1.5, 9, false},
		{"others have queues, too", Load{Queued: true, Strained: true}, 10, 3, 30, false},
	} {
		for _, engines := range [][]fleet.EngineID{{"a", "b"}, {"a", "b", "c", "d"}} {
			f := newFed(engines...)
			for range 80 {
				f.pass(c.rps, c.rps, 0.1, Load{})
			}
			penalised := false
			for range c.seconds * 4 {
				f.pass(c.rps, c.first, 1, c.load)
				penalised = penalised || f.book.Of("a") < 1
			}
			if penalised != c.want {
				t.Errorf("%s, of %d: penalised %v", c.name, len(engines), penalised)
			}
			if all := f.book.Penalties(); len(all) > 0 && all[0].Engine != "a" {
				t.Errorf("%s: penalties %+v", c.name, all)
			}
		}
	}
}

// A queue that is told of late ends the penalty at once, and the next one is no relapse;
// also if by then the peer, which has had all the load, has a queue as well.
func TestBusyIsKnownLate(t *testing.T) {
	for _, load := range []Load{{Queued: true}, {Queued: true, Strained: true}} {
		f := newFed("a", "b")
		for range 80 {
			f.pass(10, 10, 0.1, Load{})
		}
		for range 8 {
			f.pass(10, 10, 1, Load{})
		}
		if f.book.Of("a") == 1 {
			t.Fatal("late first tokens are no sign")
		}
		f.pass(10, 10, 1, load)
		if p := f.book.Of("a"); p < 1 {
			t.Errorf("%+v: penalised to %v still", load, p)
		}
		for range 40 {
			f.pass(10, 10, 0.1, Load{})
		}
		for range 12 {
			f.pass(10, 10, 1, Load{})
		}
		if e := f.book.engines["a"]; e.value == 1 || e.relapses > 0 {
			t.Errorf("%+v: penalised to %v the next time, after %d relapses", load, e.value, e.relapses)
		}
	}
}

// Peers that have joined or are penalised get a part only: there is nobody to keep up with.
func TestBusyAgainstNobody(t *testing.T) {
	excused := func(at float64, penalised bool) bool {
		f := newFed("a", "b")
		f.book.Set(date(0), map[fleet.PoolID][]fleet.EngineID{"p": {"a", "b", "c"}})
		for _, id := range []fleet.EngineID{"a", "b", "c"} {
			f.book.engines[id].begun = 40
		}
		if penalised {
			f.book.engines["b"].value = Least
		}
		f.book.Loaded(date(at), map[fleet.EngineID]Load{"a": {Queued: true}})
		excuse(f.book.pools["p"], date(at))
		return f.book.engines["a"].excused(date(at - 0.1))
	}
	if !excused(1, false) {
		t.Error("does not keep up with a peer that begins as much")
	}
	if excused(1, true) {
		t.Error("keeps up with peers of which one is penalised and one has joined")
	}
	if !excused(61.5, true) {
		t.Error("does not keep up with a peer that has been there for a minute")
	}
}

// A step of a pool of two thousand engines, at all of which requests wait.
func BenchmarkStep(b *testing.B) {
	var ids []fleet.EngineID
	loads := map[fleet.EngineID]Load{}
	for i := range 2000 {
		id := fleet.EngineID(fmt.Sprint("e", i))
		ids = append(ids, id)
		loads[id] = Load{Queued: true}
	}
	f := newFed(ids...)
	for range 40 {
		f.pass(10, 10, 0.1, Load{})
	}
	b.ReportAllocs()
	for b.Loop() {
		f.book.Loaded(date(f.now), loads)
		f.book.Step(date(f.now))
	}
}

// When everything fails each engine of a large pool is compared with others, four times a
// second.
func BenchmarkStepWhileAllFail(b *testing.B) {
	book, ids := NewBook(), make([]fleet.EngineID, 2000)
	for i := range ids {
		ids[i] = fleet.EngineID(fmt.Sprint("e", i))
	}
	book.Set(date(0), map[fleet.PoolID][]fleet.EngineID{"p": ids})
	for at := range 5 {
		for _, id := range ids {
			book.Outcome(id, date(float64(at)), fleet.Refused)
		}
		book.Step(date(float64(at)))
	}
	b.ReportAllocs()
	for b.Loop() {
		book.Step(date(4))
	}
}

// In a large pool nobody is held against itself, and all against as many, at even distances.
func TestPeersOf(t *testing.T) {
	for _, n := range []int{1, 2, 3, 64, 65, 127, 128, 129, 2000} {
		p := make([]*engine, n)
		for i := range p {
			p[i] = &engine{}
		}
		for place, e := range p {
			seen := map[*engine]bool{}
			for peer := range peersOf(p, place) {
				if peer == e || seen[peer] {
					t.Fatalf("of %d, place %d: itself, or one twice", n, place)
				}
				seen[peer] = true
			}
			if got := len(seen); got > 2*enoughCompared || got < min(n-1, enoughCompared-1) {
				t.Fatalf("of %d, place %d: %d peers", n, place, got)
			}
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
				b.Loaded(date(18), map[fleet.EngineID]Load{"a": {Strained: true}})
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

// Where answers in one piece go to one engine alone, nobody knows how long such take: as long
// as it has no headers, none of that engine's is late, be streams as soon as they may.
func TestNobodyElseAnswersInOnePiece(t *testing.T) {
	b := NewBook()
	b.Set(date(0), map[fleet.PoolID][]fleet.EngineID{"p": {"a", "b", "c"}})
	for i := range 12 {
		for _, e := range []fleet.EngineID{"a", "b", "c"} {
			b.Time(e, FirstToken, date(float64(i)), 0.2)
		}
		b.Step(date(float64(i)))
	}
	if !b.Waiting("a", date(12), 2, false) {
		t.Fatal("where no answer in one piece was ever seen, one without headers after ten times as long is not late")
	}
	b.Took("a", Whole, 5)
	b.Step(date(13))
	if b.Waiting("a", date(13), 2, false) {
		t.Error("one without headers is late, though they may come with an answer in one piece")
	}
	if !b.Waiting("a", date(13), 2, true) || !b.Waiting("b", date(13), 2, false) {
		t.Error("a stream, or an engine without such answers, is not late")
	}
}

// What a strain excuses is compared with the times of requests, which are wall clock times:
// were it a process's own, nobody would see that the clock was set back.
func TestStrainIsOfTheWallClock(t *testing.T) {
	b := NewBook()
	b.Set(time.Now(), map[fleet.PoolID][]fleet.EngineID{"p": {"a"}})
	b.Loaded(time.Now(), map[fleet.EngineID]Load{"a": {Strained: true}})
	if got := b.engines["a"].strain; got != got.Round(0) {
		t.Errorf("%v has a monotonic reading", got)
	}
}

// A machine without a clock begins in 1970, and says that requests began before.
func TestTimesBeforeTheEpoch(t *testing.T) {
	b, zero := NewBook(), time.Unix(0, 0)
	b.Set(zero, map[fleet.PoolID][]fleet.EngineID{"p": {"a", "b"}})
	for i := range 20 {
		now := zero.Add(time.Duration(i) * time.Second / 4)
		b.Step(now)
		b.Outcome("a", now.Add(-2*time.Second), fleet.Refused)
		b.Outcome("b", now.Add(-2*time.Second), fleet.Answered)
	}
	b.Step(zero.Add(5 * time.Second))
	if b.Of("a") != Least || b.Of("b") != 1 {
		t.Errorf("penalties %v and %v", b.Of("a"), b.Of("b"))
	}
}

package signals

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/fleet"
)

func linear() *fleet.Profile {
	return &fleet.Profile{CapacityRps: 10, TTFT: fleet.Curve{{Utilisation: 0, Seconds: 0.2}, {Utilisation: 1, Seconds: 0.6}}}
}

// engines behave as a profile whose capacity is true times what it says, and queue
// beyond it.
func engines(p *fleet.Profile, truth, load float64) evidence {
	utilisation := load / truth
	e := evidence{load: load, ttftSeconds: p.TTFT.At(utilisation), ttftSamples: 100, queue: queue{seen: true}}
	if utilisation > 1 {
		e.queue = queue{8, 8, true} // more than the profile itself tells of
	}
	return e
}

// rounds lets a plan send what it believes the pool can carry, up to the demand.
func rounds(f *factor, p *fleet.Profile, n int, truth, demand float64) float64 {
	load := 0.0
	for range n {
		believed := f.value
		if believed == 0 {
			believed = 1
		}
		load = math.Min(demand, believed)
		f.observe(p, engines(p, truth, load))
	}
	return load
}

// A profile that overstates capacity by 30 %: the factor falls until the queue
// settles; when the truth improves it recovers.
func TestFactorFindsTheTruth(t *testing.T) {
	p, f := linear(), &factor{}
	truth := 1 / 1.3
	if load := rounds(f, p, 15, truth, 2); load > truth+0.01 {
		t.Errorf("after 15 rounds the pool is sent %.3f of what it can do, factor %.3f", load/truth, f.value)
	}
	if f.value < truth*0.85 {
		t.Errorf("the factor fell to %.3f, far below the truth of %.3f", f.value, truth)
	}
	if !strings.Contains(f.reason, "wait") && !strings.Contains(f.reason, "TTFT") {
		t.Errorf("reason %q tells nothing", f.reason)
	}
	highest := 0.0
	for range 60 { // asked for twice what it can do, it tries more than all and falls again
		rounds(f, p, 1, 1, 2)
		highest = max(highest, f.value)
	}
	if highest < 0.99 {
		t.Errorf("60 rounds after the truth improved the factor has reached %.3f, want about 1", highest)
	}
}

// A queue that drains lowers nothing more: it lies behind the pool.
func TestAQueueThatDrainsIsLeftToIt(t *testing.T) {
	p, f := linear(), &factor{}
	slow := evidence{load: 0.9, ttftSeconds: 5, ttftSamples: 100, queue: queue{seen: true}}
	for _, step := range []struct {
		waiting float64
		want    float64
		usedUp  bool
	}{
		{20, 0.9, true}, {30, 0.81, true}, // it grows
		{28, 0.729, true},                                     // by a hair less: that is no draining
		{20, 0.729, true}, {5, 0.729, true}, {0, 0.729, true}, // it drains
		{0, 0.739, false}, // the engines are slow even so, and have nothing to work off
	} {
		slow.queue = queue{step.waiting, step.waiting, true}
		if usedUp := f.observe(p, slow); math.Abs(f.value-step.want) > 1e-9 || usedUp != step.usedUp {
			t.Errorf("with %v waiting the factor is %v, evidence used up: %v, want %v and %v", step.waiting, f.value, usedUp, step.want, step.usedUp)
		}
	}
	if f.observe(p, evidence{load: 0.5, queue: queue{seen: true}}) || f.value <= 0.739 {
		t.Errorf("with nothing against the profile the factor is %v, want it to rise, and evidence to gather", f.value)
	}
}

func TestFactorKeepsStillWhereTheProfileIsRight(t *testing.T) {
	for _, demand := range []float64{0, 0.3, 0.6, 0.9, 0.98} {
		p, f := linear(), &factor{}
		rounds(f, p, 100, 1, demand)
		if math.Abs(f.value-1) > 1e-9 {
			t.Errorf("at a load of %v the factor went to %v, want 1", demand, f.value)
		}
	}
}

// Where engines tell of no queue, late first tokens are none for want of capacity; where
// they tell nothing, they are all there is to go by.
func TestLateFirstTokensWithoutAQueue(t *testing.T) {
	for told, want := range map[bool]float64{true: 1, false: 0.9} {
		p, f := linear(), &factor{}
		f.observe(p, evidence{load: 0.9, ttftSeconds: 5, ttftSamples: 100, queue: queue{seen: told}})
		if f.value != want {
			t.Errorf("engines tell of their queues, %v: the factor is %v, want %v", told, f.value, want)
		}
	}
}

// Silence is no recovery, and one odd request at an idle pool no shortage.
func TestFactorNeedsEvidence(t *testing.T) {
	p, f := linear(), &factor{value: 0.6, reason: "a queue"}
	for range 50 {
		f.observe(p, evidence{load: 0.8})
	}
	if f.value != 0.6 || f.reason != "a queue" {
		t.Errorf("without any evidence the factor went to %v because %q, want it as it was", f.value, f.reason)
	}
	f = &factor{}
	for range 50 {
		f.observe(p, evidence{load: 0.01, queue: queue{1, 1, true}})
	}
	if f.value != 1 {
		t.Errorf("a request that waits at an idle pool made the factor %v, want 1", f.value)
	}
}

func TestFactorRisesAboveOneOnlyUnderLoad(t *testing.T) {
	p, f := linear(), &factor{}
	rounds(f, p, 200, 1.5, 2)
	if f.value != maxFactor {
		t.Errorf("a pool that does half as much again under full load has factor %v, want %v", f.value, maxFactor)
	}
	f = &factor{}
	rounds(f, p, 200, 1.5, 0.7)
	if f.value != 1 {
		t.Errorf("a pool that was never tried has factor %v, want 1", f.value)
	}
}

// Whatever the evidence, the factor stays in its range and moves by no more than a
// step.
func TestFactorIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, p := &factor{}, linear()
		for range rapid.IntRange(1, 50).Draw(t, "rounds") {
			before := f.value
			if before == 0 {
				before = 1
			}
			f.observe(p, evidence{
				load:        rapid.Float64Range(0, 50).Draw(t, "load"),
				ttftSeconds: rapid.Float64Range(0, 1e4).Draw(t, "ttft"),
				ttftSamples: rapid.Float64Range(0, 1e6).Draw(t, "samples"),
				queue: queue{
					standing: rapid.Float64Range(0, 1e6).Draw(t, "standing"),
					newest:   rapid.Float64Range(0, 1e6).Draw(t, "newest"),
					seen:     rapid.Bool().Draw(t, "seen"),
				},
			})
			if !(f.value >= minFactor && f.value <= maxFactor) {
				t.Fatalf("factor %v is out of its range", f.value)
			}
			if f.value < before*(1-stepDown)-1e-9 || f.value > before+stepUp+1e-9 {
				t.Fatalf("factor went from %v to %v in one round", before, f.value)
			}
		}
	})
}

func TestUtilisationAtInvertsTheCurve(t *testing.T) {
	c := fleet.Curve{{Utilisation: 0, Seconds: 0.2}, {Utilisation: 0.5, Seconds: 0.2}, {Utilisation: 1, Seconds: 0.6}}
	for seconds, want := range map[float64]float64{0.2: 0.5, 0.4: 0.75, 0.6: 1, 1: 1.5, 0.1: 0.01, 1e9: 10} {
		if got := utilisationAt(c, seconds); math.Abs(got-want) > 1e-9 {
			t.Errorf("utilisation at %v s is %v, want %v", seconds, got, want)
		}
	}
}

// One engine that hangs has a queue; the pool has one when most of them do.
func TestThePoolsQueueIsThatOfMost(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		waiting []float64
		want    float64
	}{
		{[]float64{0, 0, 0, 40}, 0}, {[]float64{0, 40}, 0}, {[]float64{40}, 40}, {[]float64{3, 4, 5, 40}, 13}, {[]float64{0, 0, 4, 40}, 0}, {[]float64{3, 5, 40}, 16}, {[]float64{2, 12}, 7},
	} {
		p := &pool{engines: map[fleet.EngineID]*engine{}}
		for i, n := range c.waiting {
			e := &engine{}
			e.told.moved = now
			for age := queueStands; age >= 0; age -= queueStands / 4 {
				e.told.waiting = append(e.told.waiting, waiting{now.Add(-age), n})
			}
			p.engines[fleet.EngineID(rune('a'+i))] = e
		}
		if got := p.queue(now); got != (queue{c.want, c.want, true}) {
			t.Errorf("with %v waiting: %+v, want %v", c.waiting, got, c.want)
		}
	}
}

package simulate

import (
	"errors"
	"math"
	"testing"

	"weir/fleet"
)

// What the plan is made of is what the real parts would have told by then: demand is
// counted, sizes and distances are measured, pages are read.
func TestBeliefsAreMeasured(t *testing.T) {
	s := small(t)
	var last *fleet.State
	rounds := 0
	c := s.with(t, 1, func(st *fleet.State) (*fleet.Plan, error) {
		if rounds++; rounds == 40 { // at 78 s of 90
			last = st
		}
		return even(st)
	})
	ran(t, c)
	for i, source := range s.mix.Sources {
		fe := s.fleet.FrontEnds[i].ID
		d := last.Demand[fleet.Stream{FrontEnd: fe, Class: "chat"}]
		const window = 10 // seconds that the tracker counts over
		sigma := math.Sqrt(source.Rps / window)
		if z := (d.Rps - source.Rps) / sigma; math.Abs(z) > 5 || d.Source != fleet.SourceArrivals {
			t.Errorf("demand of %s is %.1f by %s, want %.1f: z = %.1f", fe, d.Rps, d.Source, source.Rps, z)
		}
		for j := range s.fleet.Pools {
			l := fleet.Link{FrontEnd: fe, Pool: s.fleet.Pools[j].ID}
			if got, want := last.Network[l], s.fleet.Network.RoundTripSeconds[l]; math.Abs(got/want-1) > 0.2 {
				t.Errorf("%v is %.4f s away, want %.4f", l, got, want)
			}
		}
	}
	mean := last.Tokens["chat"].Mean
	if math.Abs(mean.Prompt/1950-1) > 0.15 || math.Abs(mean.Output/200-1) > 0.1 {
		t.Errorf("requests are believed to have %v tokens", mean)
	}
	for id, p := range last.Pools {
		if !p.Signals.Load.Known() || !p.Signals.TTFTSeconds.Known() || len(p.Signals.Engines) != 2 {
			t.Errorf("pool %s: %+v", id, p.Signals)
		}
		for e, tells := range p.Signals.Engines {
			if !tells.Running.Fresh() || !tells.Waiting.Fresh() || !tells.KVUsage.Fresh() || !tells.TTFTSeconds.Fresh() || tells.Why != "" {
				t.Errorf("engine %s tells %+v", e, tells)
			}
			if p.Engines[e] != fleet.Ready {
				t.Errorf("engine %s is %v", e, p.Engines[e])
			}
		}
	}
	if last.ElapsedSeconds != 2 || last.Previous == nil {
		t.Errorf("the plan before is %v s old: %v", last.ElapsedSeconds, last.Previous != nil)
	}
}

// A plan is followed no sooner than it can have come.
func TestPlansTakeTheirTime(t *testing.T) {
	s := small(t)
	rounds := 0
	c := s.with(t, 1, func(st *fleet.State) (*fleet.Plan, error) {
		rounds++
		if rounds > 5 { // the first is at 0, the sixth at 10 s
			return only("C")(st)
		}
		return only("A")(st)
	})
	c.Delays = Delays{ControlWay: 3, Planning: 2} // in force at 15 s
	w := newWorld(&c)
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	reached := func(until float64) (n int) {
		for w.next(until) {
		}
		for _, id := range s.fleet.Pool("C").Engines {
			n += w.replicas[w.numbers.engines[id]].told.arrived
		}
		return n
	}
	if n := reached(15); n != 0 {
		t.Errorf("%d requests came to C before the plan that sends them there", n)
	}
	if n := reached(15.5); n == 0 {
		t.Error("no request came to C after the plan that sends them there")
	}
}

// A policy that fails leaves the last plan in force.
func TestFailedPlansAreHeld(t *testing.T) {
	s := small(t)
	rounds := 0
	r, err := Run(s.with(t, 1, func(st *fleet.State) (*fleet.Plan, error) {
		if rounds++; rounds > 10 {
			return nil, errors.New("broken")
		}
		return even(st)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if r.Held != r.Rounds-9 || r.UnderWay != 0 || r.Served+r.Shed != r.Arrived || r.Shed > r.Arrived/10 {
		t.Errorf("%d of %d rounds had no plan, %d refused, %d under way", r.Held, r.Rounds, r.Shed, r.UnderWay)
	}
}

// A pool that becomes slow is believed less, and gets less.
func TestSlowPoolGetsLess(t *testing.T) {
	s := small(t)
	const broken = 30
	share := func(faults []Fault) (factor, atA float64) {
		rounds := 0
		c := s.with(t, 1, func(st *fleet.State) (*fleet.Plan, error) {
			p, err := optimal(st)
			if rounds++; rounds == 40 { // at 78 s of 90
				factor, atA = st.CapacityFactor("A"), p.Pool("A").Rps
			}
			return p, err
		})
		c.Faults = faults
		ran(t, c)
		return factor, atA
	}
	factor, well := share(nil)
	if factor < 0.9 {
		t.Errorf("a pool that is well is believed to do %.2f of its profile", factor)
	}
	factor, slow := share([]Fault{{broken, "A", 3}})
	if factor > 0.75 || slow > 0.75*well { // gates keep away what it cannot do, so that little more is to be seen
		t.Errorf("a pool three times as slow is believed to do %.2f of its profile, and gets %.0f RPS instead of %.0f", factor, slow, well)
	}
}

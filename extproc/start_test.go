package extproc

import (
	"fmt"
	"testing"
	"time"

	"weir/fleet"
)

// part is how much of all keys an engine gets, in parts of what each gets where all
// are alike.
func (s *scene) part(e fleet.EngineID) float64 {
	p := s.Server.table.Load().pools[0]
	for i := range p.engines {
		if p.engines[i].id == e {
			return p.state.Load().share(&p.engines[i]) * float64(len(p.engines))
		}
	}
	return 0
}

// An engine that joins begins with little and comes to its part in half a minute: keys
// move only towards it. One that was unready does so again, a process that begins takes
// all for old.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 1, 9))
	all := func(want float64, when string) {
		t.Helper()
		for _, e := range s.pools[0].Engines {
			if got := s.part(e.ID); got != want {
				t.Errorf("%s: %s has %v of its part", when, e.ID, got)
			}
		}
	}
	all(1, "at the start")
	s.pass(5)
	s.pools = []fleet.ViewPool{viewPool("a", 1, 10)}
	joins := s.pools[0].Engines[9].ID
	s.inForce()
	names := map[string]fleet.EngineID{}
	for i := range 1000 {
		name := fmt.Sprint("s-", i)
		names[name] = s.ask(name)
	}
	last, began := 0.0, s.now
	for s.now.Sub(began) < slowStart {
		got := s.part(joins)
		if got < last || got > 1 || s.now == began && (got < 0.09 || got > 0.12) {
			t.Fatalf("after %v it has %v of its part, before %v", s.now.Sub(began), got, last)
		}
		last = got
		s.pass(1)
		for name, was := range names {
			if now := s.ask(name); now != was {
				if now != joins {
					t.Fatalf("%s moves from %s to %s", name, was, now)
				}
				names[name] = now
			}
		}
	}
	all(1, "half a minute later")
	atNew := 0
	for _, e := range names {
		if e == joins {
			atNew++
		}
	}
	checkShare(t, "at the new one", atNew, len(names), 0.1)

	s.pools[0].Engines[2].Readiness = fleet.Unready
	s.inForce()
	s.pass(1)
	s.pools = []fleet.ViewPool{viewPool("a", 1, 10)}
	s.inForce()
	if got := s.part(s.pools[0].Engines[2].ID); got > 0.12 {
		t.Errorf("an engine that was unready has %v of its part at once", got)
	}
}

// Where the control plane says how long an engine has been ready, that rules: over what
// a process has not seen, because it was not there, and over what it saw late.
func TestTheControlPlaneKnowsWhenAnEngineJoined(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 1, 10))
	s.levels(func(_, engine int) fleet.EngineLevels {
		if engine == 4 {
			return fleet.EngineLevels{AgeSeconds: fleet.Known(15)}
		}
		return fleet.EngineLevels{}
	})
	if got := s.part(s.pools[0].Engines[4].ID); got < 0.5 || got > 0.55 {
		t.Errorf("half-way it has %v of its part", got)
	}
	s.pools = []fleet.ViewPool{viewPool("a", 1, 11)}
	joins := s.pools[0].Engines[10].ID
	s.inForce()
	s.levels(func(_, engine int) fleet.EngineLevels {
		if engine == 10 {
			return fleet.EngineLevels{AgeSeconds: fleet.Known(slowStart.Seconds() + 10)}
		}
		return fleet.EngineLevels{}
	})
	if got := s.part(joins); got < 1 {
		t.Errorf("one that is new here, but not to the control plane, has %v of its part", got)
	}
}

// An engine's weight beside its peers' is by its age and its whole penalty, whatever of
// that the plan has priced.
func TestWeight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		penalty float64
		health  fleet.Amount
		age     time.Duration // 0: old
		want    float64
	}{
		{1, fleet.Amount{}, 0, 1},
		{1, fleet.Known(0.5), 0, 1},
		{0.25, fleet.Amount{}, 0, 0.25},
		{0.25, fleet.Known(0.5), 0, 0.25},
		{1, fleet.Amount{}, time.Nanosecond, leastStart},
		{0.5, fleet.Amount{}, 15 * time.Second, 0.25},
		{0.5, fleet.Amount{}, slowStart, 0.5},
	} {
		e := newLiveEngine("e", "p")
		e.penalty, e.health = c.penalty, c.health
		if c.age > 0 {
			e.since = epoch.Add(-c.age)
		}
		if got := e.weight(epoch); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The fair part of an engine that starts is smaller: it is full sooner.
func TestAnEngineThatStartsIsFullSooner(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 1, 9))
	s.pools = []fleet.ViewPool{viewPool("a", 1, 10)}
	s.inForce()
	s.levels(func(int, int) fleet.EngineLevels { return engineAt(0, 30) })
	p := s.Server.table.Load().pools[0]
	if !p.full(&p.engines[9]) || p.full(&p.engines[0]) {
		t.Errorf("full: the new one %v, an old one %v", p.full(&p.engines[9]), p.full(&p.engines[0]))
	}
}

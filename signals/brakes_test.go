package signals

import (
	"testing"
	"time"

	"weir/fleet"
)

// What a pool is sent, those of its engines do that do not drain: a drained one must not
// make the others look slow for the little that each has to do.
func TestADrainedEngineBearsNoLoad(t *testing.T) {
	f := testFleet()
	pool := &f.Pools[0]
	if len(pool.Engines) < 2 {
		t.Fatal("want a pool of two engines at least")
	}
	tr := NewTracker(f)
	now := time.Now()
	for _, e := range pool.Engines {
		tr.ObserveProbe(now, Probe{Pool: pool.ID, Engine: e})
	}
	tr.Brake([]fleet.Brake{{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeDrain, Engine: pool.Engines[0]}}})
	s := tr.State(now, nil)
	if got := s.Readiness(pool.ID, pool.Engines[0]); got != fleet.Draining {
		t.Errorf("the drained engine is %v", got)
	}
	if got, want := s.ReadyEngines(pool), len(pool.Engines)-1; got != want {
		t.Errorf("%d engines are ready, want %d", got, want)
	}
	tr.Brake(nil)
	if got := tr.State(now, nil).ReadyEngines(pool); got != len(pool.Engines) {
		t.Errorf("%d engines are ready when none drains, want %d", got, len(pool.Engines))
	}
}

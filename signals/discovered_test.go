package signals

import (
	"errors"
	"testing"
	"time"

	"weir/fleet"
)

// found is a tracker of one pool whose engines are discovered.
type found struct {
	*Tracker
	t    *testing.T
	now  time.Time
	plan *fleet.Plan // in force
}

func newFound(t *testing.T, engines ...fleet.EngineID) *found {
	f := &found{t: t, now: epoch, plan: &fleet.Plan{}}
	f.Tracker = NewTracker(foundFleet(engines, nil))
	return f
}

func foundFleet(engines, leaving []fleet.EngineID) *fleet.Fleet {
	return &fleet.Fleet{Pools: []fleet.Pool{{ID: "p", Engines: engines, Leaving: leaving, Discovery: &fleet.Discovery{Kind: fleet.DiscoverFile}}}}
}

func (f *found) probe(e fleet.EngineID, err error) {
	f.ObserveProbe(f.now, Probe{Pool: "p", Engine: e, Err: err, Answered: true})
}

func (f *found) want(e fleet.EngineID, want fleet.Readiness) {
	f.t.Helper()
	if got := f.State(f.now, f.plan).Readiness("p", e); got != want {
		f.t.Errorf("%s is %v, want %v", e, got, want)
	}
}

func TestAnEngineThatIsDiscoveredWaitsForItsFirstProbe(t *testing.T) {
	f := newFound(t, "a")
	f.want("a", fleet.Unknown) // what a tracker begins with is in service
	f.probe("a", nil)
	f.SetFleet(foundFleet([]fleet.EngineID{"a", "b", "c"}, nil))
	f.want("b", fleet.Unready)
	f.probe("b", nil)
	f.want("b", fleet.Ready)
	if since := f.State(f.now, f.plan).Pools["p"].ReadySince; !since["b"].Equal(f.now) || !since["a"].IsZero() {
		t.Errorf("ready since %v, want b alone, which starts slowly", since)
	}
	f.now = f.now.Add(firstProbe)
	f.want("c", fleet.Unknown) // it cannot be probed, and may be able
	f.probe("c", errors.New("loading"))
	f.want("c", fleet.Unready)
}

// At the start there is nobody else, and nothing that the others would have to be
// protected from.
func TestWhatIsDiscoveredBeforeThereIsAPlanIsNotNew(t *testing.T) {
	f := newFound(t)
	f.plan = nil
	f.State(f.now, nil)
	f.SetFleet(foundFleet([]fleet.EngineID{"a"}, nil))
	f.want("a", fleet.Unknown)
	f.probe("a", nil)
	if since := f.State(f.now, nil).Pools["p"].ReadySince; len(since) > 0 {
		t.Errorf("ready since %v, want none to be young", since)
	}
	f.SetFleet(foundFleet([]fleet.EngineID{"a", "b"}, nil))
	f.want("b", fleet.Unready)
}

func TestAnEngineThatIsNamedNoMoreDrains(t *testing.T) {
	f := newFound(t, "a", "b", "c")
	f.probe("a", nil)
	f.probe("b", nil)
	f.probe("c", errors.New("sick"))
	f.SetFleet(foundFleet([]fleet.EngineID{"a", "b", "c"}, []fleet.EngineID{"b", "c"}))
	f.want("a", fleet.Ready)
	f.want("b", fleet.Draining)
	f.want("c", fleet.Unready)
	f.SetFleet(foundFleet([]fleet.EngineID{"a", "b"}, nil))
	f.want("b", fleet.Ready)
}

// Where all engines are replaced at once, the old ones serve until a new one can.
func TestAllEnginesAreReplaced(t *testing.T) {
	f := newFound(t, "a", "b")
	f.probe("a", nil)
	f.probe("b", nil)
	f.SetFleet(foundFleet([]fleet.EngineID{"a", "b", "c", "d"}, []fleet.EngineID{"a", "b"}))
	f.want("a", fleet.Ready)
	f.want("c", fleet.Unready)
	f.probe("c", errors.New("loading"))
	f.want("b", fleet.Ready)
	f.probe("d", nil)
	f.want("a", fleet.Draining)
	f.want("b", fleet.Draining)
	f.want("d", fleet.Ready)
}

func TestAPoolOfWhichNothingIsToStayEnds(t *testing.T) {
	f := newFound(t, "a")
	f.probe("a", nil)
	f.SetFleet(foundFleet([]fleet.EngineID{"a"}, []fleet.EngineID{"a"}))
	f.want("a", fleet.Draining)
}

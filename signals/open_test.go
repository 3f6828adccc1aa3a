package signals

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

func opens(frontEnd fleet.FrontEndID, node string, open ...fleet.EngineOpen) fleet.LoadReport {
	return fleet.LoadReport{FrontEnd: frontEnd, Node: node, Role: fleet.RoleExtProc, Open: open}
}

// What every weir-extproc has open adds up; who falls silent drops out, and when all
// have, nothing is known.
func TestOpen(t *testing.T) {
	big1 := func(n uint64) fleet.EngineOpen { return fleet.EngineOpen{Pool: "big", Engine: "10.0.0.1:80", Open: n} }
	f := newFeed()
	check := func(when string, want map[fleet.EngineID]float64) {
		t.Helper()
		if diff := cmp.Diff(want, f.State(f.now, nil).Pools["big"].Signals.Open); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("at first", nil)
	f.seconds(1, issued("east", "a", fleet.PoolLoad{Issued: 9, InFlight: 9}))
	check("when Envoys alone speak", nil)
	f.seconds(1, opens("east", "a", big1(5), fleet.EngineOpen{Pool: "big", Engine: "10.9.9.9:80", Open: 7}, fleet.EngineOpen{Pool: "gone", Engine: "10.0.0.1:80", Open: 7}),
		opens("east", "b", big1(2)), opens("west", "c", big1(1), fleet.EngineOpen{Pool: "big", Engine: "10.0.0.2:80", Open: 4}))
	check("of three nodes", map[fleet.EngineID]float64{"10.0.0.1:80": 8, "10.0.0.2:80": 4})
	f.seconds(1, opens("east", "a"))
	check("what is not named has ended", map[fleet.EngineID]float64{"10.0.0.1:80": 3, "10.0.0.2:80": 4})
	f.seconds(5, opens("west", "c"))
	check("two nodes are silent", map[fleet.EngineID]float64{})
	f.now = f.now.Add(6 * time.Second)
	check("all are silent", nil)
}

// Engines that were seen to become ready have an age; those that a control plane finds
// ready when it begins do not.
func TestReadySince(t *testing.T) {
	f := newFeed()
	probe := func(e fleet.EngineID, err error) {
		f.now = f.now.Add(time.Second)
		f.ObserveProbe(f.now, Probe{Pool: "big", Engine: e, Err: err, Answered: true})
	}
	since := func() map[fleet.EngineID]time.Time { return f.State(f.now, nil).Pools["big"].ReadySince }
	probe("10.0.0.1:80", nil)
	probe("10.0.0.2:80", errors.New("loading"))
	if got := since(); got != nil {
		t.Errorf("at the start: %v", got)
	}
	probe("10.0.0.2:80", nil)
	since()
	probe("10.0.0.2:80", nil)
	ready := f.now
	if diff := cmp.Diff(map[fleet.EngineID]time.Time{"10.0.0.2:80": ready}, since()); diff != "" {
		t.Errorf("one became ready (-want +got):\n%s", diff)
	}
	fl := testFleet()
	fl.Pools[0].Engines = append(fl.Pools[0].Engines, "10.0.0.9:80")
	f.SetFleet(fl)
	probe("10.0.0.9:80", nil)
	want := map[fleet.EngineID]time.Time{"10.0.0.2:80": ready, "10.0.0.9:80": f.now}
	if diff := cmp.Diff(want, since()); diff != "" {
		t.Errorf("one joined (-want +got):\n%s", diff)
	}
	for range 2 {
		probe("10.0.0.9:80", errors.New("gone"))
	}
	delete(want, "10.0.0.9:80")
	if diff := cmp.Diff(want, since()); diff != "" {
		t.Errorf("one is unready (-want +got):\n%s", diff)
	}
}

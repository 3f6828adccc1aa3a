package signals

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/fleet"
)

var eastChat = fleet.Stream{FrontEnd: "east", Class: "chat"}

// ended reports what became of attempts at an engine of a pool.
func ended(node string, outcomes map[fleet.Outcome]uint64, whole, streamed int) fleet.LoadReport {
	e := fleet.EngineLoad{Engine: "10.0.0.1:80", Whole: uint64(whole)}
	for o, n := range outcomes {
		e.Outcomes[o] = n
	}
	for range streamed {
		e.TTFT.Observe(0.1)
	}
	r := arrivals("east", node, 10)
	r.Classes[0].Pools = []fleet.PoolLoad{{Pool: "big", Engines: []fleet.EngineLoad{e}}}
	return r
}

func TestAttempts(t *testing.T) {
	type P = fleet.PoolLoad
	for name, c := range map[string]struct {
		reports []fleet.LoadReport
		want    fleet.Attempts
	}{
		"one Envoy": {
			[]fleet.LoadReport{issued("east", "a", P{Issued: 20, InFlight: 60})},
			fleet.Attempts{Rps: 20, InFlight: 60, Busiest: 1},
		},
		"Envoy alone tells of failures": {
			[]fleet.LoadReport{issued("east", "a", P{Issued: 20, Failed: 5, InFlight: 60})},
			fleet.Attempts{Rps: 20, Failed: 0.25, InFlight: 60, Busiest: 1},
		},
		"weir-extproc sees busy engines too, and what comes in one piece": {
			[]fleet.LoadReport{
				issued("east", "a", P{Issued: 20, Failed: 0, InFlight: 60}),
				ended("a", map[fleet.Outcome]uint64{fleet.Answered: 8, fleet.ClientError: 1, fleet.Aborted: 1, fleet.Busy: 6, fleet.Reset: 2, fleet.Refused: 1, fleet.ServerError: 1}, 2, 6),
			},
			fleet.Attempts{Rps: 20, Failed: 0.5, InFlight: 60, Busiest: 1, Whole: 0.25},
		},
		"three Envoys, one of them busier": {
			[]fleet.LoadReport{
				issued("east", "a", P{Issued: 20, InFlight: 60}),
				issued("east", "b", P{Issued: 10, InFlight: 20}),
				issued("east", "c", P{Issued: 10, InFlight: 20}),
			},
			fleet.Attempts{Rps: 40, InFlight: 100, Busiest: 0.6},
		},
		"another front-end's are not this one's": {
			[]fleet.LoadReport{issued("east", "a", P{Issued: 20, InFlight: 60}), issued("west", "b", P{Issued: 99, Failed: 99, InFlight: 99})},
			fleet.Attempts{Rps: 20, InFlight: 60, Busiest: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeed()
			f.seconds(10, c.reports...)
			got := f.State(f.now, nil).Attempts[eastChat]
			c.want.At = f.now
			if diff := cmp.Diff(got, c.want, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Errorf("attempts (-got +want):\n%s", diff)
			}
		})
	}
}

func TestAttemptsAreUnknownAtFirstAndFallWhenIdle(t *testing.T) {
	f := newFeed()
	busy := issued("east", "a", fleet.PoolLoad{Issued: 20, InFlight: 60})
	f.seconds(1, busy)
	if a, known := f.State(f.now, nil).Attempts[eastChat]; known {
		t.Errorf("after one second attempts are %+v, want unknown", a)
	}
	f.seconds(60, busy)
	f.seconds(8, fleet.LoadReport{FrontEnd: "east", Node: "a", Role: fleet.RoleEnvoy})
	if got, want := f.State(f.now, nil).Attempts[eastChat].InFlight, 60/math.E; math.Abs(got-want) > 3 {
		t.Errorf("in flight after 8 s without: %v, want about %v", got, want)
	}
	f.seconds(70, issued("west", "b", fleet.PoolLoad{Issued: 1}))
	if a, known := f.State(f.now, nil).Attempts[eastChat]; known {
		t.Errorf("a front-end that is silent for a minute has %+v, want unknown", a)
	}
}

func TestPoolsThatFail(t *testing.T) {
	f := newFeed()
	f.seconds(5, issued("east", "a", fleet.PoolLoad{Issued: 30, Failed: 10}), issued("west", "b", fleet.PoolLoad{Issued: 10, Failed: 10}))
	s := f.State(f.now, nil)
	if got := s.Pools["big"].Signals.Failed; !got.Known() || math.Abs(got.Value-0.5) > 1e-9 {
		t.Errorf("of the attempts at the pool %+v fail, want half", got)
	}
	if got := s.Pools["small"].Signals.Failed; got.Known() {
		t.Errorf("of the attempts at a pool that had none %+v fail, want unknown", got)
	}
}

// What the fleet names no more is forgotten with the fleet, not with the next report,
// which may never come: a pool would come back, and a stream that nobody plans.
func TestAttemptsOfWhatIsGone(t *testing.T) {
	f := newFeed()
	both := issued("east", "a", fleet.PoolLoad{Pool: "big", Issued: 10})
	both.Classes[0].Pools = append(both.Classes[0].Pools, fleet.PoolLoad{Pool: "small", Issued: 10})
	f.seconds(5, both)
	less := *testFleet()
	less.Pools = slices.DeleteFunc(slices.Clone(less.Pools), func(p fleet.Pool) bool { return p.ID == "small" })
	f.SetFleet(&less)
	if s := f.State(f.now, nil); len(s.Pools) != len(less.Pools) || math.Abs(s.Attempts[eastChat].Rps-10) > 1e-9 {
		t.Errorf("without a pool, the state has pools %v and attempts %+v, want those of the others", s.Pools, s.Attempts[eastChat])
	}
	less.Classes = slices.DeleteFunc(slices.Clone(less.Classes), func(c fleet.Class) bool { return c.ID == "chat" })
	f.SetFleet(&less)
	if a, known := f.State(f.now, nil).Attempts[eastChat]; known {
		t.Errorf("of a class that is gone, attempts are %+v", a)
	}
}

// BenchmarkLargeReport is a report of an Envoy with 200 classes in a fleet of 5,000
// pools, as much as a fleet file may name.
func BenchmarkLargeReport(b *testing.B) {
	f := &fleet.Fleet{FrontEnds: []fleet.FrontEnd{{ID: "east"}}}
	for i := range 5000 {
		f.Pools = append(f.Pools, fleet.Pool{ID: fleet.PoolID(fmt.Sprint("pool", i))})
	}
	r := fleet.LoadReport{FrontEnd: "east", Node: "a", Role: fleet.RoleEnvoy, Interval: time.Second}
	for i := range 200 {
		c := fleet.ClassLoad{Class: fleet.ClassID(fmt.Sprint("class", i))}
		f.Classes = append(f.Classes, fleet.Class{ID: c.Class})
		for j := range 50 {
			c.Pools = append(c.Pools, fleet.PoolLoad{Pool: f.Pools[(25*i+j)%5000].ID, Issued: 1})
		}
		r.Classes = append(r.Classes, c)
	}
	t, now := NewTracker(f), epoch
	for b.Loop() {
		now = now.Add(time.Second)
		t.ObserveLoad(now, r)
	}
}

// What was failing at an Envoy when it went away is no word on the pool as it is now.
func TestFailuresOfADeadEnvoyAreForgotten(t *testing.T) {
	f := newFeed()
	well := issued("east", "b", fleet.PoolLoad{Issued: 10})
	f.seconds(5, issued("east", "a", fleet.PoolLoad{Issued: 1000, Failed: 1000}), well)
	f.seconds(8, well)
	if got := f.State(f.now, nil).Pools["big"].Signals.Failed; !got.Known() || got.Value != 0 {
		t.Errorf("of the attempts at the pool %+v fail, want none", got)
	}
}

// Where one of two weir-extprocs is dead, its Envoy speaks for it.
func TestFailuresAtAnEnvoyWithoutAnExtProcCount(t *testing.T) {
	f := newFeed()
	f.seconds(10, issued("east", "a", fleet.PoolLoad{Issued: 30, Failed: 30}), issued("east", "b", fleet.PoolLoad{Issued: 10}),
		ended("b", map[fleet.Outcome]uint64{fleet.Answered: 10}, 0, 10))
	s := f.State(f.now, nil)
	if got := s.Attempts[eastChat].Failed; math.Abs(got-0.75) > 1e-9 {
		t.Errorf("%v of the attempts fail, want three quarters", got)
	}
	if got := s.Pools["big"].Signals.Failed; !got.Known() || math.Abs(got.Value-0.75) > 1e-9 {
		t.Errorf("of those at the pool %+v fail, want three quarters", got)
	}
}

// A weir-extproc that dies while everything fails leaves that to Envoy, which sees it pass.
func TestFailuresThatADeadExtProcToldOfAreForgotten(t *testing.T) {
	f := newFeed()
	f.seconds(10, issued("east", "a", fleet.PoolLoad{Issued: 100}), ended("a", map[fleet.Outcome]uint64{fleet.Busy: 100}, 0, 0))
	if got := f.State(f.now, nil).Attempts[eastChat].Failed; got != 1 {
		t.Fatalf("%v of the attempts fail, want all", got)
	}
	f.seconds(10, issued("east", "a", fleet.PoolLoad{Issued: 1}))
	s := f.State(f.now, nil)
	if got := s.Attempts[eastChat].Failed; got != 0 {
		t.Errorf("%v of the attempts fail, want none, by Envoy's word", got)
	}
	if got := s.Pools["big"].Signals.Failed; !got.Known() || got.Value != 0 {
		t.Errorf("of those at the pool %+v fail, want none", got)
	}
}

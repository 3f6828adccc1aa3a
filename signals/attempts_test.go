package signals

import (
	"math"
	"testing"

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

package fleet_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"weir/fleet"
)

// retryCase is a front-end "f" whose class "k" has two pools of two engines, each of
// 40 rps, and may ask for up to 50 % and 256.
type retryCase struct {
	demand, shed float64
	capacity     float64 // of each pool
	attempts     fleet.Attempts
	failed       float64 // of attempts at each pool
	more         float64 // RPS of another front-end, in the same pools
	before       fleet.Retries
}

func (c *retryCase) decide() fleet.Retries {
	f := &fleet.Fleet{
		FrontEnds: []fleet.FrontEnd{{ID: "f"}, {ID: "g"}},
		Pools: []fleet.Pool{
			{ID: "p", Models: []string{"m"}, Engines: []fleet.EngineID{"10.0.0.1:1", "10.0.0.2:1"}},
			{ID: "q", Models: []string{"m"}, Engines: []fleet.EngineID{"10.0.1.1:1", "10.0.1.2:1"}},
		},
		Classes: []fleet.Class{{ID: "k", Match: []fleet.Rule{{Model: "m"}}}},
		Options: fleet.Options{RetryPercent: 50, RetryFloor: 256},
	}
	s := fleet.Declared(f)
	st := fleet.Stream{FrontEnd: "f", Class: "k"}
	s.Attempts = map[fleet.Stream]fleet.Attempts{st: c.attempts}
	s.Pools = map[fleet.PoolID]fleet.PoolState{}
	admitted := c.demand - c.shed + c.more
	plan := &fleet.Plan{Routes: []fleet.Route{
		{FrontEnd: "f", Class: "k", DemandRps: c.demand, ShedRps: c.shed, Shares: []fleet.Share{{Pool: "p", Share: 0.5}, {Pool: "q", Share: 0.5}}},
		{FrontEnd: "g", Class: "k", DemandRps: c.more, Shares: []fleet.Share{{Pool: "p", Share: 0.5}, {Pool: "q", Share: 0.5}}},
	}}
	for _, id := range []fleet.PoolID{"p", "q"} {
		s.Pools[id] = fleet.PoolState{Signals: fleet.PoolSignals{Failed: fleet.Reading{Value: c.failed}}}
		plan.Pools = append(plan.Pools, fleet.PoolPlan{Pool: id, CapacityRps: c.capacity, Rps: admitted / 2})
	}
	return fleet.RetryBudgets(s, plan, map[fleet.Stream]fleet.Retries{st: c.before})[st]
}

var known = time.Unix(1, 0)

// Streams of 10 s: a retry holds for the back-off alone, 12.5 ms in the mean.
func streams(rps, failed float64) fleet.Attempts {
	return fleet.Attempts{At: known, Rps: rps, Failed: failed, InFlight: 10 * rps, Busiest: 1}
}

func TestRetryBudgets(t *testing.T) {
	for name, c := range map[string]struct {
		retryCase
		percent float64
		floor   uint32
		short   bool
		why     string
	}{
		"nothing measured": {retryCase{demand: 40, capacity: 80}, 50, 256, false, "fleet file"},
		// 2×(80−20) rps × 12.5 ms = 1.5 at once of 400; a quarter of 400 at an engine.
		"half full":     {retryCase{demand: 40, capacity: 80, attempts: streams(40, 0)}, 0.37, 256, false, "room for 120.0"},
		"shared by two": {retryCase{demand: 40, capacity: 80, more: 40, attempts: streams(40, 0)}, 0.12, 144, false, "room for 40.0"},
		// Of 2×(80−40) rps its part is one, and what a burst may have is half.
		"small beside a large one": {
			retryCase{demand: 1, capacity: 80, more: 79, attempts: fleet.Attempts{At: known, Rps: 1, InFlight: 1, Busiest: 1}}, 1.2, 60, false, "room for 1.0",
		},
		"full":           {retryCase{demand: 160, capacity: 80, attempts: streams(160, 0)}, 0, 256, false, "no pool has room"},
		"full and small": {retryCase{demand: 8, capacity: 4, attempts: streams(8, 0)}, 0, 42, false, "no pool has room"},
		"overfull":       {retryCase{demand: 20, shed: 12, capacity: 4, attempts: streams(8, 0)}, 0, 42, false, "sheds"},
		// A stream whose requests end at once: all of its time is waiting.
		"short requests": {retryCase{demand: 1, capacity: 80, attempts: fleet.Attempts{At: known, Rps: 1, InFlight: 0.02, Busiest: 1}}, 50, 256, false, "room"},
		"answers in one piece": {
			retryCase{demand: 40, capacity: 80, attempts: fleet.Attempts{At: known, Rps: 40, InFlight: 400, Busiest: 1, Whole: 1}},
			50, 256, false, "room for 120.0", // at once: 120 rps × 10 s
		},
		"nobody asks": {retryCase{capacity: 80, attempts: streams(0, 0)}, 50, 256, false, "idle"},
		// A quarter fails, in full pools, for the moment until the plan knows.
		"one engine dead, full": {retryCase{demand: 8, capacity: 4, attempts: streams(8, 0.24), failed: 0.24}, 0, 42, false, "no pool"},
		"half fails, with room": {retryCase{demand: 20, capacity: 80, attempts: streams(30, 0.5), failed: 0.5}, 0.29, 210, false, "room for 70.0"},
		"half fails, without":   {retryCase{demand: 90, capacity: 72, attempts: streams(140, 0.4), failed: 0.4}, 0.028, 1, true, "56.0 rps fail"},
		"half fails and it sheds": {
			retryCase{demand: 200, shed: 60, capacity: 70, attempts: streams(140, 0.5), failed: 0.5},
			0, 1, true, "70.0 rps fail and there is room for 0.0",
		},
		"a shortage ends later than it began": {
			retryCase{demand: 90, capacity: 72, attempts: streams(100, 0.3), failed: 0.4, before: fleet.Retries{Short: true, Why: "x"}},
			0.04, 1, true, "30.0 rps fail",
		},
		"many Envoys": {
			retryCase{demand: 40, capacity: 80, attempts: fleet.Attempts{At: known, Rps: 40, InFlight: 400, Busiest: 0.1}},
			0.37, 36, false, "room", // a tenth of three seconds of the room, at the busiest
		},
		"huge in flight": {
			retryCase{demand: 40, capacity: 80, attempts: fleet.Attempts{At: known, Rps: 40, InFlight: 1e9, Busiest: 1}},
			1.5e-7, 256, false, "room",
		},
		// Nobody is told to try more again because nobody tells how much fails.
		"not measured any more": {
			retryCase{demand: 40, capacity: 80, before: fleet.Retries{RetryBudget: fleet.RetryBudget{Percent: 0.37, Floor: 1}, Short: true, Why: "x", At: known}},
			0.37, 1, true, "kept",
		},
		"not measured any more, and the file allows less": {
			retryCase{demand: 40, capacity: 80, before: fleet.Retries{RetryBudget: fleet.RetryBudget{Percent: 70, Floor: 300}, Why: "x", At: known}},
			50, 256, false, "kept",
		},
		"never measured, and the file allows more": {
			retryCase{demand: 40, capacity: 80, before: fleet.Retries{RetryBudget: fleet.RetryBudget{Percent: 20, Floor: 3}, Why: "the fleet file's"}},
			50, 256, false, "fleet file",
		},
		"noise": {
			retryCase{demand: 40, capacity: 80, attempts: streams(40, 0), before: fleet.Retries{RetryBudget: fleet.RetryBudget{Percent: 0.35, Floor: 130}, Why: "x"}},
			0.35, 256, false, "room",
		},
		"the file allows a little less": {
			retryCase{demand: 1, capacity: 80, attempts: fleet.Attempts{At: known, Rps: 1, InFlight: 0.02, Busiest: 1}, before: fleet.Retries{RetryBudget: fleet.RetryBudget{Percent: 52, Floor: 170}, Why: "x"}},
			50, 256, false, "room",
		},
		"and of the floor": {
			retryCase{demand: 160, capacity: 80, attempts: streams(160, 0), before: fleet.Retries{RetryBudget: fleet.RetryBudget{Floor: 270}, Why: "x"}},
			0, 256, false, "no pool has room",
		},
		"no noise": {
			retryCase{demand: 40, capacity: 80, attempts: streams(40, 0), before: fleet.Retries{RetryBudget: fleet.RetryBudget{Percent: 0.42, Floor: 100}, Why: "x"}},
			0.37, 256, false, "room",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.decide()
			if math.Abs(got.Percent-c.percent) > 1e-9*max(1, c.percent) || got.Floor != c.floor || got.Short != c.short || !strings.Contains(got.Why, c.why) {
				t.Errorf("RetryBudgets = %+v, want %v %%, %d, short %v, for %q", got, c.percent, c.floor, c.short, c.why)
			}
		})
	}
}

// Retries go to a stream's other pools by their shares; of an only pool, to its other
// engines; of an only engine, to what else may serve the class.
func TestRetriesLandElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		shares  []fleet.Share
		unready []fleet.EngineID
		room    float64
	}{
		"two pools, one full": {[]fleet.Share{{Pool: "p", Share: 0.5}, {Pool: "q", Share: 0.5}}, nil, 30},
		"one pool, with room": {[]fleet.Share{{Pool: "p", Share: 1}}, nil, 30},
		"one pool, full":      {[]fleet.Share{{Pool: "q", Share: 1}}, nil, 0},
		"one engine, full":    {[]fleet.Share{{Pool: "q", Share: 1}}, []fleet.EngineID{"10.0.1.1:1"}, 30},
	} {
		t.Run(name, func(t *testing.T) {
			f := twoPools()
			f.Pools[1].Engines = []fleet.EngineID{"10.0.1.1:1", "10.0.1.2:1"}
			s := fleet.Declared(f)
			st := fleet.Stream{FrontEnd: "f", Class: "k"}
			s.Attempts = map[fleet.Stream]fleet.Attempts{st: streams(10, 0)}
			health := map[fleet.EngineID]fleet.Readiness{}
			for _, e := range c.unready {
				health[e] = fleet.Unready
			}
			s.Pools = map[fleet.PoolID]fleet.PoolState{"q": {Engines: health}}
			plan := &fleet.Plan{
				Routes: []fleet.Route{{FrontEnd: "f", Class: "k", DemandRps: 10, Shares: c.shares}},
				Pools:  []fleet.PoolPlan{{Pool: "p", CapacityRps: 40, Rps: 10}, {Pool: "q", CapacityRps: 10, Rps: 10}},
			}
			if got := fleet.RetryBudgets(s, plan, nil)[st].RoomRps; math.Abs(got-c.room) > 1e-9 {
				t.Errorf("room for %v rps, want %v", got, c.room)
			}
		})
	}
}

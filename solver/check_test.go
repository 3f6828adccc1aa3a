package solver

import (
	"errors"
	"math"
	"strings"
	"testing"

	"weir/fleet"
	"weir/solver/lp"
)

func TestBadStates(t *testing.T) {
	nan := math.NaN()
	tests := []struct {
		name   string
		change func(*fleet.State)
		want   string
	}{
		{"demand not a number", func(s *fleet.State) { ask(s, "B", "chat", nan) }, "demand of chat at B"},
		{"negative demand", func(s *fleet.State) { ask(s, "B", "chat", -1) }, "demand of chat at B"},
		{"infinite demand", func(s *fleet.State) { ask(s, "B", "chat", math.Inf(1)) }, "demand of chat at B"},
		{"network not a number", func(s *fleet.State) {
			s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "A", Pool: "C"}] = nan
		}, "network A to C"},
		{"network unknown", func(s *fleet.State) {
			delete(s.Fleet.Network.RoundTripSeconds, fleet.Link{FrontEnd: "A", Pool: "C"})
		}, "network A to C: no round trip is known"},
		{"capacity 0", func(s *fleet.State) { s.Fleet.Pools[1].Profile.CapacityRps = 0 }, "pool B: capacity"},
		{"capacity infinite", func(s *fleet.State) { s.Fleet.Pools[1].Profile.CapacityRps = math.Inf(1) }, "pool B: capacity"},
		{"health", func(s *fleet.State) { s.Pools["B"] = fleet.PoolState{Health: -1} }, "pool B: health"},
		{"factor", func(s *fleet.State) { s.Pools["B"] = fleet.PoolState{CapacityFactor: nan} }, "pool B: capacity factor"},
		{"curve", func(s *fleet.State) { s.Fleet.Pools[1].Profile.TTFT[1].Seconds = nan }, "pool B: TTFT: point 2: seconds"},
		{"curve turns back", func(s *fleet.State) { s.Fleet.Pools[1].Profile.TTFT[1].Utilisation = 0 }, "pool B: TTFT: point 2"},
		{"tokens", func(s *fleet.State) { s.Fleet.Classes[0].Tokens.Prompt = -5 }, "class chat: prompt tokens"},
		{"weights", func(s *fleet.State) { s.Fleet.Classes[0].Weights.TBT = nan }, "class chat: weight of TBT"},
		{"work 0", func(s *fleet.State) {
			s.Fleet.Classes[0].Tokens = fleet.Tokens{Output: 10}
			s.Fleet.Pools[0].Profile.OutputTokenCost = 0
		}, "class chat: a request is 0 engine-seconds of work at pool A"},
		{"headroom", func(s *fleet.State) { s.Fleet.Options.Headroom = 1 }, "headroom"},
		{"churn", func(s *fleet.State) { s.Fleet.Options.ChurnSeconds = nan }, "churn"},
		{"previous shares", func(s *fleet.State) {
			s.Previous = &fleet.Plan{Routes: []fleet.Route{{FrontEnd: "A", Class: "chat", Shares: []fleet.Share{{Pool: "A", Share: nan}}}}}
		}, "previous plan: chat at A"},
		{"price", func(s *fleet.State) { s.Fleet.Pools[1].PriceSeconds = -1 }, "pool B: price"},
		{"most RPS", func(s *fleet.State) { s.Fleet.Pools[1].MaxRps = nan }, "pool B: most RPS"},
		{"least RPS", func(s *fleet.State) { s.Fleet.Pools[1].MinRps = nan }, "pool B: least RPS"},
		{"limit", func(s *fleet.State) {
			s.Fleet.Limits = []fleet.Limit{{FrontEnd: "A", Pool: "B", Min: 0.5, Max: nan}}
		}, "limit of B at A"},
		{"noise", func(s *fleet.State) {
			s.NetworkNoise = map[fleet.Link]float64{{FrontEnd: "A", Pool: "B"}: nan}
		}, "noise of the network A to B"},
		{"elapsed", func(s *fleet.State) { s.ElapsedSeconds = nan }, "time since the previous plan"},
		{"cached tokens", func(s *fleet.State) {
			s.Tokens = map[fleet.ClassID]fleet.TokenBelief{"chat": {Mean: fleet.Tokens{Prompt: 1, Cached: -1}}}
		}, "class chat: believed size: cached tokens"},
		{"no fleet", func(s *fleet.State) { s.Fleet = nil }, "no fleet"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := talk()
			tt.change(s)
			plan, err := Plan(s, solve)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got plan %v and error %v, want an error about %q", plan, err, tt.want)
			}
		})
	}
}

func TestUnusedPoolNeedsNoNetwork(t *testing.T) {
	s := talk()
	s.Fleet.Pools = append(s.Fleet.Pools, fleet.Pool{ID: "D", Models: []string{"other"}, Engines: engines("D", 1), Profile: shallow(10)})
	plan := mustPlan(t, s)
	if got, want := plan.Pools[3], (fleet.PoolPlan{Pool: "D", CapacityRps: 10, Health: 1}); got != want {
		t.Errorf("unused pool: got %+v, want %+v", got, want)
	}
}

// Whatever a solver answers, a plan is right or there is none.
func TestWrongAnswers(t *testing.T) {
	tests := []struct {
		name   string
		change func(*lp.Solution)
		want   string
	}{
		{"nothing is sent", func(s *lp.Solution) { clear(s.X) }, "row"},
		{"not a number", func(s *lp.Solution) { s.X[0] = math.NaN() }, "values: NaN"},
		{"more than there is", func(s *lp.Solution) { s.X[0] *= 1.1 }, "row 0"},
		{"less than nothing", func(s *lp.Solution) { s.X[0] = -1 }, "column 0"},
		{"duals missing", func(s *lp.Solution) { s.ReducedCosts = nil }, "reduced costs"},
		{"a price that is infinite", func(s *lp.Solution) { s.ReducedCosts[3] = math.Inf(-1) }, "reduced costs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan, err := Plan(talk(), func(p *lp.Program) (*lp.Solution, error) {
				s, err := solve(p)
				if err != nil {
					return nil, err
				}
				tt.change(s)
				return s, nil
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got plan %v and error %v, want an error about %q", plan, err, tt.want)
			}
		})
	}
}

func TestSolverErrorIsKept(t *testing.T) {
	plan, err := Plan(talk(), func(*lp.Program) (*lp.Solution, error) { return nil, lp.ErrLimit })
	if plan != nil || !errors.Is(err, lp.ErrLimit) {
		t.Errorf("got plan %v and error %v, want %v", plan, err, lp.ErrLimit)
	}
}

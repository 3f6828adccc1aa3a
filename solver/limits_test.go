package solver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

func TestLimits(t *testing.T) {
	atA, atB := fleet.Stream{FrontEnd: "A", Class: "chat"}, fleet.Stream{FrontEnd: "B", Class: "chat"}
	limit := func(l fleet.Limit) func(*fleet.State) {
		return func(s *fleet.State) { s.Fleet.Limits = append(s.Fleet.Limits, l) }
	}
	tests := []struct {
		name   string
		change func(*fleet.State)
		of     fleet.Stream
		want   map[fleet.PoolID]float64
		shed   float64
	}{
		{"none", func(*fleet.State) {}, atB, map[fleet.PoolID]float64{"B": 100, "C": 20}, 0},
		{
			"a share at least", limit(fleet.Limit{FrontEnd: "A", Pool: "C", Min: 0.1, Max: 1}),
			atA,
			map[fleet.PoolID]float64{"A": 81, "C": 9},
			0,
		},
		{
			"a share at most", limit(fleet.Limit{FrontEnd: "B", Pool: "C", Max: 0.1}),
			atB,
			map[fleet.PoolID]float64{"A": 8, "B": 100, "C": 12},
			0,
		},
		{
			"of another class", limit(fleet.Limit{FrontEnd: "B", Pool: "C", Class: "other", Max: 0.1}),
			atB,
			map[fleet.PoolID]float64{"B": 100, "C": 20},
			0,
		},
		{
			"a share at most yields before a request is refused", func(s *fleet.State) {
				limit(fleet.Limit{FrontEnd: "B", Pool: "C", Max: 0.05})(s)
				limit(fleet.Limit{FrontEnd: "A", Pool: "C", Max: 0})(s)
				ask(s, "A", "chat", 95)
			},
			atB,
			map[fleet.PoolID]float64{"A": 5, "B": 100, "C": 15},
			0,
		},
		{
			"a pool's most is kept though requests are refused", func(s *fleet.State) {
				s.Fleet.Pools[2].MaxRps = 50
				ask(s, "A", "chat", 0)
				ask(s, "B", "chat", 255)
				ask(s, "C", "chat", 0)
			},
			atB,
			map[fleet.PoolID]float64{"A": 100, "B": 100, "C": 50},
			5,
		},
		{
			"a pool's least", func(s *fleet.State) {
				s.Fleet.Pools[2].MinRps = 70
			},
			atB,
			map[fleet.PoolID]float64{"B": 90, "C": 30},
			0,
		},
		{
			"a pool's least is more than anybody asks for", func(s *fleet.State) {
				s.Fleet.Pools[2].MinRps = 70
				ask(s, "A", "chat", 0)
				ask(s, "B", "chat", 10)
			},
			atB,
			map[fleet.PoolID]float64{"C": 10},
			0,
		},
		{
			"a pool's most is of work: twice the tokens, half of the requests", func(s *fleet.State) {
				s.Fleet.Pools[2].MaxRps = 100
				s.Fleet.Classes[0].Tokens = fleet.Tokens{Prompt: 2000, Output: 400}
				ask(s, "A", "chat", 0)
				ask(s, "B", "chat", 150)
				ask(s, "C", "chat", 0)
			},
			atB,
			map[fleet.PoolID]float64{"A": 50, "B": 50, "C": 40},
			10,
		},
		{
			"a pool that is dear", func(s *fleet.State) {
				s.Fleet.Pools[2].PriceSeconds = 0.040
				ask(s, "A", "chat", 50)
			},
			atB,
			map[fleet.PoolID]float64{"A": 20, "B": 100},
			0,
		},
		{
			"of a pool without an engine that is ready", func(s *fleet.State) {
				limit(fleet.Limit{FrontEnd: "B", Pool: "C", Min: 0.5, Max: 1})(s)
				ready(s, "C", fleet.Unready)
				ask(s, "A", "chat", 50)
				ask(s, "C", "chat", 0)
			},
			atB,
			map[fleet.PoolID]float64{"A": 20, "B": 100},
			0,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := talk()
			tt.change(s)
			plan := mustPlan(t, s)
			if diff := cmp.Diff(tt.want, rps(plan)[tt.of], near(1e-6)); diff != "" {
				t.Errorf("rates (-want +got):\n%s", diff)
			}
			if got := plan.ShedRps(); got < tt.shed-1e-6 || got > tt.shed+1e-6 {
				t.Errorf("%v RPS are refused, want %v", got, tt.shed)
			}
		})
	}
}

// A pool that is full by its operator's limit alone is called that.
func TestAMaxIsNamed(t *testing.T) {
	s := talk()
	s.Fleet.Pools[0].MaxRps = 40
	if plan := mustPlan(t, s); !strings.Contains(plan.Why, "A (by its max)") {
		t.Errorf("why %q, want A's max named", plan.Why)
	}
	if e := mustExplain(t, s); len(e.Pools[0].Limits) != 1 || !strings.HasPrefix(e.Pools[0].Limits[0], "max: kept") {
		t.Errorf("limits of A: %q, want its max", e.Pools[0].Limits)
	}
}

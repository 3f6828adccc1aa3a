package solver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

func TestWhatIf(t *testing.T) {
	atB := fleet.Stream{FrontEnd: "B", Class: "chat"}
	tests := []struct {
		name string
		what WhatIf
		want map[fleet.PoolID]float64 // of B's traffic
		shed float64
	}{
		{"a pool is drained", WhatIf{Drain: []string{"C"}, Demand: []string{"C=-100%"}}, map[fleet.PoolID]float64{"A": 10, "B": 100}, 10},
		{"a region is lost", WhatIf{Lose: []string{"west"}, Demand: []string{"C=-100%", "A=-50%"}}, map[fleet.PoolID]float64{"A": 20, "B": 100}, 0},
		{"more is asked for", WhatIf{Demand: []string{"B=+10%"}}, map[fleet.PoolID]float64{"B": 100, "C": 32}, 0},
		{"a rate", WhatIf{Demand: []string{"B/chat=100 rps"}}, map[fleet.PoolID]float64{"B": 100}, 0},
		{"a replica more", WhatIf{Replicas: []string{"B=+1"}}, map[fleet.PoolID]float64{"B": 120}, 0},
		{"one less", WhatIf{Replicas: []string{"B=-1"}, Demand: []string{"A=-50%"}}, map[fleet.PoolID]float64{"A": 30, "B": 50, "C": 40}, 0},
		{"so many", WhatIf{Replicas: []string{"B=3"}}, map[fleet.PoolID]float64{"B": 120}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := talk()
			s.Fleet.Pools[2].Region = "west"
			then, err := tt.what.Apply(s)
			if err != nil {
				t.Fatal(err)
			}
			plan := mustPlan(t, then)
			if tt.shed == 0 {
				if diff := cmp.Diff(tt.want, rps(plan)[atB], near(1e-6)); diff != "" {
					t.Errorf("rates (-want +got):\n%s", diff)
				}
			}
			if got := plan.ShedRps(); got < tt.shed-1e-6 || got > tt.shed+1e-6 {
				t.Errorf("%v RPS are refused, want %v", got, tt.shed)
			}
			if diff := cmp.Diff(mustPlan(t, talk()).Routes, mustPlan(t, s).Routes); diff != "" {
				t.Errorf("the state itself was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImpossibleWhatIfs(t *testing.T) {
	for _, tt := range []struct {
		what WhatIf
		want string
	}{
		{WhatIf{Drain: []string{"X"}}, "name one of A, B, C"},
		{WhatIf{Lose: []string{"moon"}}, "no pool is in that region"},
		{WhatIf{Lose: []string{""}}, "no pool is in that region"},
		{WhatIf{Demand: []string{"X=+30%"}}, "of a front-end of the fleet"},
		{WhatIf{Demand: []string{"B/code=+30%"}}, `no class "code"; name one of chat`},
		{WhatIf{Demand: []string{"B"}}, "write FRONTEND=+30%"},
		{WhatIf{Demand: []string{"B=-130%"}}, "more than there is"},
		{WhatIf{Demand: []string{"B=NaN%"}}, "is no change"},
		{WhatIf{Demand: []string{"B/chat=Inf rps"}}, "is no change"},
		{WhatIf{Demand: []string{"B/chat=-3rps"}}, "is no change"},
		{WhatIf{Demand: []string{"B=120rps"}}, "write FRONTEND/CLASS=120rps"},
		{WhatIf{Replicas: []string{"B=-2"}}, "drain it"},
		{WhatIf{Replicas: []string{"B=+100000"}}, "not possible"},
		{WhatIf{Replicas: []string{"B=many"}}, "write POOL=+2"},
	} {
		if _, err := tt.what.Apply(talk()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want an error about %q", tt.what, err, tt.want)
		}
	}
}

// What changed is named by the traffic that it moves alone.
func TestCauses(t *testing.T) {
	for input, change := range map[string]func(*fleet.State){
		InputDemand:   func(s *fleet.State) { ask(s, "B", "chat", 150) },
		InputCapacity: func(s *fleet.State) { s.Pools = map[fleet.PoolID]fleet.PoolState{"B": {CapacityFactor: 0.8}} },
		InputFleet: func(s *fleet.State) {
			f := *s.Fleet
			f.Options.Headroom = 0.2
			s.Fleet = &f
		},
		InputPolicy: func(s *fleet.State) {
			f := *s.Fleet
			f.Options.Policy = fleet.PolicyEven
			s.Fleet = &f
		},
		InputSizes: func(s *fleet.State) {
			s.Tokens = map[fleet.ClassID]fleet.TokenBelief{"chat": {Mean: fleet.Tokens{Prompt: 1100, Output: 220}}}
		},
	} {
		before, after := talk(), talk()
		before.Previous = mustPlan(t, before)
		after.Previous = before.Previous
		change(after)
		plan := func(s *fleet.State) (*fleet.Plan, error) {
			if s.Fleet.Options.Policy == fleet.PolicyEven {
				return planBy(t, fleet.PolicyEven, s), nil
			}
			return Plan(s, solve)
		}
		for _, c := range Causes(before, after, plan) {
			if c.Error != "" || (c.Moved > 0.02) != (c.Input == input) {
				t.Errorf("%s changed: %s alone moves %v %s", input, c.Input, c.Moved, c.Error)
			}
		}
	}
}

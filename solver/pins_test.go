package solver

import (
	"math"
	"strings"
	"testing"

	"weir/fleet"
)

func pinned(s *fleet.State, f fleet.FrontEndID, c fleet.ClassID, p fleet.PoolID, share float64) {
	s.Brakes = fleet.WithBrake(s.Brakes, fleet.Brake{
		BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakePin, FrontEnd: f, Class: c, Pool: p}, Share: share, Owner: "ann@ops",
	})
}

func limited(s *fleet.State, c fleet.ClassID, rps float64) {
	s.Brakes = fleet.WithBrake(s.Brakes, fleet.Brake{
		BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeLimit, Class: c}, Rps: rps, Owner: "ann@ops",
	})
}

var atB = fleet.Stream{FrontEnd: "B", Class: "chat"}

// Every policy gives a pinned pool its share and no more, over ticks too, and the rest
// as it would otherwise; without a ready engine a pin is as if it were not there.
func TestEveryPolicyKeepsPins(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fleet.State)
		want   map[fleet.PoolID]float64 // shares of B
		free   bool                     // the pin does not count
	}{
		"of a class":            {func(s *fleet.State) { pinned(s, "B", "chat", "A", 0.25) }, map[fleet.PoolID]float64{"A": 0.25}, false},
		"of all classes":        {func(s *fleet.State) { pinned(s, "B", "", "A", 0.25) }, map[fleet.PoolID]float64{"A": 0.25}, false},
		"a class's before all":  {func(s *fleet.State) { pinned(s, "B", "", "A", 0.25); pinned(s, "B", "chat", "A", 0.1) }, map[fleet.PoolID]float64{"A": 0.1}, false},
		"to the nearest":        {func(s *fleet.State) { pinned(s, "B", "chat", "B", 0.3) }, map[fleet.PoolID]float64{"B": 0.3}, false},
		"to nothing":            {func(s *fleet.State) { pinned(s, "B", "chat", "B", 0) }, map[fleet.PoolID]float64{"B": 0}, false},
		"two":                   {func(s *fleet.State) { pinned(s, "B", "chat", "A", 0.25); pinned(s, "B", "chat", "C", 0.5) }, map[fleet.PoolID]float64{"A": 0.25, "B": 0.25, "C": 0.5}, false},
		"all":                   {func(s *fleet.State) { pinned(s, "B", "chat", "A", 0.5); pinned(s, "B", "chat", "B", 0.5) }, map[fleet.PoolID]float64{"A": 0.5, "B": 0.5, "C": 0}, false},
		"less than the least":   {func(s *fleet.State) { s.Fleet.Options.MinShare = 0.05; pinned(s, "B", "chat", "A", 0.01) }, map[fleet.PoolID]float64{"A": 0.01}, false},
		"of a stream of nobody": {func(s *fleet.State) { ask(s, "B", "chat", 0); pinned(s, "B", "chat", "A", 0.25) }, map[fleet.PoolID]float64{"A": 0.25}, false},
		"of another front-end":  {func(s *fleet.State) { pinned(s, "A", "chat", "C", 0.9) }, nil, false},
		"to no ready engine": {func(s *fleet.State) {
			pinned(s, "B", "chat", "A", 0.25)
			ready(s, "A", fleet.Draining)
		}, map[fleet.PoolID]float64{"A": 0}, true},
	} {
		for _, policy := range fleet.Policies() {
			t.Run(name+", "+policy, func(t *testing.T) {
				s := talk()
				for id, d := range s.Demand {
					ask(s, id.FrontEnd, id.Class, d.Rps/3) // room for all
				}
				c.change(s)
				for range 3 {
					plan := planBy(t, policy, s)
					route := plan.Route(atB)
					for pool, want := range c.want {
						if got := route.ShareOf(pool); math.Abs(got-want) > 1e-9 {
							t.Errorf("share of %s is %v, want %v: %+v", pool, got, want, route.Shares)
						}
					}
					if c.free {
						without := *s
						without.Brakes = nil
						if d := fleet.Moved(planBy(t, policy, &without), plan); d > 1e-9 {
							t.Errorf("%v of the traffic goes elsewhere than without the pin", d)
						}
					}
					if plan.ShedRps() != 0 {
						t.Errorf("%v RPS are refused", plan.ShedRps())
					}
					s.Previous = plan
				}
			})
		}
	}
}

// onlyB leaves the pools B and C, and no demand but B's.
func onlyB(s *fleet.State) {
	ready(s, "A", fleet.Unready)
	ask(s, "A", "chat", 0)
}

// A pin yields to capacity, by no more than it must, and before a request is
// refused. It does not yield to a limit of the file.
func TestPinsYieldToCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		change func(*fleet.State)
		want   map[fleet.PoolID]float64 // RPS of B
	}{
		"more than the pool has":  {fleet.PolicyOptimal, func(s *fleet.State) { pinned(s, "B", "chat", "C", 0.9) }, map[fleet.PoolID]float64{"C": 80}},
		"by waterfall":            {fleet.PolicyWaterfall, func(s *fleet.State) { pinned(s, "B", "chat", "C", 0.9) }, map[fleet.PoolID]float64{"C": 80}},
		"less than must go there": {fleet.PolicyOptimal, func(s *fleet.State) { pinned(s, "B", "chat", "C", 0); onlyB(s) }, map[fleet.PoolID]float64{"B": 100, "C": 20}},
		"by waterfall, less":      {fleet.PolicyWaterfall, func(s *fleet.State) { pinned(s, "B", "chat", "C", 0); onlyB(s) }, map[fleet.PoolID]float64{"B": 100, "C": 20}},
		"a limit of the file yields to it": {fleet.PolicyOptimal, func(s *fleet.State) {
			pinned(s, "B", "chat", "C", 0.3)
			s.Fleet.Limits = []fleet.Limit{{FrontEnd: "B", Pool: "C", Max: 0.1}}
		}, map[fleet.PoolID]float64{"C": 36}},
		"a pool's most does not yield to it": {fleet.PolicyOptimal, func(s *fleet.State) {
			pinned(s, "B", "chat", "C", 0.3)
			ask(s, "C", "chat", 0)
			s.Fleet.Pools[2].MaxRps = 30
		}, map[fleet.PoolID]float64{"C": 30}},
	} {
		t.Run(name, func(t *testing.T) {
			s := talk()
			ask(s, "C", "chat", 0)
			c.change(s)
			plan := planBy(t, c.policy, s)
			route := plan.Route(atB)
			for pool, want := range c.want {
				if got := route.ShareOf(pool) * route.DemandRps; math.Abs(got-want) > 1e-6 {
					t.Errorf("%s gets %v RPS, want %v", pool, got, want)
				}
			}
			if plan.ShedRps() > 1e-6 {
				t.Errorf("%v RPS are refused", plan.ShedRps())
			}
		})
	}
}

// A policy that heeds no capacity keeps a pin to a pool that lacks it, and says so.
func TestAPinOverloads(t *testing.T) {
	s := talk()
	pinned(s, "B", "chat", "C", 0.9)
	for _, policy := range []string{fleet.PolicyNearest, fleet.PolicyEven, fleet.PolicyProportional} {
		plan := planBy(t, policy, s)
		if got := plan.Route(atB).ShareOf("C"); math.Abs(got-0.9) > 1e-9 {
			t.Errorf("%s: C gets %v, want 0.9", policy, got)
		}
		if plan.Status != fleet.Routed || !strings.Contains(plan.Why, "planned above capacity") || !strings.Contains(plan.Why, "C (") {
			t.Errorf("%s: %s: %s", policy, plan.Status, plan.Why)
		}
	}
}

// Every policy refuses the same part of a limited class at each front-end, and says by
// whom; nobody is refused below the limit.
func TestEveryPolicyKeepsLimits(t *testing.T) {
	for _, policy := range fleet.Policies() {
		for _, c := range []struct{ rps, admitted float64 }{{125, 0.5}, {0, 0}, {250, 1}, {1000, 1}} {
			s := talk() // 250 RPS
			limited(s, "chat", c.rps)
			for range 2 {
				plan := planBy(t, policy, s)
				for _, r := range plan.Routes {
					if math.Abs(r.Admitted()-c.admitted) > 1e-9 || r.DemandRps != s.Demand[fleet.Stream{FrontEnd: r.FrontEnd, Class: r.Class}].Rps {
						t.Errorf("%s, %v RPS: %s admits %v of %v RPS, want %v", policy, c.rps, r.FrontEnd, r.Admitted(), r.DemandRps, c.admitted)
					}
				}
				s.Previous = plan
				if c.admitted == 1 {
					if plan.ShedRps() != 0 || strings.Contains(plan.Why, "limited") {
						t.Errorf("%s, %v RPS: %s: %s", policy, c.rps, plan.Status, plan.Why)
					}
					continue
				}
				if plan.Status != fleet.Shedding || !strings.Contains(plan.Why, "limited by ann@ops to") {
					t.Errorf("%s, %v RPS: %s: %s", policy, c.rps, plan.Status, plan.Why)
				}
			}
		}
	}
}

// What a limit lets in can be more than there is capacity for: both are said, and
// refused together.
func TestALimitAndAShortage(t *testing.T) {
	s := talk()
	ask(s, "B", "chat", 370) // 500 RPS, for 280 of which there is room
	limited(s, "chat", 400)
	plan := mustPlan(t, s)
	if got := plan.ShedRps(); math.Abs(got-220) > 1e-6 {
		t.Errorf("%v RPS are refused, want 220", got)
	}
	for _, want := range []string{"capacity is short: refusing 120 RPS", "limited by ann@ops to 400 RPS of chat: refusing 100 RPS"} {
		if !strings.Contains(plan.Why, want) {
			t.Errorf("it says %q, want %q", plan.Why, want)
		}
	}
}

// What a pin moves is laid to it.
func TestCausesNameBrakes(t *testing.T) {
	before, after := talk(), talk()
	pinned(after, "B", "chat", "A", 0.25)
	plan := func(s *fleet.State) (*fleet.Plan, error) { return Plan(s, solve) }
	for _, c := range Causes(before, after, plan) {
		if moved := c.Moved > 0.01; moved != (c.Input == InputBrakes) || c.Error != "" {
			t.Errorf("%s moves %v of the traffic, %s", c.Input, c.Moved, c.Error)
		}
	}
}

package solver

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/fleet"
)

var fromB = fleet.Stream{FrontEnd: "B", Class: "chat"}

// shares are the shares of a plan's stream.
func shares(plan *fleet.Plan, id fleet.Stream) map[fleet.PoolID]float64 {
	out := map[fleet.PoolID]float64{}
	for _, s := range plan.Route(id).Shares {
		out[s.Pool] = s.Share
	}
	return out
}

// However slow the engines are, a fleet that nobody asks for refuses nobody.
func TestAnIdleFleetIsNotShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := states.Draw(t, "state")
		clear(s.Demand)
		slower := rapid.SampledFrom([]float64{1, 1e-3, 1e-6}).Draw(t, "slower")
		for i := range s.Fleet.Pools {
			s.Fleet.Pools[i].Profile.CapacityRps *= slower
		}
		plan, err := Plan(s, solve)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Status != fleet.Optimal || len(refused(plan)) > 0 {
			t.Errorf("status %s, why %q, refused %v", plan.Status, plan.Why, refused(plan))
		}
		for _, p := range plan.Pools {
			if p.Rps != 0 || p.Utilisation != 0 {
				t.Errorf("%+v: want it empty", p)
			}
		}
	})
}

// One request in a thousand seconds is all that the engines can do, and they may
// do all of it for the front-end that asks.
func TestIdleStreamsTakeNoCapacity(t *testing.T) {
	s := twoClasses(1, fleet.Tokens{})
	for i := range s.Fleet.Pools {
		s.Fleet.Pools[i].Profile.CapacityRps = 0.0005 // of two engines each
	}
	for _, f := range s.Fleet.FrontEnds {
		ask(s, f.ID, "chat", 0)
	}
	ask(s, "B", "chat", 0.003)
	plan := mustPlan(t, s)
	if plan.Status != fleet.Optimal || len(refused(plan)) > 0 {
		t.Errorf("demand as large as capacity: status %s, why %q, refused %v", plan.Status, plan.Why, refused(plan))
	}
	ask(s, "B", "chat", 0.004)
	plan = mustPlan(t, s)
	if got := refused(plan); math.Abs(got[fromB]-0.001) > 1e-9 || len(got) != 1 {
		t.Errorf("refused %v, want 0.001 RPS at B alone", got)
	}
}

func TestWhereAnIdleStreamWouldGo(t *testing.T) {
	had := func(p fleet.PoolID) *fleet.Plan {
		return &fleet.Plan{Routes: []fleet.Route{{FrontEnd: "B", Class: "chat", Shares: []fleet.Share{{Pool: p, Share: 1}}}}}
	}
	for name, c := range map[string]struct {
		change func(*fleet.State)
		want   map[fleet.PoolID]float64
	}{
		"home": {func(*fleet.State) {}, map[fleet.PoolID]float64{"B": 1}},
		"past a full pool": {func(s *fleet.State) {
			ask(s, "A", "chat", 300)
			ask(s, "C", "chat", 0)
			s.Pools["C"] = fleet.PoolState{CapacityFactor: 3}
			s.Pools["A"] = fleet.PoolState{CapacityFactor: 0.1}
		}, map[fleet.PoolID]float64{"C": 1}},
		"home where all are full": {func(s *fleet.State) { ask(s, "A", "chat", 900) }, map[fleet.PoolID]float64{"B": 1}},
		"past waiting that costs more than the way": {func(s *fleet.State) {
			s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "B", Pool: "C"}] = 0.05
			ask(s, "A", "chat", 100)
			ask(s, "C", "chat", 0)
			s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "A", Pool: "B"}] = 0.001
			s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "A", Pool: "C"}] = 0.2
			s.Pools["A"] = fleet.PoolState{CapacityFactor: 0.01}
		}, map[fleet.PoolID]float64{"C": 1}},
		"past engines that are not ready": {func(s *fleet.State) {
			ready(s, "B", fleet.Unready)
			s.Previous = had("B")
		}, map[fleet.PoolID]float64{"C": 1}},
		"where it was, for less than 2γ": {func(s *fleet.State) {
			s.Previous = had("C")
			s.Fleet.Options.ChurnSeconds = 0.1
		}, map[fleet.PoolID]float64{"C": 1}},
		"home again, for more": {func(s *fleet.State) {
			s.Previous = had("C")
			s.Fleet.Options.ChurnSeconds = 0.01
		}, map[fleet.PoolID]float64{"B": 1}},
		"where it was, none ready": {func(s *fleet.State) {
			for _, p := range s.Fleet.Pools {
				ready(s, p.ID, fleet.Unready)
			}
			s.Previous = had("C")
		}, map[fleet.PoolID]float64{"C": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := talk()
			ask(s, "B", "chat", 0)
			c.change(s)
			plan := mustPlan(t, s)
			if diff := cmp.Diff(c.want, shares(plan, fromB), near(1e-12)); diff != "" {
				t.Errorf("shares (-want +got):\n%s", diff)
			}
			if r := plan.Route(fromB); r.DemandRps != 0 || r.Admitted() != 1 {
				t.Errorf("demand %v RPS, admitted %v, want 0 and 1", r.DemandRps, r.Admitted())
			}
		})
	}
}

// A plan for nobody still says what a request would take.
func TestMeanOfAnIdleFleet(t *testing.T) {
	s := talk()
	clear(s.Demand)
	if got, want := mustPlan(t, s).MeanSeconds, 0.202; math.Abs(got-want) > 1e-12 {
		t.Errorf("mean %v s, want %v s", got, want)
	}
}

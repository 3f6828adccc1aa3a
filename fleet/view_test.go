package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

func twoPools() *fleet.Fleet {
	return &fleet.Fleet{
		FrontEnds: []fleet.FrontEnd{{ID: "f", Listen: "127.0.0.1:1", Demand: map[fleet.ClassID]float64{"k": 3}}},
		Pools: []fleet.Pool{
			{ID: "p", Models: []string{"m"}, Engines: []fleet.EngineID{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}},
			{ID: "q", Models: []string{"m"}, Engines: []fleet.EngineID{"10.0.1.1:1"}},
			{ID: "r", Models: []string{"other"}, Engines: []fleet.EngineID{"10.0.2.1:1"}},
		},
		Classes: []fleet.Class{{ID: "k", Match: []fleet.Rule{{Model: "m"}}}},
		Options: fleet.Options{RetryPercent: 20, RetryFloor: 5},
	}
}

func TestViewTellsAFrontEndItsPart(t *testing.T) {
	s := fleet.Declared(twoPools())
	s.Pools = map[fleet.PoolID]fleet.PoolState{"p": {Engines: map[fleet.EngineID]fleet.Readiness{
		"10.0.0.1:1": fleet.Ready, "10.0.0.2:1": fleet.Unready,
	}}}
	plan := &fleet.Plan{Routes: []fleet.Route{{
		FrontEnd: "f", Class: "k", DemandRps: 4, ShedRps: 1, Shares: []fleet.Share{{Pool: "p", Share: 1}},
	}}}
	got := fleet.NewView(s, plan, "f")
	want := &fleet.View{
		FrontEnd: "f", Listen: "127.0.0.1:1", Models: []string{"m"},
		Routes: []fleet.ViewRoute{{Class: "k", Rule: fleet.Rule{Model: "m"}}},
		Classes: []fleet.ViewClass{{
			ID: "k", Admitted: 0.75, Retry: fleet.RetryBudget{Percent: 20, Floor: 5},
			Pools: []fleet.ViewPool{
				{ID: "p", Weight: fleet.WeightScale, Engines: []fleet.ViewEngine{
					{ID: "10.0.0.1:1", Readiness: fleet.Ready}, {ID: "10.0.0.2:1", Readiness: fleet.Unready}, {ID: "10.0.0.3:1"},
				}},
				{ID: "q", Engines: []fleet.ViewEngine{{ID: "10.0.1.1:1"}}},
			},
		}},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("NewView (-got +want):\n%s", diff)
	}
	if got, want := got.Classes[0].Pools[0].EngineWeight(), uint32(fleet.WeightScale/2); got != want {
		t.Errorf("an engine of two that may serve weighs %d, want %d", got, want)
	}
}

func TestAClassWithoutAReadyEngineIsNotShed(t *testing.T) {
	f := twoPools()
	s := fleet.Declared(f)
	s.Pools = map[fleet.PoolID]fleet.PoolState{}
	for _, p := range f.Pools {
		engines := map[fleet.EngineID]fleet.Readiness{}
		for _, e := range p.Engines {
			engines[e] = fleet.Unready
		}
		s.Pools[p.ID] = fleet.PoolState{Engines: engines}
	}
	plan := &fleet.Plan{Routes: []fleet.Route{{
		FrontEnd: "f", Class: "k", DemandRps: 3, ShedRps: 3, Shares: []fleet.Share{{Pool: "p", Share: 1}},
	}}}
	if got := fleet.NewView(s, plan, "f").Class("k").Admitted; got != 1 {
		t.Errorf("admitted fraction %v, want 1: those requests get a 503, not a 429", got)
	}
}

func TestReplicas(t *testing.T) {
	s := fleet.Declared(twoPools())
	p := s.Fleet.Pool("p")
	if got := s.Replicas(p); got != 3 {
		t.Errorf("a pool of which nothing is known is worth %v replicas, want all 3", got)
	}
	s.Pools = map[fleet.PoolID]fleet.PoolState{"p": {
		Engines: map[fleet.EngineID]fleet.Readiness{"10.0.0.2:1": fleet.Unready},
		Health:  0.5, CapacityFactor: 0.8,
	}}
	if got, want := s.Replicas(p), 2*0.5*0.8; got != want {
		t.Errorf("Replicas = %v, want %v", got, want)
	}
}

func TestMeasuredRoundTripsRuleOnlyWhereTheFileSaysSo(t *testing.T) {
	f := twoPools()
	l := fleet.Link{FrontEnd: "f", Pool: "p"}
	f.Network.RoundTripSeconds = map[fleet.Link]float64{l: 0.1}
	s := fleet.Declared(f)
	s.Network = map[fleet.Link]float64{l: 0.05}
	if got := s.RoundTrip(l); got != 0.1 {
		t.Errorf("declared network: round trip %v s, want 0.1 s", got)
	}
	f.Network.Measured = true
	if got := s.RoundTrip(l); got != 0.05 {
		t.Errorf("measured network: round trip %v s, want 0.05 s", got)
	}
	if got := s.RoundTrip(fleet.Link{FrontEnd: "f", Pool: "q"}); got != 0 {
		t.Errorf("an unknown link: round trip %v s, want 0", got)
	}
}

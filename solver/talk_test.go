package solver

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/fleet"
)

func near(margin float64) cmp.Option { return cmpopts.EquateApprox(0, margin) }

// rps is a plan's traffic by front-end, class and pool.
func rps(plan *fleet.Plan) map[fleet.Stream]map[fleet.PoolID]float64 {
	out := map[fleet.Stream]map[fleet.PoolID]float64{}
	for _, r := range plan.Routes {
		pools := map[fleet.PoolID]float64{}
		for _, s := range r.Shares {
			pools[s.Pool] = s.Rps
		}
		out[fleet.Stream{FrontEnd: r.FrontEnd, Class: r.Class}] = pools
	}
	return out
}

func TestTalk(t *testing.T) {
	got := mustPlan(t, talk())
	want := &fleet.Plan{
		Status: fleet.Optimal, Policy: fleet.PolicyOptimal,
		Routes: []fleet.Route{
			{FrontEnd: "A", Class: "chat", DemandRps: 90, Shares: []fleet.Share{
				{Pool: "A", Share: 1, Rps: 90, NetworkSeconds: 0.002, EngineSeconds: 0.245},
			}},
			{FrontEnd: "B", Class: "chat", DemandRps: 120, Shares: []fleet.Share{
				{Pool: "B", Share: 100. / 120, Rps: 100, NetworkSeconds: 0.002, EngineSeconds: 0.25},
				{Pool: "C", Share: 20. / 120, Rps: 20, NetworkSeconds: 0.060, EngineSeconds: 0.2375},
			}},
			{FrontEnd: "C", Class: "chat", DemandRps: 40, Shares: []fleet.Share{
				{Pool: "C", Share: 1, Rps: 40, NetworkSeconds: 0.002, EngineSeconds: 0.2375},
			}},
		},
		MeanSeconds: (90*0.247 + 100*0.252 + 20*0.2975 + 40*0.2395) / 250,
	}
	opts := []cmp.Option{near(1e-9), cmpopts.IgnoreFields(fleet.Plan{}, "Pools")}
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	pools := []fleet.PoolPlan{
		{Pool: "A", CapacityRps: 100, Health: 1, Rps: 90, Utilisation: 0.9},
		{Pool: "B", CapacityRps: 100, Health: 1, Rps: 100, Utilisation: 1},
		{Pool: "C", CapacityRps: 80, Health: 1, Rps: 60, Utilisation: 0.75},
	}
	opts = []cmp.Option{near(1e-9), cmpopts.IgnoreFields(fleet.PoolPlan{}, "PriceSeconds")}
	if diff := cmp.Diff(pools, got.Pools, opts...); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

// A pool's price is what widening its full pieces saves: the marginal cost of
// waiting there, less what each piece costs. With u·q(u) = 2.5u² in 16 pieces and
// 1/50 s of work, piece i costs 0.05·(2i+1)/16 s per request.
func TestTalkPrices(t *testing.T) {
	piece := func(i int) float64 { return 0.05 * float64(2*i+1) / 16 }
	relief := func(marginal float64, full int) (sum float64) {
		for i := range full {
			sum += (marginal - piece(i)) / 16
		}
		return sum
	}
	type between struct{ low, high float64 } // where the load ends a piece, the next one's cost is as right
	want := map[fleet.PoolID]between{
		"A": {relief(piece(14), 14), relief(piece(14), 14)}, // 0.9 lies in piece 14
		"B": {relief(0.058+piece(11), 16), relief(0.058+piece(12), 16)},
		"C": {relief(piece(11), 12), relief(piece(12), 12)}, // 0.75 ends piece 11
	}
	for _, p := range mustPlan(t, talk()).Pools {
		if w := want[p.Pool]; p.PriceSeconds < w.low-1e-9 || p.PriceSeconds > w.high+1e-9 {
			t.Errorf("price of %s: got %v, want %v to %v", p.Pool, p.PriceSeconds, w.low, w.high)
		}
	}
}

func TestTalkVariations(t *testing.T) {
	at := func(f fleet.FrontEndID) fleet.Stream { return fleet.Stream{FrontEnd: f, Class: "chat"} }
	tests := []struct {
		name   string
		change func(*fleet.State)
		want   map[fleet.Stream]map[fleet.PoolID]float64
	}{
		{
			"one of B's engines is unready",
			func(s *fleet.State) {
				s.Pools["B"] = fleet.PoolState{Engines: map[fleet.EngineID]fleet.Readiness{"B:1": fleet.Unready}}
				ask(s, "B", "chat", 60)
			},
			map[fleet.Stream]map[fleet.PoolID]float64{at("A"): {"A": 90}, at("B"): {"B": 50, "C": 10}, at("C"): {"C": 40}},
		},
		{
			"B is half healthy and its profile is doubted",
			func(s *fleet.State) {
				s.Pools["B"] = fleet.PoolState{Health: 0.5, CapacityFactor: 0.8}
				ask(s, "B", "chat", 60)
			},
			map[fleet.Stream]map[fleet.PoolID]float64{at("A"): {"A": 90}, at("B"): {"B": 40, "C": 20}, at("C"): {"C": 40}},
		},
		{
			"headroom",
			func(s *fleet.State) { s.Fleet.Options.Headroom = 0.1; ask(s, "B", "chat", 100) },
			map[fleet.Stream]map[fleet.PoolID]float64{at("A"): {"A": 90}, at("B"): {"B": 90, "C": 10}, at("C"): {"C": 40}},
		},
		{
			"a measured network makes A the nearer",
			func(s *fleet.State) {
				s.Fleet.Network.Measured = true
				s.Network = map[fleet.Link]float64{{FrontEnd: "B", Pool: "C"}: 0.2}
				ask(s, "B", "chat", 108)
			},
			map[fleet.Stream]map[fleet.PoolID]float64{at("A"): {"A": 90}, at("B"): {"A": 8, "B": 100}, at("C"): {"C": 40}},
		},
		{
			"heavier requests fill a pool sooner",
			func(s *fleet.State) {
				s.Fleet.Classes[0].Tokens = fleet.Tokens{Prompt: 2000, Output: 400}
				ask(s, "A", "chat", 45)
				ask(s, "B", "chat", 60)
				ask(s, "C", "chat", 20)
			},
			map[fleet.Stream]map[fleet.PoolID]float64{at("A"): {"A": 45}, at("B"): {"B": 50, "C": 10}, at("C"): {"C": 20}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := talk()
			tt.change(s)
			if diff := cmp.Diff(tt.want, rps(mustPlan(t, s)), near(1e-7)); diff != "" {
				t.Errorf("rates (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMixedHardware(t *testing.T) {
	s := talk()
	class := &s.Fleet.Classes[0]
	class.Weights = fleet.LatencyWeight{TTFT: 1, TBT: 1}
	for i, tbt := range []float64{0, 0.010, 0.012} {
		if tbt > 0 {
			s.Fleet.Pools[i].Profile.TBT = fleet.Curve{{Utilisation: 0, Seconds: tbt}, {Utilisation: 1, Seconds: tbt}}
		}
	}
	m := newModel(s)
	got := map[fleet.PoolID]float64{}
	for _, o := range m.classes[0].options {
		got[o.pool.ID] = o.base
	}
	// A's TBT is not known: neither the fastest nor held against it.
	want := map[fleet.PoolID]float64{"A": 0.2, "B": 0.2, "C": 0.2 + 200*0.002}
	if diff := cmp.Diff(want, got, near(1e-12)); diff != "" {
		t.Errorf("base seconds (-want +got):\n%s", diff)
	}
}

func TestChurnHoldsTraffic(t *testing.T) {
	s := talk()
	s.Previous = mustPlan(t, s)
	// A becomes 5 ms nearer to B than C: too little to move for 10 ms a way.
	s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "B", Pool: "A"}] = 0.042
	for i := range s.Fleet.Pools {
		s.Fleet.Pools[i].Profile.TTFT = fleet.Curve{{Utilisation: 0, Seconds: 0.2}}
	}
	ask(s, "A", "chat", 50)
	fromB := fleet.Stream{FrontEnd: "B", Class: "chat"}
	s.Fleet.Options.ChurnSeconds = 0.010
	if got := rps(mustPlan(t, s))[fromB]["C"]; math.Abs(got-20) > 1e-9 {
		t.Errorf("with churn priced, B to C: got %v RPS, want 20", got)
	}
	s.Fleet.Options.ChurnSeconds = 0.001
	if got := rps(mustPlan(t, s))[fromB]["A"]; math.Abs(got-20) > 1e-9 {
		t.Errorf("with churn cheap, B to A: got %v RPS, want 20", got)
	}
}

func TestSmallSharesAreGivenUp(t *testing.T) {
	s := talk()
	ask(s, "B", "chat", 100.5)
	s.Fleet.Options.MinShare = 0.01
	fromB := fleet.Stream{FrontEnd: "B", Class: "chat"}
	if got := rps(mustPlan(t, s))[fromB]["C"]; math.Abs(got-0.5) > 1e-9 {
		t.Errorf("where B is full, B to C: got %v RPS, want the small share kept: 0.5", got)
	}
	s.Pools["B"] = fleet.PoolState{CapacityFactor: 1.1}
	ask(s, "B", "chat", 85.2)
	s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "B", Pool: "C"}] = 0.002
	s.Pools["C"] = fleet.PoolState{CapacityFactor: 0.52} // 41.6 RPS, a little less loaded than B
	ask(s, "C", "chat", 30)
	s.Fleet.Options.MinShare = 0
	before := rps(mustPlan(t, s))[fromB]
	s.Fleet.Options.MinShare = 0.05
	after := rps(mustPlan(t, s))[fromB]
	if before["C"] <= 0 || before["C"] >= 0.05*85.2 {
		t.Fatalf("B to C: got %v RPS, want a small share to give up", before["C"])
	}
	if diff := cmp.Diff(map[fleet.PoolID]float64{"B": 85.2}, after, near(1e-9)); diff != "" {
		t.Errorf("where B has room (-want +got):\n%s", diff)
	}
}

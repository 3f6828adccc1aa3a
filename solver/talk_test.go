package solver

import (
	"math"
	"strings"
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
	// Marginal waiting is read off the chords: with u·q(u) = 2.5u² of 16 pieces,
	// 2.5·(2i+1)/16 seconds per engine-second in piece i, and 1/50 s of work.
	want := &fleet.Plan{
		Status: fleet.Optimal,
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
		{Pool: "A", CapacityRps: 100, Rps: 90, Utilisation: 0.9},
		{Pool: "B", CapacityRps: 100, Rps: 100, Utilisation: 1},
		{Pool: "C", CapacityRps: 80, Rps: 60, Utilisation: 0.75},
	}
	opts = []cmp.Option{near(1e-9), cmpopts.IgnoreFields(fleet.PoolPlan{}, "PriceSeconds")}
	if diff := cmp.Diff(pools, got.Pools, opts...); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

// The pieces that the flows leave full are what more capacity would relieve.
func TestTalkPrices(t *testing.T) {
	want := map[fleet.PoolID]float64{}
	chord := func(i int) float64 { return 0.05 * float64(2*i+1) / 16 } // seconds per request in piece i of 16
	relief := func(marginal float64, full int) (sum float64) {
		for i := range full {
			sum += (marginal - chord(i)) / 16
		}
		return sum
	}
	want["A"] = relief(chord(14), 14)       // 0.9 lies in piece 14
	want["C"] = relief(chord(12), 12)       // 0.75 ends piece 11: the next one sets the price
	want["B"] = relief(0.058+chord(12), 16) // one more RPS at B would come back from C
	got := mustPlan(t, talk()).Pools
	for _, p := range got {
		// Where the load ends a piece, either piece's price is a right answer.
		lower := want[p.Pool]
		if p.Pool != "A" {
			lower -= 0.05 * 2 / 16
		}
		if p.PriceSeconds < lower-1e-9 || p.PriceSeconds > want[p.Pool]+1e-9 {
			t.Errorf("price of %s: got %v, want %v to %v", p.Pool, p.PriceSeconds, lower, want[p.Pool])
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

func TestHold(t *testing.T) {
	previous := mustPlan(t, talk())
	held := Hold(previous, "the solver timed out")
	if held.Status != fleet.Held || held.Why != "the solver timed out" {
		t.Errorf("status %q, why %q", held.Status, held.Why)
	}
	if diff := cmp.Diff(previous.Routes, held.Routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	held.Routes[0].Shares[0].Share = 0
	held.Pools[0].Rps = 0
	if previous.Status != fleet.Optimal || previous.Routes[0].Shares[0].Share == 0 || previous.Pools[0].Rps == 0 {
		t.Error("the copy shares memory with the plan it was made of")
	}
	if Hold(nil, "no plan yet") != nil {
		t.Error("held a plan that never was")
	}
}

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

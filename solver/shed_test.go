package solver

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

// twoClasses is the talk's fleet with a second class of that priority and size.
func twoClasses(priority int, tokens fleet.Tokens) *fleet.State {
	s := talk()
	s.Fleet.Classes = append(s.Fleet.Classes, fleet.Class{
		ID:       "batch",
		Match:    []fleet.Rule{{Path: "/batch"}},
		Priority: priority,
		Tokens:   tokens,
		Weights:  fleet.LatencyWeight{TTFT: 1},
	})
	return s
}

func refused(plan *fleet.Plan) map[fleet.Stream]float64 {
	out := map[fleet.Stream]float64{}
	for _, r := range plan.Routes {
		if r.ShedRps > 0 {
			out[fleet.Stream{FrontEnd: r.FrontEnd, Class: r.Class}] = r.ShedRps
		}
	}
	return out
}

func TestShedOnlyWhenShort(t *testing.T) {
	s := talk()
	ask(s, "B", "chat", 150) // 280 in all: every pool full
	plan := mustPlan(t, s)
	if plan.Status != fleet.Optimal || plan.Why != "" || len(refused(plan)) > 0 {
		t.Errorf("demand as large as capacity: status %s, why %q, refused %v", plan.Status, plan.Why, refused(plan))
	}
	ask(s, "B", "chat", 164)
	plan = mustPlan(t, s)
	total := 0.0
	for _, rps := range refused(plan) {
		total += rps
	}
	if math.Abs(total-14) > 1e-6 {
		t.Errorf("refused %v RPS, want 14", total)
	}
	if want := "capacity is short: refusing 14 RPS of chat ("; plan.Status != fleet.Shedding || !strings.HasPrefix(plan.Why, want) {
		t.Errorf("status %s, why %q, want it to start with %q", plan.Status, plan.Why, want)
	}
	if want := "full pools: A, B, C"; !strings.HasSuffix(plan.Why, want) {
		t.Errorf("why %q, want it to end with %q", plan.Why, want)
	}
}

func TestEqualFrontEndsShedAlike(t *testing.T) {
	for _, each := range []float64{100, 120, 200, 1000} {
		s := talk()
		for i, f := range s.Fleet.FrontEnds {
			ask(s, f.ID, "chat", each)
			for _, p := range s.Fleet.Pools {
				s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: f.ID, Pool: p.ID}] = 0.010
			}
			s.Fleet.Pools[i].Profile.CapacityRps = 45
		}
		got := refused(mustPlan(t, s))
		fair := (3*each - 270) / 3
		for _, f := range s.Fleet.FrontEnds {
			rps := got[fleet.Stream{FrontEnd: f.ID, Class: "chat"}]
			if off := math.Abs(rps-fair) / each; off > 1e-6 {
				t.Errorf("demand %v: %s refuses %v RPS, want %v", each, f.ID, rps, fair)
			}
		}
	}
}

func TestPiecesCoverTheDemand(t *testing.T) {
	sum := 0.0
	for _, width := range pieces {
		sum += width
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("pieces sum to %v, want 1", sum)
	}
	if top := 1 + pieceRise*float64(len(pieces)-1); top >= minBandRatio {
		t.Errorf("the last piece costs %v of the first: it meets the next priority at %v", top, minBandRatio)
	}
}

func TestPriorities(t *testing.T) {
	light, heavy := fleet.Tokens{Prompt: 20, Output: 4}, fleet.Tokens{Prompt: 20000, Output: 4000}
	chatAtB := fleet.Stream{FrontEnd: "B", Class: "chat"}
	batchAtB := fleet.Stream{FrontEnd: "B", Class: "batch"}
	tests := []struct {
		name     string
		priority int // of batch; chat has 0
		tokens   fleet.Tokens
		batch    float64 // RPS; chat asks for 270 of 280
		want     fleet.Stream
	}{
		{"light and low goes first", -1, light, 1000, batchAtB},
		{"heavy and low goes first", -1, heavy, 1, batchAtB},
		{"light and high stays", 1, light, 1000, chatAtB},
		{"heavy and high stays", 1, heavy, 1, chatAtB},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := twoClasses(tt.priority, tt.tokens)
			for _, f := range []fleet.FrontEndID{"A", "C"} { // B alone asks
				ask(s, f, "chat", 0)
			}
			ask(s, "B", "chat", 270)
			ask(s, "B", "batch", tt.batch)
			got := refused(mustPlan(t, s))
			if len(got) == 0 || got[tt.want] == 0 {
				t.Fatalf("refused %v, want %v", got, tt.want)
			}
			for stream, rps := range got {
				if stream.Class != tt.want.Class {
					t.Errorf("refused %v RPS of %v as well", rps, stream)
				}
			}
		})
	}
}

func TestPriceBands(t *testing.T) {
	s := talk()
	s.Fleet.Classes = nil
	for i := range 40 {
		s.Fleet.Classes = append(s.Fleet.Classes, fleet.Class{ID: fleet.ClassID(rune('A' + i)), Priority: i * 7})
	}
	m := newModel(s)
	last := len(pieces) - 1
	for i := 1; i < len(m.classes); i++ {
		if low, high := m.classes[i-1].shedPrice(last), m.classes[i].shedPrice(0); !(low < high) {
			t.Errorf("priority %d costs up to %v, priority %d from %v", m.classes[i-1].Priority, low, m.classes[i].Priority, high)
		}
	}
	s.Fleet.Classes = s.Fleet.Classes[:9]
	m = newModel(s)
	if got := m.classes[8].shedPrice(last); got > maxPrice {
		t.Errorf("nine priorities reach %v s, want at most %v", got, maxPrice)
	}
}

func TestNoReadyEngine(t *testing.T) {
	shares := func(p *fleet.Plan) map[fleet.PoolID]float64 {
		out := map[fleet.PoolID]float64{}
		for _, s := range p.Route(fleet.Stream{FrontEnd: "B", Class: "chat"}).Shares {
			out[s.Pool] = s.Share
		}
		return out
	}
	s := talk()
	before := mustPlan(t, s)
	for _, p := range s.Fleet.Pools {
		ready(s, p.ID, fleet.Unready)
	}
	plan := mustPlan(t, s)
	want := map[fleet.PoolID]float64{"A": 100. / 280, "B": 100. / 280, "C": 80. / 280}
	if diff := cmp.Diff(want, shares(plan), near(1e-12)); diff != "" {
		t.Errorf("without a previous plan, shares (-want +got):\n%s", diff)
	}
	if want := "no engine is ready: refusing 250 RPS of chat (A 90, B 120, C 40)"; plan.Status != fleet.Shedding || plan.Why != want {
		t.Errorf("status %s, why %q, want %q", plan.Status, plan.Why, want)
	}
	for _, p := range plan.Pools {
		if p.CapacityRps != 0 || p.Utilisation != 0 || p.Rps != 0 {
			t.Errorf("pool %+v: want no capacity", p)
		}
	}
	s.Previous = before
	dark := mustPlan(t, s)
	if diff := cmp.Diff(shares(before), shares(dark), near(1e-12)); diff != "" {
		t.Errorf("with a previous plan, shares (-want +got):\n%s", diff)
	}
	for _, p := range s.Fleet.Pools {
		ready(s, p.ID, fleet.Ready)
	}
	s.Previous = dark
	s.Fleet.Options.ChurnSeconds = 10
	if diff := cmp.Diff(rps(before), rps(mustPlan(t, s)), near(1e-9)); diff != "" {
		t.Errorf("back again, rates (-want +got):\n%s", diff)
	}
}

func TestUnknownEnginesAreUsed(t *testing.T) {
	s := talk()
	for _, p := range s.Fleet.Pools {
		ready(s, p.ID, fleet.Unknown)
	}
	if diff := cmp.Diff(rps(mustPlan(t, talk())), rps(mustPlan(t, s))); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
}

func TestWhollyRefusedKeepsReadyShares(t *testing.T) {
	s := twoClasses(-1, fleet.Tokens{})
	ready(s, "A", fleet.Unready)
	ask(s, "B", "chat", 500)
	ask(s, "B", "batch", 5)
	plan := mustPlan(t, s)
	route := plan.Route(fleet.Stream{FrontEnd: "B", Class: "batch"})
	if route.Admitted() != 0 {
		t.Fatalf("batch is admitted at %v, want 0", route.Admitted())
	}
	if route.ShareOf("A") != 0 || math.Abs(route.ShareOf("B")+route.ShareOf("C")-1) > 1e-12 {
		t.Errorf("shares %v, want all on the ready pools B and C", route.Shares)
	}
}

func TestClassWithoutEngines(t *testing.T) {
	s := twoClasses(0, fleet.Tokens{})
	s.Fleet.Classes[1].Requires.Regions = []string{"nowhere"}
	batch := fleet.Stream{FrontEnd: "B", Class: "batch"}
	if plan := mustPlan(t, s); plan.Status != fleet.Optimal || plan.Route(batch) != nil {
		t.Errorf("nobody asks: status %s, route %v", plan.Status, plan.Route(batch))
	}
	ask(s, "B", "batch", 3)
	plan := mustPlan(t, s)
	if want := "no eligible pool has an engine: refusing 3 RPS of batch (B 3)"; plan.Status != fleet.Shedding || plan.Why != want {
		t.Errorf("status %s, why %q, want %q", plan.Status, plan.Why, want)
	}
}

func TestExtremeRates(t *testing.T) {
	for _, each := range []float64{0, 1e-9, 1e-6, 1e-3, 1e6, 1e12} {
		s := talk()
		for _, f := range s.Fleet.FrontEnds {
			ask(s, f.ID, "chat", each)
		}
		plan := mustPlan(t, s)
		admitted := 0.0
		for _, p := range plan.Pools {
			admitted += p.Rps
		}
		want := min(3*each, 280)
		if each < idleRps {
			want = 0
		}
		if math.Abs(admitted-want) > 1e-6*want {
			t.Errorf("demand %v at each: admitted %v, want %v", each, admitted, want)
		}
		if shedding := plan.Status == fleet.Shedding; shedding != (each > 100) {
			t.Errorf("demand %v at each: status %s", each, plan.Status)
		}
	}
}

func TestEmptyFleet(t *testing.T) {
	plan := mustPlan(t, &fleet.State{Fleet: &fleet.Fleet{}})
	if diff := cmp.Diff(&fleet.Plan{Status: fleet.Optimal, Policy: fleet.PolicyOptimal}, plan, cmp.Transformer("nil", func(p []fleet.PoolPlan) int { return len(p) })); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// Demand that may not be there is left out before anything is refused, and only as
// far as capacity is short.
func TestNothingIsRefusedForDemandInDoubt(t *testing.T) {
	doubtful := func(rps, doubt float64) *fleet.Plan {
		s := talk()
		s.Demand[fleet.Stream{FrontEnd: "B", Class: "chat"}] = fleet.Demand{Rps: rps, DoubtRps: doubt, Source: fleet.SourceArrivals}
		return mustPlan(t, s)
	}
	b := fleet.Stream{FrontEnd: "B", Class: "chat"}
	for name, c := range map[string]struct {
		rps, doubt, planned, refused float64
	}{
		"room for all":         {120, 30, 120, 0},
		"doubt covers it":      {164, 20, 150, 0},
		"doubt covers a part":  {164, 10, 154, 4},
		"without a doubt":      {164, 0, 164, 14},
		"more doubt than half": {400, 390, 200, 50},
	} {
		t.Run(name, func(t *testing.T) {
			plan := doubtful(c.rps, c.doubt)
			r := plan.Route(b)
			total := 0.0
			for _, rps := range refused(plan) {
				total += rps
			}
			if math.Abs(r.DemandRps-c.planned) > 1e-6 || math.Abs(total-c.refused) > 1e-6 {
				t.Errorf("planned for %v RPS and refused %v, want %v and %v", r.DemandRps, total, c.planned, c.refused)
			}
			if (plan.Status == fleet.Shedding) != (c.refused > 0) {
				t.Errorf("status %s", plan.Status)
			}
		})
	}
}

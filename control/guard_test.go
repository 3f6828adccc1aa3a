package control

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/fleet"
)

// guardState has a small pool near, a large one far, and one in a region where
// the class resident may not go.
func guardState() *fleet.State {
	one := func(e fleet.EngineID) []fleet.EngineID { return []fleet.EngineID{e} }
	return &fleet.State{
		Fleet: &fleet.Fleet{
			FrontEnds: []fleet.FrontEnd{{ID: "A"}, {ID: "B"}},
			Pools: []fleet.Pool{
				{ID: "abroad", Region: "us", Engines: one("e1")},
				{ID: "empty", Region: "eu"},
				{ID: "far", Region: "eu", Engines: one("e2")},
				{ID: "near", Region: "eu", Engines: one("e3")},
			},
			Classes: []fleet.Class{
				{ID: "resident", Requires: fleet.Requirements{Regions: []string{"eu"}}},
				{ID: "nowhere", Requires: fleet.Requirements{Regions: []string{"ap"}}},
			},
		},
		Pools: map[fleet.PoolID]fleet.PoolState{},
	}
}

func guardPlan() *fleet.Plan {
	return &fleet.Plan{
		Status:      fleet.Optimal,
		MeanSeconds: 0.2,
		Routes: []fleet.Route{
			{FrontEnd: "A", Class: "resident", DemandRps: 40, Shares: []fleet.Share{
				{Pool: "far", Share: 0.5, Rps: 20, NetworkSeconds: 0.05, EngineSeconds: 0.2},
				{Pool: "near", Share: 0.5, Rps: 20, EngineSeconds: 0.2},
			}},
			{FrontEnd: "B", Class: "resident", DemandRps: 10, Shares: []fleet.Share{
				{Pool: "near", Share: 1, Rps: 10, EngineSeconds: 0.2},
			}},
		},
		Pools: []fleet.PoolPlan{
			{Pool: "abroad", CapacityRps: 100},
			{Pool: "empty"},
			{Pool: "far", CapacityRps: 100, Rps: 20, Utilisation: 0.2},
			{Pool: "near", CapacityRps: 30, Rps: 30, Utilisation: 1, PriceSeconds: 0.05},
		},
	}
}

func unready(s *fleet.State, pool fleet.PoolID, e fleet.EngineID) {
	s.Pools[pool] = fleet.PoolState{Engines: map[fleet.EngineID]fleet.Readiness{e: fleet.Unready}}
}

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fleet.State, *fleet.Plan)
		want   string // part of the error; empty: it passes
	}{
		{"a good plan", func(*fleet.State, *fleet.Plan) {}, ""},
		{"rounding is allowed", func(_ *fleet.State, p *fleet.Plan) {
			p.Routes[0].Shares[0].Share += 1e-8
			p.Routes[0].Shares[1].Rps += 1e-6
		}, ""},
		{"a negative price", func(_ *fleet.State, p *fleet.Plan) { p.Pools[0].PriceSeconds = -1e-9 }, ""},

		{"NaN mean", func(_ *fleet.State, p *fleet.Plan) { p.MeanSeconds = math.NaN() }, "mean latency"},
		{"NaN demand", func(_ *fleet.State, p *fleet.Plan) { p.Routes[0].DemandRps = math.NaN() }, `class "resident" at "A"`},
		{"infinite share", func(_ *fleet.State, p *fleet.Plan) { p.Routes[0].Shares[0].Share = math.Inf(1) }, "not finite"},
		{"negative share", func(_ *fleet.State, p *fleet.Plan) {
			p.Routes[0].Shares[0].Share, p.Routes[0].Shares[1].Share = -0.5, 1.5
		}, "negative"},
		{"NaN latency", func(_ *fleet.State, p *fleet.Plan) { p.Routes[0].Shares[0].EngineSeconds = math.NaN() }, "not finite"},
		{"NaN capacity", func(_ *fleet.State, p *fleet.Plan) { p.Pools[2].CapacityRps = math.NaN() }, `pool "far"`},
		{"NaN price", func(_ *fleet.State, p *fleet.Plan) { p.Pools[2].PriceSeconds = math.NaN() }, `pool "far"`},
		{"shares below 1", func(_ *fleet.State, p *fleet.Plan) { p.Routes[0].Shares[0].Share = 0.49 }, "sum to 1"},
		{"no shares", func(_ *fleet.State, p *fleet.Plan) { p.Routes[1].Shares = nil }, "sum to 1"},
		{"shares out of order", func(_ *fleet.State, p *fleet.Plan) {
			s := p.Routes[0].Shares
			s[0], s[1] = s[1], s[0]
		}, "out of order"},
		{"routes out of order", func(_ *fleet.State, p *fleet.Plan) {
			p.Routes[0], p.Routes[1] = p.Routes[1], p.Routes[0]
		}, "out of order"},
		{"a route twice", func(_ *fleet.State, p *fleet.Plan) { p.Routes[1] = p.Routes[0] }, "twice"},
		{"sheds more than demand", func(_ *fleet.State, p *fleet.Plan) { p.Routes[0].ShedRps = 41 }, "more than is asked"},

		{"empty", func(_ *fleet.State, p *fleet.Plan) { p.Routes = nil }, "no route"},
		{"a stream without a route", func(_ *fleet.State, p *fleet.Plan) { p.Routes = p.Routes[:1] }, `class "resident" at "B": no route`},
		{"a front-end that left", func(s *fleet.State, _ *fleet.Plan) { s.Fleet.FrontEnds = s.Fleet.FrontEnds[:1] }, "not in the fleet"},
		{"a class that left", func(s *fleet.State, _ *fleet.Plan) { s.Fleet.Classes = s.Fleet.Classes[1:] }, "not in the fleet"},
		{"a pool that left", func(s *fleet.State, _ *fleet.Plan) { s.Fleet.Pools = s.Fleet.Pools[:3] }, "may not serve"},
		{"a share abroad", func(_ *fleet.State, p *fleet.Plan) { p.Routes[1].Shares[0].Pool = "abroad" }, "may not serve"},
		{"a share of no traffic abroad", func(_ *fleet.State, p *fleet.Plan) {
			p.Routes[1].Shares = append([]fleet.Share{{Pool: "abroad"}}, p.Routes[1].Shares...)
		}, "may not serve"},
		{"a share of a pool without engines", func(_ *fleet.State, p *fleet.Plan) { p.Routes[1].Shares[0].Pool = "empty" }, "no engines"},
		{"a share of a dead pool", func(s *fleet.State, _ *fleet.Plan) { unready(s, "far", "e2") }, "no ready engine"},
		{"all pools are dead", func(s *fleet.State, p *fleet.Plan) {
			unready(s, "far", "e2")
			unready(s, "near", "e3")
			for i := range p.Routes {
				r := &p.Routes[i]
				r.ShedRps = r.DemandRps
				for j := range r.Shares {
					r.Shares[j].Rps = 0
				}
			}
			for i := range p.Pools {
				p.Pools[i] = fleet.PoolPlan{Pool: p.Pools[i].Pool}
			}
		}, ""},

		{"a share without planned capacity", func(_ *fleet.State, p *fleet.Plan) { p.Pools = p.Pools[:3] }, "no capacity planned"},
		{"rates above capacity", func(_ *fleet.State, p *fleet.Plan) { p.Routes[1].Shares[0].Rps = 10.1 }, `pool "near": planned above`},
		{"shares above capacity", func(_ *fleet.State, p *fleet.Plan) {
			p.Routes[0].Shares[0].Share, p.Routes[0].Shares[1].Share = 0.4, 0.6
		}, `pool "near": planned above`},
		{"a sum above capacity", func(_ *fleet.State, p *fleet.Plan) { p.Pools[2].Rps = 101 }, `pool "far": planned above`},

		{"sheds while all have room", func(_ *fleet.State, p *fleet.Plan) {
			p.Routes[1].ShedRps, p.Routes[1].Shares[0].Rps = 5, 5
			p.Pools[3].Rps, p.Pools[3].Utilisation = 25, 25.0/30
		}, `class "resident" at "B": sheds while capacity is free`},
		{"sheds while one pool is full and another is not", func(_ *fleet.State, p *fleet.Plan) {
			p.Routes[1].ShedRps, p.Routes[1].Shares[0].Rps = 5, 5
		}, `class "resident" at "B": sheds while capacity is free`},
		{"sheds when every pool is full", func(_ *fleet.State, p *fleet.Plan) {
			p.Routes[1].ShedRps, p.Routes[1].Shares[0].Rps = 5, 5
			for i := range p.Pools {
				p.Pools[i].Utilisation = 1
			}
		}, ""},
		{"sheds by rounding", func(_ *fleet.State, p *fleet.Plan) {
			p.Routes[1].ShedRps = 1e-7
			p.Pools[3].Utilisation = 0.99
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, p := guardState(), guardPlan()
			c.change(s, p)
			err := guard(s, p)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// What a policy does not promise, the guard does not ask of it; all else it does.
func TestGuardAsksOfEachPolicyWhatItPromises(t *testing.T) {
	overfull := func(p *fleet.Plan) {
		p.Routes[1].DemandRps, p.Routes[1].Shares[0].Rps = 40, 40
		p.Pools[3].Rps, p.Pools[3].Utilisation = 60, 2
	}
	sheds := func(p *fleet.Plan) {
		p.Routes[1].ShedRps, p.Routes[1].Shares[0].Rps = 5, 5
	}
	for name, c := range map[string]struct {
		policies []string
		change   func(*fleet.Plan)
		want     string // part of the error; empty: it passes
	}{
		"capacity, of those that promise it":   {[]string{"", fleet.PolicyOptimal, fleet.PolicyWaterfall}, overfull, "planned above"},
		"capacity, of those that ignore it":    {[]string{fleet.PolicyLocal, fleet.PolicyNearest, fleet.PolicyEven, fleet.PolicyProportional}, overfull, ""},
		"shedding last, of those that promise": {[]string{"", fleet.PolicyOptimal, fleet.PolicyWaterfall}, sheds, "sheds while"},
		"sums, of all":                         {fleet.Policies(), func(p *fleet.Plan) { p.Routes[0].Shares[0].Share = 0.1 }, "sum to 1"},
		"numbers, of all":                      {fleet.Policies(), func(p *fleet.Plan) { p.MeanSeconds = math.Inf(1) }, "mean latency"},
		"eligibility, of all":                  {fleet.Policies(), func(p *fleet.Plan) { p.Routes[1].Shares[0].Pool = "abroad" }, "may not serve"},
		"a route for each stream, of all":      {fleet.Policies(), func(p *fleet.Plan) { p.Routes = p.Routes[1:] }, "no route"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, policy := range c.policies {
				s, p := guardState(), guardPlan()
				s.Fleet.Options.Policy = policy
				c.change(p)
				err := guard(s, p)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("policy %q: %v, want %q", policy, err, c.want)
				}
			}
		})
	}
}

// What passes the guard leaves nobody without an engine while one is ready: each pool
// is published with all of its engines that are not known to be unready, and each
// class has traffic for one of them.
func TestGuardedPlansReachReadyEngines(t *testing.T) {
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		s, p := guardState(), guardPlan()
		s.Fleet.Options.Policy = rapid.SampledFrom(fleet.Policies()).Draw(t, "policy")
		for i := range s.Fleet.Pools {
			pool := &s.Fleet.Pools[i]
			st := fleet.PoolState{Engines: map[fleet.EngineID]fleet.Readiness{}}
			for _, e := range pool.Engines {
				st.Engines[e] = fleet.Readiness(rapid.IntRange(0, 2).Draw(t, string(e)))
			}
			s.Pools[pool.ID] = st
		}
		for i := range p.Routes {
			p.Routes[i].Shares = drawShares(t)
		}
		if guard(s, p) != nil {
			return
		}
		passed++
		for _, f := range s.Fleet.FrontEnds {
			reachesReady(t, s, fleet.NewView(s, p, f.ID).Class("resident"))
		}
	})
	if passed < 10 {
		t.Errorf("%d plans passed: too few", passed)
	}
}

// drawShares draws shares of far and near, one of which may have none.
func drawShares(t *rapid.T) []fleet.Share {
	far := rapid.SampledFrom([]float64{0, 0.25, 1}).Draw(t, "far")
	var out []fleet.Share
	for _, s := range []fleet.Share{{Pool: "far", Share: far}, {Pool: "near", Share: 1 - far}} {
		if s.Share > 0 {
			out = append(out, s)
		}
	}
	return out
}

func reachesReady(t *rapid.T, s *fleet.State, c *fleet.ViewClass) {
	reached, ready := 0, 0
	for _, p := range c.Pools {
		engines := s.ReadyEngines(s.Fleet.Pool(p.ID))
		if p.ReadyEngines() != engines {
			t.Errorf("pool %s is published with %d ready engines, %d are", p.ID, p.ReadyEngines(), engines)
		}
		ready += engines
		if p.Weight > 0 {
			reached += engines
		}
	}
	if reached == 0 && ready > 0 {
		t.Errorf("traffic reaches no engine while %d are ready", ready)
	}
}

func TestGuardWithoutAPlan(t *testing.T) {
	if err := guard(guardState(), nil); err == nil {
		t.Error("no plan at all passes")
	}
}

func TestGuardOfAFleetThatServesNobody(t *testing.T) {
	s := guardState()
	s.Fleet.Pools = nil
	if err := guard(s, &fleet.Plan{}); err != nil {
		t.Errorf("an empty plan where none can be served: %v", err)
	}
}

// TestSoundPlansHaveWeights holds the guard to its purpose: what passes can be
// turned into weights that sum to the scale.
func TestSoundPlansHaveWeights(t *testing.T) {
	number := rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64())
	rapid.Check(t, func(t *rapid.T) {
		p := &fleet.Plan{MeanSeconds: number.Draw(t, "mean")}
		r := fleet.Route{FrontEnd: "A", Class: "c", DemandRps: number.Draw(t, "demand"), ShedRps: number.Draw(t, "shed")}
		n := rapid.IntRange(0, 4).Draw(t, "shares")
		even := rapid.Bool().Draw(t, "even")
		for i := range n {
			s := fleet.Share{Pool: fleet.PoolID(rune('a' + i)), Share: 1 / float64(n)}
			if !even {
				s.Share = number.Draw(t, "share")
			}
			r.Shares = append(r.Shares, s)
		}
		p.Routes = []fleet.Route{r}
		if sound(p) != nil {
			return
		}
		sum := 0
		for _, w := range fleet.Weights(r.Shares) {
			sum += int(w)
		}
		if sum != fleet.WeightScale {
			t.Fatalf("weights sum to %d, want %d", sum, fleet.WeightScale)
		}
		if a := r.Admitted(); a < -tolerance || a > 1 {
			t.Fatalf("admits %v", a)
		}
	})
}

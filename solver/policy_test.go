package solver

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/fleet"
	"weir/solver/lp"
)

func planBy(t rapid.TB, policy string, s *fleet.State) *fleet.Plan {
	t.Helper()
	plan, err := Policies(solve)[policy](s)
	if err != nil {
		t.Fatalf("policy %s: %v", policy, err)
	}
	return plan
}

// after has the state of the next tick: the policy has planned once.
func after(t rapid.TB, policy string, s *fleet.State) *fleet.State {
	t.Helper()
	next := *s
	next.Previous = planBy(t, policy, s)
	return &next
}

func TestPoliciesHaveNames(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(Policies(solve))), slices.Sorted(slices.Values(fleet.Policies())); !slices.Equal(got, want) {
		t.Errorf("policies %v, names %v", got, want)
	}
	if fleet.Policies()[0] != fleet.PolicyOptimal {
		t.Errorf("the first is %s, want the default", fleet.Policies()[0])
	}
}

// outcome is a plan of the talk's three regions in the figures that one works out by
// hand: RPS by front-end and pool, utilisation by pool, and the mean.
type outcome struct {
	routes      map[fleet.FrontEndID]map[fleet.PoolID]float64
	utilisation map[fleet.PoolID]float64
	meanSeconds float64
	status      fleet.Status
	why         string
}

func outcomeOf(plan *fleet.Plan) outcome {
	out := outcome{map[fleet.FrontEndID]map[fleet.PoolID]float64{}, map[fleet.PoolID]float64{}, plan.MeanSeconds, plan.Status, plan.Why}
	for id, pools := range rps(plan) {
		out.routes[id.FrontEnd] = pools
	}
	for _, p := range plan.Pools {
		out.utilisation[p.Pool] = p.Utilisation
	}
	return out
}

// The talk's regions: A is asked for 90 of 100, B for 120 of 100, C for 40 of 80. A
// request takes 200 ms and 50 ms × utilisation more, and the round trip: 2 ms at home,
// B–C 60, A–B 80, A–C 120.
func TestPoliciesOnTheTalksRegions(t *testing.T) {
	type (
		pools = map[fleet.PoolID]float64
		all   = map[fleet.FrontEndID]map[fleet.PoolID]float64
	)
	third := func(rps float64) pools { return pools{"A": rps / 3, "B": rps / 3, "C": rps / 3} }
	for policy, want := range map[string]outcome{
		// B keeps its hundred, and exactly 20 overflow to C, the nearer.
		fleet.PolicyOptimal: {
			all{"A": {"A": 90}, "B": {"B": 100, "C": 20}, "C": {"C": 40}},
			pools{"A": 0.9, "B": 1, "C": 0.75},
			(90*0.247 + 100*0.252 + 20*0.2975 + 40*0.2395) / 250, fleet.Optimal, "",
		},
		fleet.PolicyWaterfall: {
			all{"A": {"A": 90}, "B": {"B": 100, "C": 20}, "C": {"C": 40}},
			pools{"A": 0.9, "B": 1, "C": 0.75},
			(90*0.247 + 100*0.252 + 20*0.2975 + 40*0.2395) / 250, fleet.Routed, "",
		},
		// B's extra 20 wait at B.
		fleet.PolicyNearest: {
			all{"A": {"A": 90}, "B": {"B": 120}, "C": {"C": 40}},
			pools{"A": 0.9, "B": 1.2, "C": 0.5},
			(90*0.247 + 120*0.262 + 40*0.227) / 250, fleet.Routed, "planned above capacity, requests wait ever longer: B (120 %)",
		},
		// Each pool has two engines: a third of everything, which C's are too weak for.
		fleet.PolicyEven: {
			all{"A": third(90), "B": third(120), "C": third(40)},
			pools{"A": 250. / 300, "B": 250. / 300, "C": 250. / 240},
			(90*0.202+120*0.142+40*0.182)/3/250 + 0.2 + 0.05*(2*250./300+250./240)/3,
			fleet.Routed, "planned above capacity, requests wait ever longer: C (104 %)",
		},
		// The first round knows no latency but that of idle engines, which is the same.
		fleet.PolicyProportional: {
			all{"A": third(90), "B": third(120), "C": third(40)},
			pools{"A": 250. / 300, "B": 250. / 300, "C": 250. / 240},
			(90*0.202+120*0.142+40*0.182)/3/250 + 0.2 + 0.05*(2*250./300+250./240)/3,
			fleet.Routed, "planned above capacity, requests wait ever longer: C (104 %)",
		},
		// One more request at home costs A alone 205.1 ms + 6.25 ms for each sixteenth of
		// its pool that is full; at B, whose engines it takes to be idle, 283.1 ms. So 13
		// pieces of 6.25 RPS at home, one at B, and the rest at home. B alone fills 14 pieces
		// at home, 5 of 5 RPS at C (from 263.1 ms) and the rest at A (from 283.1 ms).
		fleet.PolicyLocal: {
			all{"A": {"A": 83.75, "B": 6.25}, "B": {"A": 7.5, "B": 87.5, "C": 25}, "C": {"C": 40}},
			pools{"A": 0.9125, "B": 0.9375, "C": 0.8125},
			(83.75*0.002+6.25*0.08+7.5*0.08+87.5*0.002+25*0.06+40*0.002)/250 +
				0.2 + 0.05*(91.25*0.9125+93.75*0.9375+65*0.8125)/250,
			fleet.Routed, "",
		},
	} {
		t.Run(policy, func(t *testing.T) {
			plan := planBy(t, policy, talk())
			if diff := cmp.Diff(want, outcomeOf(plan), near(1e-9), cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if plan.Policy != policy {
				t.Errorf("the plan says that %q made it", plan.Policy)
			}
		})
	}
}

// What each policy makes of other states, as the shares of front-end B.
func TestPoliciesOnOtherStates(t *testing.T) {
	type pools = map[fleet.PoolID]float64
	link := func(s *fleet.State, p fleet.PoolID, seconds float64) {
		s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "B", Pool: p}] = seconds
	}
	for name, c := range map[string]struct {
		policy string
		change func(*fleet.State)
		want   pools
	}{
		"nearest, B is down": {fleet.PolicyNearest, func(s *fleet.State) { ready(s, "B", fleet.Unready) }, pools{"C": 1}},
		"nearest, of two as near the first": {
			fleet.PolicyNearest, func(s *fleet.State) { link(s, "B", 0.060); link(s, "A", 0.060) }, pools{"A": 1},
		},
		"nearest, by the measured network": {fleet.PolicyNearest, func(s *fleet.State) {
			s.Fleet.Network.Measured = true
			s.Network = map[fleet.Link]float64{{FrontEnd: "B", Pool: "B"}: 0.07}
		}, pools{"C": 1}},
		"nearest, of what may serve the class": {fleet.PolicyNearest, func(s *fleet.State) {
			s.Fleet.Pools[1].Models = []string{"other"}
		}, pools{"C": 1}},
		"nearest, nobody asks": {fleet.PolicyNearest, func(s *fleet.State) { ask(s, "B", "chat", 0) }, pools{"B": 1}},

		"even, an engine is down": {fleet.PolicyEven, func(s *fleet.State) {
			s.Pools["A"] = fleet.PoolState{Engines: map[fleet.EngineID]fleet.Readiness{"A:1": fleet.Unready}}
		}, pools{"A": 0.2, "B": 0.4, "C": 0.4}},
		"even, whatever they can do": {fleet.PolicyEven, func(s *fleet.State) {
			s.Pools["A"] = fleet.PoolState{Health: 0.1}
			s.Fleet.Pools[1].Profile.CapacityRps = 1
		}, pools{"A": 1. / 3, "B": 1. / 3, "C": 1. / 3}},

		// B's 150 fill B, C has room for 40 and A for 10.
		"waterfall, spills twice": {
			fleet.PolicyWaterfall, func(s *fleet.State) { ask(s, "B", "chat", 150) },
			pools{"B": 100. / 150, "C": 40. / 150, "A": 10. / 150},
		},
		"waterfall, up to the headroom": {
			fleet.PolicyWaterfall, func(s *fleet.State) { s.Fleet.Options.Headroom = 0.1 }, pools{"B": 0.75, "C": 0.25},
		},
		"waterfall, up to what the engines are worth": {
			fleet.PolicyWaterfall, func(s *fleet.State) { s.Pools["B"] = fleet.PoolState{Health: 0.9, CapacityFactor: 2. / 3} },
			pools{"B": 60. / 110, "C": 40. / 110, "A": 10. / 110}, // 10 of 120 are refused
		},
		"waterfall, up to the most that an operator wants there": {fleet.PolicyWaterfall, func(s *fleet.State) {
			s.Fleet.Pools[1].MaxRps = 75
			s.Fleet.Pools[2].MaxRps = 70
		}, pools{"B": 75. / 115, "C": 30. / 115, "A": 10. / 115}}, // 5 of 120 are refused
		"waterfall, an idle stream past a full pool": {fleet.PolicyWaterfall, func(s *fleet.State) {
			ask(s, "B", "chat", 0)
			ask(s, "A", "chat", 210)
		}, pools{"C": 1}},
		"waterfall, an idle stream where all are full": {fleet.PolicyWaterfall, func(s *fleet.State) {
			ask(s, "B", "chat", 0)
			ask(s, "A", "chat", 900)
		}, pools{"B": 1}},

		// It believes that all of C is its own, and A as well.
		"local, whatever the others ask for": {fleet.PolicyLocal, func(s *fleet.State) {
			ask(s, "A", "chat", 1000)
			ask(s, "C", "chat", 1000)
		}, pools{"A": 7.5 / 120, "B": 87.5 / 120, "C": 25. / 120}},
		"local, more than there is, all the same": {
			fleet.PolicyLocal, func(s *fleet.State) { ask(s, "B", "chat", 1120) }, pools{"A": 100. / 280, "B": 100. / 280, "C": 80. / 280},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := talk()
			c.change(s)
			plan := planBy(t, c.policy, s)
			if diff := cmp.Diff(c.want, shares(plan, fromB), near(1e-9)); diff != "" {
				t.Errorf("B's shares (-want +got):\n%s", diff)
			}
			if got := len(refused(plan)) > 0; got && !fleet.KeepsCapacity(c.policy) {
				t.Errorf("refuses %v: a policy that ignores capacity refuses nothing", refused(plan))
			}
		})
	}
}

// Two front-ends each take the pool between them for their own.
func TestLocalOverloadsWhatIsNearToMany(t *testing.T) {
	s := talk()
	for _, f := range []fleet.FrontEndID{"A", "C"} {
		s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: f, Pool: "B"}] = 0.001
		s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: f, Pool: f2p(f)}] = 0.120
		ask(s, f, "chat", 60)
	}
	ask(s, "B", "chat", 0)
	if got := planBy(t, fleet.PolicyLocal, s).Pool("B").Utilisation; math.Abs(got-1.2) > 1e-9 {
		t.Errorf("utilisation of B: %v, want 1.2", got)
	}
	if got := planBy(t, fleet.PolicyOptimal, s).Pool("B").Utilisation; got > 1+1e-6 {
		t.Errorf("optimal, utilisation of B: %v, want 1 at most", got)
	}
}

// f2p is the pool at home of a front-end.
func f2p(f fleet.FrontEndID) fleet.PoolID { return fleet.PoolID(f) }

// The second tick of the feedback loop, by hand. All shares were a third.
func TestProportionalCorrects(t *testing.T) {
	type pools = map[fleet.PoolID]float64
	seen := func(ttft float64) fleet.PoolSignals {
		return fleet.PoolSignals{TTFTSeconds: fleet.Reading{Value: ttft, At: noon}}
	}
	measured := func(s *fleet.State, a, b, c float64) {
		s.Pools["A"], s.Pools["B"], s.Pools["C"] = fleet.PoolState{Signals: seen(a)}, fleet.PoolState{Signals: seen(b)}, fleet.PoolState{Signals: seen(c)}
	}
	planned := func(u float64) float64 { return 0.2 + 0.05*u }
	profileMean := (2*planned(250./300) + planned(250./240)) / 3
	factor := func(score, mean float64) float64 { return 1 + 0.5*(mean-score)/mean }
	for name, c := range map[string]struct {
		change func(*fleet.State)
		want   pools // in any sum
	}{
		// The mean of 250, 500 and 250 ms is 333: B is 50 % above it, the others 25 % below.
		"a pool is slow": {func(s *fleet.State) { measured(s, 0.25, 0.5, 0.25) }, pools{"A": 1.125, "B": 0.75, "C": 1.125}},
		// However slow, a quarter of the weight at most.
		"a pool is very slow": {func(s *fleet.State) { measured(s, 0.1, 9.8, 0.1) }, pools{"A": 1.25, "B": 0.75, "C": 1.25}},
		"where nothing is measured, the profile at the load that was planned": {
			func(*fleet.State) {},
			pools{"A": factor(planned(250./300), profileMean), "B": factor(planned(250./300), profileMean), "C": factor(planned(250./240), profileMean)},
		},
		"or at the load that is measured": {func(s *fleet.State) {
			for i, p := range []fleet.PoolID{"A", "B", "C"} {
				s.Pools[p] = fleet.PoolState{Signals: fleet.PoolSignals{Load: fleet.Reading{Value: []float64{0, 2, 4}[i], At: noon}}}
			}
		}, pools{"A": factor(0.2, 0.3), "B": factor(0.3, 0.3), "C": factor(0.4, 0.3)}},
		"what is stale is not measured": {func(s *fleet.State) {
			measured(s, planned(250./300), planned(250./300), 9)
			p := s.Pools["C"]
			p.Signals.TTFTSeconds.Stale = true
			s.Pools["C"] = p
		}, pools{"A": factor(planned(250./300), profileMean), "B": factor(planned(250./300), profileMean), "C": factor(planned(250./240), profileMean)}},
		"the declared fleet rules": {func(s *fleet.State) {
			measured(s, 0.25, 0.5, 0.25)
			s.Fleet.Options.DeclaredOnly = true
		}, pools{"A": factor(planned(250./300), profileMean), "B": factor(planned(250./300), profileMean), "C": factor(planned(250./240), profileMean)}},
		// 200 tokens at 10 and 20 ms are 2 and 4 s, with 200 ms of TTFT 2.2 and 4.2. A tells
		// nothing of them and is taken to be as fast as the fastest.
		"a pool decodes slowly": {func(s *fleet.State) {
			measured(s, 0.2, 0.2, 0.2)
			for p, tbt := range map[fleet.PoolID]float64{"B": 0.02, "C": 0.01} {
				st := s.Pools[p]
				st.Signals.Engines = map[fleet.EngineID]fleet.EngineSignals{fleet.EngineID(p + ":1"): {TBTSeconds: fleet.Reading{Value: tbt, At: noon}}}
				s.Pools[p] = st
			}
		}, pools{"A": factor(2.2, 8.6/3), "B": factor(4.2, 8.6/3), "C": factor(2.2, 8.6/3)}},
		"as front-ends see it": {func(s *fleet.State) {
			measured(s, 0.2, 0.2, 0.2)
			for p, tbt := range map[fleet.PoolID]float64{"A": 0.01, "B": 0.02, "C": 0.01} {
				st := s.Pools[p]
				st.Signals.TBTSeconds = fleet.Reading{Value: tbt, At: noon}
				st.Signals.Engines = map[fleet.EngineID]fleet.EngineSignals{fleet.EngineID(p + ":1"): {TBTSeconds: fleet.Reading{Value: 1, At: noon}}}
				s.Pools[p] = st
			}
		}, pools{"A": factor(2.2, 8.6/3), "B": factor(4.2, 8.6/3), "C": factor(2.2, 8.6/3)}},
		"an engine comes back": {func(s *fleet.State) {
			measured(s, 0.2, 0.2, 0.2)
			for i := range s.Previous.Routes {
				s.Previous.Routes[i].Shares = []fleet.Share{{Pool: "A", Share: 0.75}, {Pool: "B", Share: 0.25}}
			}
		}, pools{"A": 0.75, "B": 0.25, "C": 0.02 / 3}},
		"a pool goes": {func(s *fleet.State) {
			measured(s, 0.2, 0.2, 0.2)
			st := s.Pools["C"]
			st.Engines = map[fleet.EngineID]fleet.Readiness{"C:1": fleet.Unready, "C:2": fleet.Unready}
			s.Pools["C"] = st
		}, pools{"A": 1, "B": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := after(t, fleet.PolicyEven, talk())
			c.change(s)
			sum := 0.0
			for _, x := range c.want {
				sum += x
			}
			for p := range c.want {
				c.want[p] /= sum
			}
			if diff := cmp.Diff(c.want, shares(planBy(t, fleet.PolicyProportional, s), fromB), near(1e-9)); diff != "" {
				t.Errorf("B's shares (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWaterfallServesPriorities(t *testing.T) {
	s := twoClasses(-1, fleet.Tokens{})
	ask(s, "B", "batch", 100) // 350 in all, of 280
	plan := planBy(t, fleet.PolicyWaterfall, s)
	if diff := cmp.Diff(map[fleet.Stream]float64{{FrontEnd: "B", Class: "batch"}: 70}, refused(plan), near(1e-9)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if want := "capacity is short: refusing 70 RPS of batch (B 70); full pools: A, B, C"; plan.Status != fleet.Shedding || plan.Why != want {
		t.Errorf("status %s, why %q, want %q", plan.Status, plan.Why, want)
	}
}

// Front-ends that are as far from a pool as one another get equal parts of it.
func TestWaterfallIsFairAmongTheEquallyFar(t *testing.T) {
	s := talk()
	for l := range s.Fleet.Network.RoundTripSeconds {
		s.Fleet.Network.RoundTripSeconds[l] = 0.005
	}
	ask(s, "B", "chat", 230) // 360 in all, of 280
	for id, rps := range refused(planBy(t, fleet.PolicyWaterfall, s)) {
		if part := rps / s.Demand[id].Rps; math.Abs(part-80./360) > 1e-9 {
			t.Errorf("%s: %v of the demand is refused, want %v", id.FrontEnd, part, 80./360)
		}
	}
}

func TestWaterfallRefusesNobodyForDemandInDoubt(t *testing.T) {
	s := talk()
	id := fleet.Stream{FrontEnd: "B", Class: "chat"}
	for doubt, want := range map[float64]struct{ demand, shed float64 }{0: {170, 20}, 15: {155, 5}, 30: {150, 0}} {
		s.Demand[id] = fleet.Demand{Rps: 170, Source: fleet.SourceArrivals, DoubtRps: doubt}
		r := planBy(t, fleet.PolicyWaterfall, s).Route(id)
		if math.Abs(r.DemandRps-want.demand) > 1e-9 || math.Abs(r.ShedRps-want.shed) > 1e-9 {
			t.Errorf("in doubt %v: planned for %v, refused %v, want %+v", doubt, r.DemandRps, r.ShedRps, want)
		}
	}
}

// byEach checks a property of every policy's plan of every state.
func byEach(t *testing.T, property func(t *rapid.T, s *fleet.State, plan *fleet.Plan)) {
	t.Helper()
	for _, policy := range fleet.Policies() {
		t.Run(policy, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := states.Draw(t, "state")
				plan, err := Policies(solve)[policy](s)
				if err != nil {
					t.Fatal(err)
				}
				property(t, s, plan)
			})
		})
	}
}

func TestEveryPolicyRoutesEveryStream(t *testing.T) {
	byEach(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		for _, f := range s.Fleet.FrontEnds {
			for i := range s.Fleet.Classes {
				id := fleet.Stream{FrontEnd: f.ID, Class: s.Fleet.Classes[i].ID}
				r, served := plan.Route(id), eligible(s, id.Class)
				if (r != nil) != (len(served) > 0) {
					t.Fatalf("%v: route %v, eligible pools %d", id, r, len(served))
				}
				if r == nil {
					continue
				}
				checkRoute(t, s, r, served)
				if ready := slices.Contains(slices.Collect(maps.Values(served)), true); ready && r.ShedRps > 0 && !fleet.KeepsCapacity(plan.Policy) {
					t.Errorf("%v: refuses %v RPS though an engine is ready", id, r.ShedRps)
				}
			}
		}
	})
}

// However full, a plan says what its shares bring.
func TestEveryPolicyReckonsAlike(t *testing.T) {
	byEach(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		work := map[fleet.PoolID]float64{}
		seconds, admitted := 0.0, 0.0
		for _, r := range plan.Routes {
			for _, share := range r.Shares {
				work[share.Pool] += share.Rps * s.Fleet.Pool(share.Pool).Profile.Work(s.TokensOf(s.Fleet.Class(r.Class)))
				seconds += share.Rps * (share.NetworkSeconds + share.EngineSeconds)
				admitted += share.Rps
			}
		}
		if admitted > 0 && math.Abs(plan.MeanSeconds*admitted-seconds) > 1e-9*(1+seconds) {
			t.Errorf("mean %v s over %v RPS, the shares take %v s", plan.MeanSeconds, admitted, seconds)
		}
		over := false
		for _, p := range plan.Pools {
			pool := s.Fleet.Pool(p.Pool)
			capacity := s.Replicas(pool) * (1 - s.Fleet.Options.Headroom)
			if pool.MaxRps > 0 {
				capacity = min(capacity, pool.MaxRps/pool.Profile.CapacityRps)
			}
			want := work[p.Pool] / capacity
			if capacity > 0 && math.Abs(p.Utilisation-want) > 1e-9*(1+want) {
				t.Errorf("%s: utilisation %v, want %v", p.Pool, p.Utilisation, want)
			}
			over = over || p.Utilisation > 1+1e-6
		}
		if over && fleet.KeepsCapacity(plan.Policy) {
			t.Errorf("a pool is above its capacity: %+v", plan.Pools)
		}
		if over && plan.Status == fleet.Routed && !strings.Contains(plan.Why, "above capacity") {
			t.Errorf("a pool is above its capacity, and why says %q", plan.Why)
		}
	})
}

func TestEveryPolicyIsRepeatable(t *testing.T) {
	byEach(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		f := *s.Fleet
		f.Classes, f.Pools, f.FrontEnds = slices.Clone(f.Classes), slices.Clone(f.Pools), slices.Clone(f.FrontEnds)
		slices.Reverse(f.Classes)
		slices.Reverse(f.Pools)
		slices.Reverse(f.FrontEnds)
		again := *s
		again.Fleet = &f
		if diff := cmp.Diff(plan, planBy(t, plan.Policy, &again)); diff != "" {
			t.Errorf("in another order of the same fleet (-first +second):\n%s", diff)
		}
	})
}

func TestWaterfallRefusesOnlyWhatNobodyHasRoomFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := states.Draw(t, "state")
		plan := planBy(t, fleet.PolicyWaterfall, s)
		for i := range plan.Routes {
			high := &plan.Routes[i]
			if high.ShedRps < 1e-6 {
				continue
			}
			for pool, ready := range eligible(s, high.Class) {
				if p := plan.Pool(pool); ready && p.Utilisation < 1-1e-6 {
					t.Errorf("%s at %s: refuses %v RPS while %s is at %v", high.Class, high.FrontEnd, high.ShedRps, pool, p.Utilisation)
				}
			}
			for j := range plan.Routes {
				if low := &plan.Routes[j]; s.Fleet.Class(low.Class).Priority < s.Fleet.Class(high.Class).Priority {
					checkOrder(t, s, high, low)
				}
			}
		}
	})
}

// Where a policy routes all demand within capacity, optimal does so at no more cost.
// The cost is that of the program, whose pieces lie above the curve of the profile.
// Limits that only optimal heeds make it dearer, and are left out.
func TestNoPolicyIsCheaperThanOptimal(t *testing.T) {
	compared := 0
	byEach(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		s.Fleet.Limits = nil
		for i := range s.Fleet.Pools {
			s.Fleet.Pools[i].MinRps = 0
		}
		plan = planBy(t, plan.Policy, s)
		if len(refused(plan)) > 0 || slices.ContainsFunc(plan.Pools, func(p fleet.PoolPlan) bool { return p.Utilisation > 1 }) {
			return
		}
		p := newProgram(newModel(s))
		best, err := p.solve(solve)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.costOf(plan); got < best.Objective-1e-6*(1+math.Abs(best.Objective)) {
			t.Errorf("costs %v, less than the optimum's %v", got, best.Objective)
		}
		compared++
	})
	t.Logf("%d plans compared", compared)
	if compared < 60 {
		t.Errorf("%d plans compared: too few", compared)
	}
}

// costOf is what the program says of a plan that refuses nothing: of columns that do
// the same, the cheapest are filled first.
func (p *program) costOf(plan *fleet.Plan) float64 {
	cost := 0.0
	fill := func(column int, left *float64) {
		c := &p.Columns[column]
		x := min(*left, c.Upper)
		*left -= x
		cost += x * c.Cost
	}
	left, work := map[[2]int]*float64{}, make([]float64, len(p.model.pools))
	for _, f := range p.flows {
		st := p.model.streams[f.stream]
		o, key := st.options[f.option], [2]int{f.stream, f.option}
		if left[key] == nil {
			rps := plan.Route(st.id).ShareOf(o.pool.ID) * st.demand
			left[key] = &rps
			work[o.pool.index] += o.work * rps
		}
		fill(f.column, left[key])
	}
	for _, f := range p.fills {
		fill(f.column, &work[f.pool])
	}
	return cost
}

func TestPoliciesRefuseBadStates(t *testing.T) {
	for _, policy := range fleet.Policies() {
		s := talk()
		ask(s, "B", "chat", math.NaN())
		if plan, err := Policies(solve)[policy](s); err == nil || !strings.Contains(err.Error(), "demand of chat at B") {
			t.Errorf("%s: plan %v, error %v, want one about the demand", policy, plan, err)
		}
	}
}

func TestLocalKeepsTheSolversError(t *testing.T) {
	fails := func(*lp.Program) (*lp.Solution, error) { return nil, lp.ErrLimit }
	if _, err := Policies(fails)[fleet.PolicyLocal](talk()); !errors.Is(err, lp.ErrLimit) || !strings.Contains(err.Error(), "front-end A") {
		t.Errorf("error %v, want %v at front-end A", err, lp.ErrLimit)
	}
}

func TestPoliciesWithoutAReadyEngine(t *testing.T) {
	for _, policy := range fleet.Policies() {
		s := after(t, policy, talk())
		for _, p := range s.Fleet.Pools {
			ready(s, p.ID, fleet.Unready)
		}
		had := shares(s.Previous, fromB)
		plan := planBy(t, policy, s)
		if diff := cmp.Diff(had, shares(plan, fromB), near(1e-12)); diff != "" {
			t.Errorf("%s: B's shares (-before +after):\n%s", policy, diff)
		}
		if plan.Status != fleet.Shedding || !strings.HasPrefix(plan.Why, "no engine is ready: refusing 250 RPS") {
			t.Errorf("%s: status %s, why %q", policy, plan.Status, plan.Why)
		}
	}
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// What levels say of a pool's health depends on both: the plan knows by which health it
// was made, and a policy heeds that or does not.
func TestWhichPoliciesHeedHealth(t *testing.T) {
	for _, policy := range fleet.Policies() {
		well, sick := talk(), talk()
		sick.Pools = map[fleet.PoolID]fleet.PoolState{"A": {Health: 0.5}}
		before, plan := planBy(t, policy, well), planBy(t, policy, sick)
		if got := plan.Pool("A").Health; got != 0.5 {
			t.Errorf("%s: the plan says health %v, want 0.5", policy, got)
		}
		stream := fleet.Stream{FrontEnd: "A", Class: "chat"}
		less := plan.Route(stream).ShareOf("A") < before.Route(stream).ShareOf("A")-1e-9
		if less != fleet.HeedsCapacity(policy) {
			t.Errorf("%s: a half-healthy pool gets less: %v, want %v", policy, less, !less)
		}
	}
}

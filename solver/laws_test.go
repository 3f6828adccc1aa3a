package solver

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/fleet"
)

// objective is the least cost of a state, shed prices and churn included.
func objective(t rapid.TB, s *fleet.State) float64 {
	t.Helper()
	solution, err := newProgram(newModel(s)).solve(solve)
	if err != nil {
		t.Fatal(err)
	}
	return solution.Objective
}

// law checks a property of every state and its plan.
func law(t *testing.T, property func(t *rapid.T, s *fleet.State, plan *fleet.Plan)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		s := states.Draw(t, "state")
		s.Fleet.Options.MinShare = rapid.SampledFrom([]float64{0, 0.05}).Draw(t, "least share")
		plan, err := Plan(s, solve)
		if err != nil {
			t.Fatal(err)
		}
		property(t, s, plan)
	})
}

func TestEveryStreamIsRouted(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		anyShed := false
		for _, f := range s.Fleet.FrontEnds {
			for i := range s.Fleet.Classes {
				id := fleet.Stream{FrontEnd: f.ID, Class: s.Fleet.Classes[i].ID}
				r := plan.Route(id)
				served := eligible(s, id.Class)
				if (r != nil) != (len(served) > 0) {
					t.Fatalf("%v: route %v, eligible pools %d", id, r, len(served))
				}
				if r == nil {
					anyShed = anyShed || s.Demand[id].Rps > 0
					continue
				}
				anyShed = anyShed || r.ShedRps > 0
				if s.Demand[id].Rps == 0 && (r.ShedRps != 0 || r.Admitted() != 1) {
					t.Errorf("%v: refuses %v RPS of what nobody asked for", id, r.ShedRps)
				}
				checkRoute(t, s, r, served)
			}
		}
		if (plan.Status == fleet.Shedding) != anyShed || (plan.Why != "") != anyShed {
			t.Errorf("status %s, why %q, something refused: %v", plan.Status, plan.Why, anyShed)
		}
	})
}

func eligible(s *fleet.State, id fleet.ClassID) map[fleet.PoolID]bool {
	out := map[fleet.PoolID]bool{} // the value: an engine may be given traffic
	for i := range s.Fleet.Pools {
		if p := &s.Fleet.Pools[i]; s.Fleet.Class(id).Eligible(p) {
			out[p.ID] = s.ReadyEngines(p) > 0
		}
	}
	return out
}

func checkRoute(t *rapid.T, s *fleet.State, r *fleet.Route, served map[fleet.PoolID]bool) {
	anyReady := slices.Contains(slices.Collect(maps.Values(served)), true)
	sum, rate := 0.0, 0.0
	for _, share := range r.Shares {
		sum += share.Share
		rate += share.Rps
		ready, ok := served[share.Pool]
		if !ok {
			t.Errorf("%s at %s: a share for %s, which is not eligible", r.Class, r.FrontEnd, share.Pool)
		}
		if anyReady && !ready {
			t.Errorf("%s at %s: a share for %s, which is not ready", r.Class, r.FrontEnd, share.Pool)
		}
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("%s at %s: shares sum to %v", r.Class, r.FrontEnd, sum)
	}
	if want := r.DemandRps - r.ShedRps; math.Abs(rate-want) > 1e-9 {
		t.Errorf("%s at %s: %v RPS over all pools, admitted %v", r.Class, r.FrontEnd, rate, want)
	}
	if !anyReady && r.ShedRps != r.DemandRps {
		t.Errorf("%s at %s: admitted %v without a ready engine", r.Class, r.FrontEnd, r.Admitted())
	}
	if want := s.Demand[fleet.Stream{FrontEnd: r.FrontEnd, Class: r.Class}].Rps; r.DemandRps != want {
		t.Errorf("%s at %s: demand %v, want %v", r.Class, r.FrontEnd, r.DemandRps, want)
	}
}

func TestCapacityIsKept(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		work, rate := map[fleet.PoolID]float64{}, map[fleet.PoolID]float64{}
		for _, r := range plan.Routes {
			for _, share := range r.Shares {
				profile := &s.Fleet.Pool(share.Pool).Profile
				work[share.Pool] += share.Rps * profile.Work(s.TokensOf(s.Fleet.Class(r.Class)))
				rate[share.Pool] += share.Rps
			}
		}
		for _, p := range plan.Pools {
			pool := s.Fleet.Pool(p.Pool)
			capacity := s.Replicas(pool) * (1 - s.Fleet.Options.Headroom)
			if pool.MaxRps > 0 {
				capacity = min(capacity, pool.MaxRps/pool.Profile.CapacityRps)
			}
			if work[p.Pool] > capacity*(1+1e-6) {
				t.Errorf("%s: work %v, capacity %v", p.Pool, work[p.Pool], capacity)
			}
			want := work[p.Pool] / capacity
			if capacity > 0 && math.Abs(p.Utilisation-want) > 1e-9 {
				t.Errorf("%s: utilisation %v, want %v", p.Pool, p.Utilisation, want)
			}
			if math.Abs(p.Rps-rate[p.Pool]) > 1e-9 || math.Abs(p.CapacityRps*p.Utilisation-p.Rps) > 1e-6 {
				t.Errorf("%+v: the shares bring %v RPS", p, rate[p.Pool])
			}
		}
	})
}

func TestSameStateSamePlan(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		f := *s.Fleet
		f.Classes, f.Pools, f.FrontEnds = slices.Clone(f.Classes), slices.Clone(f.Pools), slices.Clone(f.FrontEnds)
		slices.Reverse(f.Classes)
		slices.Reverse(f.Pools)
		slices.Reverse(f.FrontEnds)
		again := *s
		again.Fleet = &f
		got, err := Plan(&again, solve)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plan, got); diff != "" {
			t.Errorf("in another order of the same fleet (-first +second):\n%s", diff)
		}
	})
}

// The price of capacity is a slope of a convex function of it, so the line
// through the present cost lies below the function everywhere.
func TestCapacityPrices(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		now := objective(t, s)
		p := rapid.SampledFrom(plan.Pools).Draw(t, "pool")
		if s.Fleet.Pool(p.Pool).MaxRps > 0 {
			return // a larger pool would not be allowed more
		}
		for _, factor := range []float64{0.5, 0.99, 1.01, 2} {
			other := *s
			other.Pools = maps.Clone(s.Pools)
			st := other.Pools[p.Pool]
			st.CapacityFactor = factor * orOne(st.CapacityFactor)
			other.Pools[p.Pool] = st
			cost := objective(t, &other)
			margin := 1e-6 * (1 + math.Abs(now) + math.Abs(cost))
			if line := now - p.PriceSeconds*p.CapacityRps*(factor-1); cost < line-margin {
				t.Errorf("%s at %v of its capacity costs %v, its price promises %v", p.Pool, factor, cost, line)
			}
			if factor > 1 && cost > now+margin {
				t.Errorf("%s at %v of its capacity costs %v, more than %v", p.Pool, factor, cost, now)
			}
		}
	})
}

func orOne(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}

// Twice the demand on twice the replicas is the same fleet twice.
func TestScale(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, _ *fleet.Plan) {
		once, twice := *s, *s
		once.Demand, twice.Demand = map[fleet.Stream]fleet.Demand{}, map[fleet.Stream]fleet.Demand{}
		twice.Pools = map[fleet.PoolID]fleet.PoolState{}
		for _, f := range s.Fleet.FrontEnds {
			for _, c := range s.Fleet.Classes {
				rps := max(1, s.Demand[fleet.Stream{FrontEnd: f.ID, Class: c.ID}].Rps)
				ask(&once, f.ID, c.ID, rps)
				ask(&twice, f.ID, c.ID, 2*rps)
			}
		}
		for id, st := range s.Pools {
			st.CapacityFactor = 2 * orOne(st.CapacityFactor)
			twice.Pools[id] = st
		}
		f := *s.Fleet
		f.Pools = slices.Clone(f.Pools)
		for i := range f.Pools {
			f.Pools[i].MinRps *= 2
			f.Pools[i].MaxRps *= 2
		}
		twice.Fleet = &f
		got, want := objective(t, &twice), 2*objective(t, &once)
		if math.Abs(got-want) > 1e-7*(1+math.Abs(want)) {
			t.Errorf("twice the fleet costs %v, want %v", got, want)
		}
	})
}

func TestNoHigherPriorityIsRefusedFirst(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		for i := range plan.Routes {
			high := &plan.Routes[i]
			if high.ShedRps < 1e-6 {
				continue
			}
			for j := range plan.Routes {
				low := &plan.Routes[j]
				if s.Fleet.Class(low.Class).Priority < s.Fleet.Class(high.Class).Priority {
					checkOrder(t, s, high, low)
				}
			}
		}
	})
}

func checkOrder(t *rapid.T, s *fleet.State, high, low *fleet.Route) {
	served := eligible(s, high.Class)
	for _, share := range low.Shares {
		if served[share.Pool] && share.Rps > 1e-6 {
			t.Errorf("%s refuses %v RPS at %s while %s of lower priority gets %v RPS of %s",
				high.Class, high.ShedRps, high.FrontEnd, low.Class, share.Rps, share.Pool)
		}
	}
}

// What the order above follows from: per unit of a pool's work, the cheapest
// refusal of a higher priority costs more than the dearest of a lower one and
// any latency.
func TestPricesNeverOverlapAtAPool(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, _ *fleet.Plan) {
		m := newModel(s)
		perWork := func(c *class, o option, piece int) float64 { return c.shedPrice(piece) / o.work }
		for _, high := range m.classes {
			for _, low := range m.classes {
				for _, o := range high.options {
					at := slices.IndexFunc(low.options, func(x option) bool { return x.pool == o.pool })
					if low.Priority >= high.Priority || at < 0 || !o.ready() {
						continue
					}
					latency := m.latency() * high.size / o.work
					if a, b := perWork(high, o, 0), perWork(low, low.options[at], len(pieces)-1); a < b+latency {
						t.Errorf("at %s refusing %s costs %v, refusing %s up to %v, latency %v", o.pool.ID, high.ID, a, low.ID, b, latency)
					}
				}
			}
		}
	})
}

func TestSegments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawer{t}
		p := fleet.Profile{
			CapacityRps: d.between(1, 40, "capacity"),
			Reference:   fleet.Tokens{Prompt: 1000, Output: 200},
			TTFT:        d.curve(0.1, 1),
			TBT:         d.curve(0.005, 0.02),
		}
		usable := d.between(0.3, 1, "usable")
		got := segments(&p, usable)
		end, height := 0.0, 0.0
		for i, s := range got {
			if i > 0 && s.slope <= got[i-1].slope {
				t.Fatalf("slopes do not rise: %v", got)
			}
			end += s.width
			height += s.width * s.slope
			if at := waiting(&p, end); height > at+1e-9 {
				t.Errorf("at %v the segments reach %v, above the curve's %v", end, height, at)
			}
		}
		if math.Abs(end-usable) > 1e-12 || math.Abs(height-waiting(&p, usable)) > 1e-9 {
			t.Errorf("segments end at %v, %v, want %v, %v", end, height, usable, waiting(&p, usable))
		}
		if len(got) > maxSegments {
			t.Errorf("%d segments, want at most %d", len(got), maxSegments)
		}
	})
}

// A pool that nobody would use changes no cost, and no other pool's share.
func TestAUselessPoolChangesNothing(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		f := *s.Fleet
		far := f.Pools[0]
		far.ID, far.Region = "zzz", "west"
		far.Models = []string{"small", "large"}
		far.Engines = engines("zzz", 2)
		far.Profile.TTFT = fleet.Curve{{Seconds: 1000}}
		far.Profile.TBT = nil
		far.MinRps, far.MaxRps, far.PriceSeconds = 0, 0, 0
		f.Pools = append(slices.Clone(f.Pools), far)
		f.Network.RoundTripSeconds = maps.Clone(f.Network.RoundTripSeconds)
		for _, fe := range f.FrontEnds {
			f.Network.RoundTripSeconds[fleet.Link{FrontEnd: fe.ID, Pool: "zzz"}] = 1000
		}
		if plan.ShedRps() > 0 || len(f.Limits) > 0 || len(plan.Routes) != len(f.FrontEnds)*len(f.Classes) {
			return // it would be of use
		}
		other := *s
		other.Fleet = &f
		if was, is := latencyCost(t, s), latencyCost(t, &other); math.Abs(is-was) > 1e-6*(1+math.Abs(was)) {
			t.Errorf("with a useless pool the plan costs %v, without it %v", is, was)
		}
	})
}

// latencyCost is the least cost of a state without what limits and refusals are priced at.
func latencyCost(t rapid.TB, s *fleet.State) float64 {
	t.Helper()
	p := newProgram(newModel(s))
	solution, err := p.solve(solve)
	if err != nil {
		t.Fatal(err)
	}
	cost := solution.Objective
	for _, b := range p.bounds {
		cost -= p.Columns[b.yield].Cost * solution.X[b.yield]
	}
	for _, c := range p.sheds {
		cost -= p.Columns[c.column].Cost * solution.X[c.column]
	}
	return cost
}

// Whatever is short, streams of a class are refused the same fraction of what they ask
// for, but where an operator's limits speak of one.
func TestOfAClassAllAreRefusedAlike(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		m, fractions := newModel(s), map[fleet.ClassID][]float64{}
		for _, st := range m.streams {
			if r := plan.Route(st.id); r.DemandRps > 0 && !m.bounded(st) {
				fractions[st.id.Class] = append(fractions[st.id.Class], r.ShedRps/r.DemandRps)
			}
		}
		for class, all := range fractions {
			if least, most := slices.Min(all), slices.Max(all); most-least > 1e-6 {
				t.Errorf("%s: between %v and %v of the demand is refused", class, least, most)
			}
		}
	})
}

// Names decide nothing but ties.
func TestRenamingChangesNoCost(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, _ *fleet.Plan) {
		to := func(id fleet.PoolID) fleet.PoolID { return fleet.PoolID("n" + string(rune('z'-id[len(id)-1]+'0'))) }
		f := *s.Fleet
		f.Pools, f.Limits = slices.Clone(f.Pools), slices.Clone(f.Limits)
		other := *s
		other.Fleet, other.Pools, other.Previous = &f, map[fleet.PoolID]fleet.PoolState{}, nil
		for i := range f.Pools {
			other.Pools[to(f.Pools[i].ID)] = s.Pools[f.Pools[i].ID]
			f.Pools[i].ID = to(f.Pools[i].ID)
		}
		for i := range f.Limits {
			f.Limits[i].Pool = to(f.Limits[i].Pool)
		}
		rename := func(links map[fleet.Link]float64) map[fleet.Link]float64 {
			out := map[fleet.Link]float64{}
			for l, v := range links {
				out[fleet.Link{FrontEnd: l.FrontEnd, Pool: to(l.Pool)}] = v
			}
			return out
		}
		f.Network.RoundTripSeconds = rename(f.Network.RoundTripSeconds)
		other.Network, other.NetworkNoise = rename(s.Network), rename(s.NetworkNoise)
		same := *s
		same.Previous = nil
		if was, is := objective(t, &same), objective(t, &other); math.Abs(is-was) > 1e-7*(1+math.Abs(was)) {
			t.Errorf("by other names the plan costs %v, not %v", is, was)
		}
	})
}

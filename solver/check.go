package solver

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"weir/fleet"
	"weir/solver/lp"
)

// problems gathers what is wrong with a state, each under its place.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// number demands a finite number of at least 0.
func (p *problems) number(v float64, format string, args ...any) {
	if !natural(v) {
		p.add("%s: %v: want a finite number, at least 0", fmt.Sprintf(format, args...), v)
	}
}

func natural(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }

// check refuses a state with numbers that no plan can be made of.
func check(s *fleet.State) error {
	if s.Fleet == nil {
		return errors.New("no fleet")
	}
	var p problems
	p.options(&s.Fleet.Options)
	for i := range s.Fleet.Pools {
		p.pool(s, &s.Fleet.Pools[i])
		p.network(s, &s.Fleet.Pools[i])
	}
	for i := range s.Fleet.Classes {
		p.class(s, &s.Fleet.Classes[i])
	}
	for i := range s.Fleet.FrontEnds {
		p.demand(s, s.Fleet.FrontEnds[i].ID)
	}
	p.limits(s.Fleet)
	p.brakes(s.Brakes)
	p.noise(s)
	p.previous(s.Previous)
	return errors.Join(p...)
}

func (p *problems) options(o *fleet.Options) {
	if !(o.Headroom >= 0 && o.Headroom < 1) {
		p.add("headroom: %v: want 0 or more and below 1", o.Headroom)
	}
	p.number(o.ChurnSeconds, "churn, seconds")
	p.number(o.MinShare, "least share")
}

func (p *problems) pool(s *fleet.State, pool *fleet.Pool) {
	profile, believed := &pool.Profile, s.Pools[pool.ID]
	if !natural(profile.CapacityRps) || profile.CapacityRps == 0 {
		p.add("pool %s: capacity: %v RPS: want a finite number above 0", pool.ID, profile.CapacityRps)
	}
	p.number(pool.PriceSeconds, "pool %s: price, seconds", pool.ID)
	p.number(pool.MinRps, "pool %s: least RPS", pool.ID)
	p.number(pool.MaxRps, "pool %s: most RPS", pool.ID)
	p.number(believed.Health, "pool %s: health", pool.ID)
	p.number(believed.CapacityFactor, "pool %s: capacity factor", pool.ID)
	p.number(profile.OutputTokenCost, "pool %s: output token cost", pool.ID)
	p.tokens(profile.Reference, "pool %s: reference", pool.ID)
	p.curve(profile.TTFT, "pool %s: TTFT", pool.ID)
	p.curve(profile.TBT, "pool %s: TBT", pool.ID)
}

func (p *problems) tokens(t fleet.Tokens, format string, id any) {
	p.number(t.Prompt, format+": prompt tokens", id)
	p.number(t.Output, format+": output tokens", id)
	p.number(t.Cached, format+": cached tokens", id)
}

func (p *problems) curve(c fleet.Curve, format string, id any) {
	for i, point := range c {
		p.number(point.Utilisation, format+": point %d: utilisation", id, i+1)
		p.number(point.Seconds, format+": point %d: seconds", id, i+1)
		if i > 0 && !(point.Utilisation > c[i-1].Utilisation) {
			p.add(format+": point %d: utilisation %v does not rise", id, i+1, point.Utilisation)
		}
	}
}

func (p *problems) class(s *fleet.State, c *fleet.Class) {
	p.tokens(s.TokensOf(c), "class %s", c.ID)
	p.number(c.Weights.TTFT, "class %s: weight of TTFT", c.ID)
	p.number(c.Weights.TBT, "class %s: weight of TBT", c.ID)
	for i := range s.Fleet.Pools {
		pool := &s.Fleet.Pools[i]
		if work := pool.Profile.Work(s.TokensOf(c)); c.Eligible(pool) && !(work > 0 && natural(work)) {
			p.add("class %s: a request is %v engine-seconds of work at pool %s: want a finite number above 0", c.ID, work, pool.ID)
		}
	}
}

func (p *problems) demand(s *fleet.State, id fleet.FrontEndID) {
	for i := range s.Fleet.Classes {
		stream := fleet.Stream{FrontEnd: id, Class: s.Fleet.Classes[i].ID}
		p.number(s.Demand[stream].Rps, "demand of %s at %s, RPS", stream.Class, id)
		p.number(s.Demand[stream].DoubtRps, "doubt of the demand of %s at %s, RPS", stream.Class, id)
	}
}

// network checks the links to a pool that some class may use. A round trip that
// nobody stated is unknown, and unknown is not 0.
func (p *problems) network(s *fleet.State, pool *fleet.Pool) {
	if !slices.ContainsFunc(s.Fleet.Classes, func(c fleet.Class) bool { return c.Eligible(pool) }) {
		return
	}
	for i := range s.Fleet.FrontEnds {
		link := fleet.Link{FrontEnd: s.Fleet.FrontEnds[i].ID, Pool: pool.ID}
		_, declared := s.Fleet.Network.RoundTripSeconds[link]
		_, measured := s.Network[link]
		if !declared && !(measured && s.Fleet.Network.Measured) {
			p.add("network %s to %s: no round trip is known: declare one", link.FrontEnd, link.Pool)
		} else if rtt := s.RoundTrip(link); !natural(rtt) {
			p.number(rtt, "network %s to %s, seconds", link.FrontEnd, link.Pool)
		}
	}
}

func (p *problems) limits(f *fleet.Fleet) {
	for _, l := range f.Limits {
		if !(l.Min >= 0 && l.Min <= l.Max && l.Max <= 1) {
			p.add("limit of %s at %s: %v to %v of the traffic: want 0 to 1, the least first", l.Pool, l.FrontEnd, l.Min, l.Max)
		}
	}
}

func (p *problems) brakes(all []fleet.Brake) {
	for i := range all {
		b := &all[i]
		if !(b.Share >= 0 && b.Share <= 1) {
			p.add("%s: share %v: want 0 to 1", b, b.Share)
		}
		p.number(b.Rps, "%s, RPS", b)
	}
}

func (p *problems) noise(s *fleet.State) {
	p.number(s.ElapsedSeconds, "time since the previous plan, seconds")
	for link, noise := range s.NetworkNoise {
		p.number(noise, "noise of the network %s to %s, seconds", link.FrontEnd, link.Pool)
	}
	for id, t := range s.Tokens {
		p.tokens(t.Mean, "class %s: believed size", id)
	}
}

func (p *problems) previous(plan *fleet.Plan) {
	if plan == nil {
		return
	}
	for i := range plan.Routes {
		r := &plan.Routes[i]
		p.number(r.DemandRps, "previous plan: %s at %s: demand", r.Class, r.FrontEnd)
		p.number(r.ShedRps, "previous plan: %s at %s: shed", r.Class, r.FrontEnd)
		p.number(r.SettledSeconds, "previous plan: %s at %s: settled", r.Class, r.FrontEnd)
		for _, s := range r.Shares {
			p.number(s.Share, "previous plan: %s at %s: share of %s", r.Class, r.FrontEnd, s.Pool)
		}
	}
}

// check holds a plan to what it promises, whatever the solver answered.
func (r *routing) check(plan *fleet.Plan) error {
	var p problems
	for i, pool := range r.model.pools {
		full := pool.capacity*(1+lp.Tolerance) + lp.Tolerance
		if !(r.work[i] <= full) && fleet.KeepsCapacity(plan.Policy) {
			p.add("pool %s: %v engine-seconds per second of work: it has %v", pool.ID, r.work[i], pool.capacity)
		}
		got := &plan.Pools[i]
		for _, v := range []float64{got.CapacityRps, got.Rps, got.Utilisation, got.PriceSeconds} {
			p.number(v, "pool %s", pool.ID)
		}
	}
	p.number(plan.MeanSeconds, "mean seconds")
	for i := range plan.Routes {
		p.route(&plan.Routes[i])
	}
	return errors.Join(p...)
}

func (p *problems) route(r *fleet.Route) {
	sum := 0.0
	for _, s := range r.Shares {
		sum += s.Share
		for _, v := range []float64{s.Share, s.Rps, s.NetworkSeconds, s.EngineSeconds} {
			p.number(v, "%s at %s: %s", r.Class, r.FrontEnd, s.Pool)
		}
	}
	if !(math.Abs(sum-1) <= 1e-9) {
		p.add("%s at %s: shares sum to %v", r.Class, r.FrontEnd, sum)
	}
	if !(r.ShedRps >= 0 && r.ShedRps <= r.DemandRps) {
		p.add("%s at %s: refuses %v of %v RPS", r.Class, r.FrontEnd, r.ShedRps, r.DemandRps)
	}
}

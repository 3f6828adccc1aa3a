package solver

import (
	"cmp"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"weir/fleet"
)

// states draws small fleets of every kind: SKUs and models that differ, engines
// that are down, demand from nothing to more than everything, previous plans.
var states = rapid.Custom(func(t *rapid.T) *fleet.State {
	d := drawer{t}
	s := &fleet.State{
		Fleet: &fleet.Fleet{
			Network: fleet.Network{Measured: d.flag("measured"), RoundTripSeconds: map[fleet.Link]float64{}},
			Options: fleet.Options{Headroom: d.between(0, 0.4, "headroom"), ChurnSeconds: d.between(0, 0.02, "churn")},
		},
		Demand:       map[fleet.Stream]fleet.Demand{},
		Pools:        map[fleet.PoolID]fleet.PoolState{},
		Network:      map[fleet.Link]float64{},
		NetworkNoise: map[fleet.Link]float64{},
		Tokens:       map[fleet.ClassID]fleet.TokenBelief{},
	}
	for i := range d.upTo(5, "pools") {
		d.pool(s, fleet.PoolID(fmt.Sprintf("pool%d", i)))
	}
	for i := range d.upTo(3, "classes") {
		s.Fleet.Classes = append(s.Fleet.Classes, d.class(fleet.ClassID(fmt.Sprintf("class%d", i))))
	}
	for i := range d.upTo(4, "front-ends") {
		d.frontEnd(s, fleet.FrontEndID(fmt.Sprintf("front%d", i)))
	}
	if d.oneOf(3, "limited") {
		d.limits(s)
	}
	if d.flag("previous") {
		d.previous(s)
	}
	return s
})

type drawer struct{ *rapid.T }

// between draws a number of full width, so that ties are rare.
func (d drawer) between(low, high float64, name string) float64 {
	n := rapid.Uint32().Draw(d.T, name)
	return low + (high-low)*float64(n*2654435761)/(1<<32)
}

func (d drawer) flag(name string) bool         { return rapid.Bool().Draw(d.T, name) }
func (d drawer) upTo(n int, name string) int   { return rapid.IntRange(1, n).Draw(d.T, name) }
func (d drawer) oneOf(n int, name string) bool { return rapid.IntRange(1, n).Draw(d.T, name) == 1 }

func (d drawer) pool(s *fleet.State, id fleet.PoolID) {
	p := fleet.Pool{ID: id, Models: []string{"small"}, Region: "east", Engines: engines(id, d.upTo(4, "engines"))}
	if d.flag("large") {
		p.Models = append(p.Models, "large")
	}
	if d.flag("west") {
		p.Region = "west"
	}
	p.Profile = fleet.Profile{
		CapacityRps:     d.between(1, 40, "capacity"),
		Reference:       fleet.Tokens{Prompt: 1000, Output: d.between(50, 300, "reference output")},
		OutputTokenCost: d.between(2, 6, "output token cost"),
		TTFT:            d.curve(0.1, 1),
	}
	if d.flag("cache stated") {
		p.Profile.CacheStated, p.Profile.Reference.Cached = true, d.between(0, 900, "reference cached")
	}
	if d.flag("TBT") {
		p.Profile.TBT = d.curve(0.005, 0.02)
	}
	st := fleet.PoolState{Engines: map[fleet.EngineID]fleet.Readiness{}}
	for _, e := range p.Engines {
		if d.oneOf(4, "unready") {
			st.Engines[e] = fleet.Unready
		}
	}
	if d.flag("health") {
		st.Health, st.CapacityFactor = d.between(0.3, 1, "health"), d.between(0.3, 1.1, "factor")
	}
	if d.oneOf(5, "priced") {
		p.PriceSeconds = d.between(0, 0.1, "price")
	}
	s.Fleet.Pools = append(s.Fleet.Pools, p)
	s.Pools[id] = st
}

// curve rises mostly; a noisy one may fall on the way.
func (d drawer) curve(low, high float64) fleet.Curve {
	seconds, utilisation := d.between(low, high, "seconds"), 0.0
	curve := fleet.Curve{{Utilisation: d.between(0, 0.1, "start"), Seconds: seconds}}
	for range d.upTo(5, "points") {
		utilisation = curve[len(curve)-1].Utilisation + d.between(0.05, 0.5, "step")
		seconds = max(low/2, seconds+d.between(-0.05, 0.5, "rise")*(high-low))
		curve = append(curve, fleet.CurvePoint{Utilisation: utilisation, Seconds: seconds})
	}
	return curve
}

func (d drawer) class(id fleet.ClassID) fleet.Class {
	c := fleet.Class{
		ID:       id,
		Match:    []fleet.Rule{{Model: []string{"small", "large"}[rapid.IntRange(0, 1).Draw(d.T, "model")]}},
		Priority: rapid.IntRange(-1, 1).Draw(d.T, "priority"),
		Weights:  fleet.LatencyWeight{TTFT: d.between(0, 2, "TTFT weight"), TBT: d.between(0, 2, "TBT weight")},
	}
	if d.flag("tokens") {
		c.Tokens = fleet.Tokens{Prompt: d.between(100, 5000, "prompt"), Output: d.between(10, 1000, "output")}
	}
	if d.oneOf(4, "resident") {
		c.Requires.Regions = []string{"west"}
	}
	return c
}

func (d drawer) frontEnd(s *fleet.State, id fleet.FrontEndID) {
	s.Fleet.FrontEnds = append(s.Fleet.FrontEnds, fleet.FrontEnd{ID: id})
	for _, p := range s.Fleet.Pools {
		link := fleet.Link{FrontEnd: id, Pool: p.ID}
		s.Fleet.Network.RoundTripSeconds[link] = d.between(0.001, 0.2, "declared")
		if d.flag("probe") {
			s.Network[link] = d.between(0.001, 0.2, "measured")
		}
	}
	for _, c := range s.Fleet.Classes {
		if !d.oneOf(5, "idle") {
			ask(s, id, c.ID, d.between(1, 60, "demand"))
		}
	}
}

// limits draws an operator's; they may contradict one another.
func (d drawer) limits(s *fleet.State) {
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		if d.oneOf(3, "least") {
			p.MinRps = d.between(0.1, 40, "least RPS")
		}
		if d.oneOf(3, "most") {
			p.MaxRps = p.MinRps + d.between(0.1, 40, "most RPS")
		}
	}
	for range d.upTo(3, "limits") {
		l := fleet.Limit{
			FrontEnd: s.Fleet.FrontEnds[rapid.IntRange(0, len(s.Fleet.FrontEnds)-1).Draw(d.T, "limited front-end")].ID,
			Pool:     s.Fleet.Pools[rapid.IntRange(0, len(s.Fleet.Pools)-1).Draw(d.T, "limited pool")].ID,
			Min:      d.between(0, 0.5, "least share"),
			Max:      d.between(0.5, 1, "most share"),
		}
		if d.flag("of one class") {
			l.Class = s.Fleet.Classes[rapid.IntRange(0, len(s.Fleet.Classes)-1).Draw(d.T, "limited class")].ID
		}
		s.Fleet.Limits = append(s.Fleet.Limits, l)
	}
}

func (d drawer) previous(s *fleet.State) {
	if d.flag("halving") {
		s.Fleet.Options.ChurnHalving = time.Minute
		s.ElapsedSeconds = d.between(0, 10, "elapsed")
	}
	for _, c := range s.Fleet.Classes {
		if d.flag("cached") {
			mean := cmp.Or(c.Tokens, fleet.Tokens{Prompt: 1000, Output: 200})
			mean.Cached = d.between(0, 1000, "cached tokens")
			s.Tokens[c.ID] = fleet.TokenBelief{Mean: mean}
		}
	}
	for link := range s.Network {
		s.NetworkNoise[link] = d.between(0, 0.002, "noise")
	}
	s.Previous = &fleet.Plan{}
	for _, st := range newModel(s).streams {
		r := fleet.Route{FrontEnd: st.id.FrontEnd, Class: st.id.Class, DemandRps: 10, SettledSeconds: d.between(0, 300, "settled")}
		if d.oneOf(6, "refused") {
			r.ShedRps = 10
		}
		parts := make([]float64, len(st.options))
		for i := range parts {
			if d.flag("had") {
				parts[i] = d.between(0, 1, "share")
			}
		}
		for i, share := range normalised(parts) {
			if share > 0 {
				r.Shares = append(r.Shares, fleet.Share{Pool: st.options[i].pool.ID, Share: share})
			}
		}
		s.Previous.Routes = append(s.Previous.Routes, r)
	}
}

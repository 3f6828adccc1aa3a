package config

import (
	"weir/fleet"
)

// limits reads the bounds on what a front-end sends to a pool.
func (r *reader) limits(n node) {
	for i, item := range n.list(maxLimits) {
		m := item.thing("limit", i, "frontEnd", "class", "pool", "min", "max")
		l := fleet.Limit{
			FrontEnd: fleet.FrontEndID(m.must("frontEnd").text()),
			Class:    fleet.ClassID(m.at("class").text()),
			Pool:     fleet.PoolID(m.must("pool").text()),
			Min:      m.at("min").percent(0, 100) / 100,
			Max:      m.at("max").percent(100, 100) / 100,
		}
		r.limitNames(m, &l)
		switch {
		case !m.at("min").present() && !m.at("max").present():
			m.wrong("add min, max or both", "it limits nothing")
		case l.Min > l.Max:
			m.at("min").wrong("keep min below max", "min is more than max")
		}
		r.fleet.Limits = append(r.fleet.Limits, l)
	}
}

// limitNames holds that a limit speaks of what there is.
func (r *reader) limitNames(m mapping, l *fleet.Limit) {
	if l.FrontEnd != "" && len(r.fleet.FrontEnds) > 0 && r.fleet.FrontEnd(l.FrontEnd) == nil {
		m.at("frontEnd").wrong("name a front-end of this file", "there is no front-end %q", l.FrontEnd)
	}
	pool := r.fleet.Pool(l.Pool)
	if l.Pool != "" && len(r.fleet.Pools) > 0 && pool == nil {
		m.at("pool").wrong("name a pool of this file", "there is no pool %q", l.Pool)
	}
	if l.Class == "" || len(r.fleet.Classes) == 0 {
		return
	}
	class := r.fleet.Class(l.Class)
	switch {
	case class == nil:
		m.at("class").wrong("name a class of this file", "there is no class %q", l.Class)
	case pool != nil && !r.doubtful && !class.Eligible(pool):
		m.at("pool").wrong("limit a pool that may serve the class", "pool %q may not serve class %q", l.Pool, l.Class)
	}
}

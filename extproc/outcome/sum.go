package outcome

import (
	"cmp"
	"slices"

	"weir/fleet"
)

// place is where an attempt went.
type place struct {
	class  fleet.ClassID
	pool   fleet.PoolID
	engine fleet.EngineID
}

// places are the engines of each class, and the pools they belong to.
type places map[fleet.ClassID]map[fleet.EngineID]fleet.PoolID

func newPlaces(v *fleet.View) *places {
	all := places{}
	for _, c := range v.Classes {
		engines := map[fleet.EngineID]fleet.PoolID{}
		for _, p := range c.Pools {
			for _, e := range p.Engines {
				engines[e.ID] = p.ID
			}
		}
		all[c.ID] = engines
	}
	return &all
}

func (p *places) find(c fleet.ClassID, e fleet.EngineID) (place, bool) {
	if p == nil {
		return place{}, false
	}
	pool, ok := (*p)[c][e]
	return place{c, pool, e}, ok
}

// sum is what was counted since it was last taken. Views bound it: what they do not
// name never gets here.
type sum struct {
	engines map[place]*fleet.EngineLoad
	classes map[fleet.ClassID]*class
}

// class is what is counted of a class, and learned for good.
type class struct {
	tokens       fleet.TokenLoad
	longestWhole float64 // seconds to the longest recent answer in one piece
	ratios       ratios
}

func newSum() sum {
	return sum{map[place]*fleet.EngineLoad{}, map[fleet.ClassID]*class{}}
}

func (s *sum) engine(p place) *fleet.EngineLoad {
	e := s.engines[p]
	if e == nil {
		e = &fleet.EngineLoad{Engine: p.engine}
		s.engines[p] = e
	}
	return e
}

func (s *sum) class(id fleet.ClassID) *class {
	c := s.classes[id]
	if c == nil {
		c = &class{ratios: newRatios()}
		s.classes[id] = c
	}
	return c
}

// fading is what a second leaves of the longest answer: half in eleven minutes.
const fading = 0.999

func (s *sum) take() []fleet.ClassLoad {
	loads := map[fleet.ClassID]*fleet.ClassLoad{}
	at := func(id fleet.ClassID) *fleet.ClassLoad {
		if loads[id] == nil {
			loads[id] = &fleet.ClassLoad{Class: id}
		}
		return loads[id]
	}
	for id, c := range s.classes {
		c.longestWhole *= fading
		if c.tokens.Requests > 0 {
			at(id).Tokens = c.tokens
			c.tokens = fleet.TokenLoad{}
		}
	}
	for _, p := range s.sorted() {
		add(at(p.class), p.pool, *s.engines[p])
	}
	clear(s.engines)
	out := make([]fleet.ClassLoad, 0, len(loads))
	for _, l := range loads {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b fleet.ClassLoad) int { return cmp.Compare(a.Class, b.Class) })
	return out
}

func (s *sum) sorted() []place {
	all := make([]place, 0, len(s.engines))
	for p := range s.engines {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.pool, b.pool), cmp.Compare(a.engine, b.engine))
	})
	return all
}

// add appends an engine; those of one pool come together.
func add(l *fleet.ClassLoad, pool fleet.PoolID, e fleet.EngineLoad) {
	if n := len(l.Pools); n == 0 || l.Pools[n-1].Pool != pool {
		l.Pools = append(l.Pools, fleet.PoolLoad{Pool: pool})
	}
	last := &l.Pools[len(l.Pools)-1]
	last.Engines = append(last.Engines, e)
}

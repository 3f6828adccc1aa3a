package extproc

import "weir/envoy"

// attempts is how many engines a choice names: the first, and one for each retry
// that Envoy may make, with one to spare for an engine that has just gone.
const attempts = 1 + envoy.Retries + 1

// noShare is the weight of a pool that the plan gives no share: so little that it
// never comes before a pool that has one, and is still there when none is.
const noShare = 1e-30

// choice is where a request may go, the best first. There may be none.
type choice struct {
	engines [attempts]*engine
	n       int
}

func (c *choice) first() *engine { return c.engines[0] }

// add appends an engine that is not there yet, while there is room.
func (c *choice) add(e *engine) {
	if c.n == attempts {
		return
	}
	for _, known := range c.engines[:c.n] {
		if known == e {
			return
		}
	}
	c.engines[c.n] = e
	c.n++
}

// selection is how a key ranks the pools of a class, and the engines of the best.
// Every replica ranks alike, and a change of weights moves no more than it must.
type selection struct {
	class *class
	key   uint64
	pools ranking
	home  *pool   // nil: there is none
	own   *engine // of the key: the first of its home

	ranked ranking // of the home's engines, once somebody has asked
}

// rank picks a pool by weighted rendezvous, then an engine inside it.
func (c *class) rank(key uint64) selection {
	s := selection{class: c, key: key, pools: c.rankPools(key)}
	if s.pools.n > 0 {
		s.home = c.pools[s.pools.best[0]].pool
		s.own = &s.home.engines[s.home.first(key)]
	}
	return s
}

// name is that of the conversation in what is remembered.
func (s *selection) name() uint64 { return s.key ^ s.class.salt }

// best ranks the engines of the home pool; the key's own is the first.
func (s *selection) best() *ranking {
	if s.ranked.n == 0 {
		s.ranked = s.home.rank(s.key)
	}
	return &s.ranked
}

// engine is the one of the home pool that has a place in the ranking.
func (s *selection) engine(place int) *engine { return &s.home.engines[s.best().best[place]] }

// further is the pool that has a place in the ranking.
func (s *selection) further(place int) *share { return &s.class.pools[s.pools.best[place]] }

// choice begins with an engine. Then come, for retries, the key's own if it is held
// elsewhere, an engine of each further pool that has a share, the others of the first,
// and last those of pools that the plan gives nothing.
func (s *selection) choice(first *engine, held bool) (out choice) {
	out.add(first)
	if held {
		out.add(s.own)
	}
	s.addFurther(&out, true)
	if out.n < attempts {
		s.addHome(&out, first)
		s.addFurther(&out, false)
	}
	return out
}

// addHome adds the engines of the home pool; the key's own comes last if it is full.
func (s *selection) addHome(out *choice, first *engine) {
	from, n := 0, s.best().n
	if first != s.own {
		from = 1
	}
	for i := range n {
		out.add(s.engine((from + i) % n))
	}
}

// addFurther adds an engine of each further pool that has a share, or that has none,
// and is not there yet.
func (s *selection) addFurther(out *choice, share bool) {
	for place := 1; place < s.pools.n; place++ {
		p := s.further(place)
		if (p.weight > noShare) == share && p.pool != out.first().pool {
			out.add(p.pool.any(s.key))
		}
	}
}

// any is an engine for a retry, of a pool that is not the key's own: the same for each
// of its turns, and one that is neither full nor penalised, if that can be seen at once.
func (p *pool) any(key uint64) *engine {
	n := uint64(len(p.engines))
	at := mix(key^^p.hash) % n
	e := &p.engines[at]
	if p.full(e) || e.penalty() < 1 {
		e = &p.engines[(at+1)%n]
	}
	return e
}

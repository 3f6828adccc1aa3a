package extproc

// Bounded load. A conversation belongs to the engine that its key ranks first. While
// that one is full, it goes to the next in its ranking that is not. Of a pool most of
// whose engines are full, a part as large as the part of its requests that waits goes
// to the best engine of the next pool, and the rest stays. A key's alternatives are few
// and its own, so that no engine is overrun because it alone has room.
//
// Once diverted it stays there, until its own engine has had room for a while: each
// time that it moves, all of it is prefilled again. A replica that has not heard of the
// diversion decides by the same levels, and so the same.

// detour says why a request is not where its key belongs.
type detour int

const (
	direct    detour = iota
	elsewhere        // its engine is full, or was lately: another one of its pool
	otherPool        // its pool is full: another one
	nowhere          // its engine is full, and there is none better
)

// staysAway is how long an engine must have had room before the conversations that it
// turned away come back: so long at least, and twice so long at most, for they should
// not come back at once.
const staysAway = 10 // seconds

// divertedIdle is how long a conversation is remembered to be away that has no turns: by
// then engines have given up its cache.
const divertedIdle = 600 // seconds

// place returns the engine of a selection, and whether it is its own. Only a named
// conversation can be remembered.
func (t *Table) place(s *selection, named bool) (*engine, detour) {
	own, now := s.own, t.clock.Load()
	leaves := s.leaves()
	full := leaves || s.home.full(own)
	if full {
		if own.live.full.Load() != now {
			own.live.full.Store(now)
		}
	} else if !own.live.fullLately(now, s.key) {
		return own, direct
	}
	name := s.name()
	kept := uint64(0)
	if named {
		kept = t.diverted.find(name, now)
	}
	if e := s.find(kept); e != nil && !e.pool.full(e) {
		return e, s.detourTo(e)
	}
	if !full {
		if kept != 0 {
			t.diverted.drop(name)
		}
		return own, direct
	}
	to := s.roomier(leaves)
	if to == nil {
		return own, nowhere
	}
	if named {
		t.diverted.keep(name, to.hash, now)
	}
	return to, s.detourTo(to)
}

// fullLately says whether the engine was full a while ago, which is longer for some
// keys than for others.
func (e *liveEngine) fullLately(now int64, key uint64) bool {
	last := e.full.Load()
	return last != 0 && float64(now-last) < staysAway*(1+unit(mix(key)))
}

func (s *selection) detourTo(e *engine) detour {
	if e.pool == s.home {
		return elsewhere
	}
	return otherPool
}

// find returns the engine of that hash among those that a key may be diverted to.
func (s *selection) find(hash uint64) *engine {
	if hash == 0 {
		return nil
	}
	for place := 1; place < s.best().n; place++ {
		if e := s.engine(place); e.hash == hash {
			return e
		}
	}
	for place := 1; place < s.pools.n; place++ {
		if p := s.further(place); p.weight > noShare {
			if e := p.pool.best(s.key); e.hash == hash {
				return e
			}
		}
	}
	return nil
}

// leaves says whether the key is of the part of its home's requests that is too many for
// the pool: the same part for as long as it is as large.
func (s *selection) leaves() bool {
	excess := s.home.state.Load().excess()
	return excess > 0 && unit(mix(mix(s.key)^s.home.hash)) < excess
}

// roomier returns the best engine for the key that is not full, of another pool if it
// leaves its own; nil if there is none.
func (s *selection) roomier(leaves bool) *engine {
	if leaves {
		if e := s.outside(); e != nil || !s.home.full(s.own) {
			return e
		}
	}
	for place := 1; place < s.best().n; place++ {
		if e := s.engine(place); !s.home.full(e) {
			return e
		}
	}
	return nil
}

// outside returns the best engine for the key outside its home, nil if all are full.
func (s *selection) outside() *engine {
	for place := 1; place < s.pools.n; place++ {
		p := s.further(place)
		if p.weight == noShare || p.pool.state.Load().crowded {
			continue
		}
		if e := p.pool.best(s.key); !p.pool.full(e) {
			return e
		}
	}
	return nil
}

// best is the engine that the key ranks first in a pool.
func (p *pool) best(key uint64) *engine { return &p.engines[p.first(key)] }

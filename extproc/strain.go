package extproc

import (
	"weir/extproc/penalty"
	"weir/fleet"
)

// Loads are those of the engines that have any: whose first tokens come late need not be
// sick then.
func (s *Server) Loads() map[fleet.EngineID]penalty.Load {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	out := map[fleet.EngineID]penalty.Load{}
	if t := s.table.Load(); t != nil {
		s.ledger.loads(t, out)
	}
	return out
}

// loads adds the engines at which requests wait, those that a class may use which asks for
// more than they can do, and those of whose peers many have queues.
func (l *ledger) loads(t *Table, out map[fleet.EngineID]penalty.Load) {
	for _, p := range t.pools {
		p.loads(out)
	}
	for _, c := range t.classes {
		if !l.short(c) {
			continue
		}
		for i := range c.pools {
			for j := range c.pools[i].pool.engines {
				out[c.pools[i].pool.engines[j].id] = penalty.Strained
			}
		}
	}
}

// short says whether requests of a class are refused because engines cannot serve them.
// The plan may refuse them for the sake of a limit, and engines be idle: that they are not
// it must say.
func (l *ledger) short(c *class) bool {
	if c.tally.gate.Refused() == 0 {
		return false
	}
	told := l.admissionOf(c.id)
	return c.admitted >= 1 || told != nil && told.Short
}

// loads adds the engines at which requests wait, by the last levels: as strained those at
// a third or more of whose peers they do, too. It takes one such peer in pools of two to four engines, two in those of five to seven, three in one of
// eight. So a sick engine alone excuses only well ones, which need no excuse, and several
// excuse one another only if they are half of the pool, or three of seven: there nobody
// could say whether it is load.
func (p *pool) loads(out map[fleet.EngineID]penalty.Load) {
	waits := func(e *engine) int {
		if e.live.queued.Load() > 0 {
			return 1
		}
		return 0
	}
	all := 0
	for i := range p.engines {
		all += waits(&p.engines[i])
	}
	for i := range p.engines {
		e := &p.engines[i]
		own := waits(e)
		switch n := all - own; {
		case n > 0 && 3*n >= len(p.engines)-1:
			out[e.id] = penalty.Strained
		case own > 0:
			out[e.id] = penalty.Queued
		}
	}
}

package extproc

import "weir/fleet"

// Strained are the engines that are sent more than they can do together with others:
// whose first tokens come late is not sick then, but loaded.
func (s *Server) Strained() map[fleet.EngineID]bool {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	out := map[fleet.EngineID]bool{}
	if t := s.table.Load(); t != nil {
		s.ledger.strained(t, out)
	}
	return out
}

// strained adds the engines that a class may use which asks for more than they can do,
// and those of whose peers many have queues.
func (l *ledger) strained(t *Table, out map[fleet.EngineID]bool) {
	for _, c := range t.classes {
		if !l.short(c) {
			continue
		}
		for i := range c.pools {
			for j := range c.pools[i].pool.engines {
				out[c.pools[i].pool.engines[j].id] = true
			}
		}
	}
	for _, p := range t.pools {
		p.strained(out)
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

// strained adds the engines at a third or more of whose peers requests wait, by the last
// levels. An engine's own queue says nothing: a sick one has one, too. It takes one such
// peer in pools of two to four engines, two in those of five to seven, three in one of
// eight. So a sick engine alone excuses only well ones, which need no excuse, and several
// excuse one another only if they are half of the pool, or three of seven: there nobody
// could say whether it is load.
func (p *pool) strained(out map[fleet.EngineID]bool) {
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
		if n := all - waits(e); n > 0 && 3*n >= len(p.engines)-1 {
			out[e.id] = true
		}
	}
}

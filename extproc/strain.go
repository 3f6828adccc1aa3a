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
				id := c.pools[i].pool.engines[j].id
				out[id] = penalty.Load{Queued: out[id].Queued, Strained: true}
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

// loads adds the engines at which requests wait, by the last levels, and as strained those
// at a third or more of whose peers they do. For the latter an engine's own queue says
// nothing: a sick one has one, too. It takes one such peer in pools of two to four engines,
// two in those of five to seven, three in one of eight. So a sick engine alone excuses only
// well ones, which need no excuse, and several excuse one another only if they are half of
// the pool, or three of seven: there nobody could say whether it is load.
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
		n := all - own
		if l := (penalty.Load{Queued: own > 0, Strained: n > 0 && 3*n >= len(p.engines)-1}); l != (penalty.Load{}) {
			out[e.id] = l
		}
	}
}

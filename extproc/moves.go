package extproc

import (
	"math"
	"sync"

	"weir/fleet"
)

// seenConversations is how many of the latest conversations stand for all when a
// table replaces another.
const seenConversations = 4096

// moves measures what a change of plan costs: how many conversations it moves to
// another engine, which then has to prefill them, against the least that any way of
// choosing would have to move to come to the same weights.
type moves struct {
	mu   sync.Mutex // guards what follows
	seen [seenConversations]conversationSeen

	sampled uint64
	moved   uint64
	least   float64
}

type conversationSeen struct {
	class fleet.ClassID // empty: the place is free
	key   uint64
}

// note remembers a conversation that was just let in. It never waits: one that comes
// while the sample is in use is not noted.
func (m *moves) note(class fleet.ClassID, key uint64) {
	if !m.mu.TryLock() {
		return
	}
	m.seen[mix(key)%seenConversations] = conversationSeen{class, key}
	m.mu.Unlock()
}

// compare counts what moves between two tables.
func (m *moves) compare(before, after *Table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range before.classes {
		next := after.class(c.id)
		if next == nil || len(c.pools) == 0 || len(next.pools) == 0 {
			continue
		}
		n := uint64(0)
		for i := range m.seen {
			if s := &m.seen[i]; s.class == c.id {
				n++
				if was, is := c.rank(s.key), next.rank(s.key); was.own.hash != is.own.hash {
					m.moved++
				}
			}
		}
		m.sampled += n
		if n > 0 {
			m.least += float64(n) * distance(c.parts(), next.parts())
		}
	}
}

// parts are what each engine gets of a class's conversations, by its hash.
func (c *class) parts() map[uint64]float64 {
	total := 0.0
	for _, p := range c.pools {
		total += p.weight * p.pool.state.Load().factor
	}
	parts := map[uint64]float64{}
	for _, p := range c.pools {
		state := p.pool.state.Load()
		for i := range p.pool.engines {
			e := &p.pool.engines[i]
			parts[e.hash] += p.weight * state.factor / total * state.share(e)
		}
	}
	return parts
}

// distance is the part of all that must move from where it is to where it is to be.
func distance(from, to map[uint64]float64) float64 {
	gained := 0.0
	for e, part := range to {
		gained += math.Max(0, part-from[e])
	}
	return gained
}

// counts are the totals: conversations that a replaced table was asked about, those
// that moved, and the least that had to.
func (m *moves) counts() (sampled, moved uint64, least float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sampled, m.moved, m.least
}

func (t *Table) class(id fleet.ClassID) *class {
	for _, c := range t.classes {
		if c.id == id {
			return c
		}
	}
	return nil
}

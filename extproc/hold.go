package extproc

// Holding. When the plan's weights change, some conversations belong to another pool
// from then on, and each that goes there is prefilled again. Those that are idle, short
// or new cost little and go at once; one that is active and long stays where it is for
// a while, for by then it may have ended, or the weights may be back. It stays for the
// sake of weights alone: not at an engine that is not known to have room, that is worth
// less than a whole one, or that its key does not rank first in a pool with a share.
// Once it has gone it stays gone.

const (
	// A conversation is long of which so many turns were seen, or a request with such a
	// body: some 4,000 tokens.
	longTurns = 2
	longBytes = 16 << 10
	// activeFor is for how long a conversation counts as active after a turn.
	activeFor = 60 // seconds
)

// lastTurn is that of a conversation.
type lastTurn struct {
	engine  uint64 // hash of it; 0: it is not known
	settled int64  // when it last went where it belongs, Unix seconds
	turns   int64  // that were seen, none of them long after the one before
}

// hold says what became of a conversation that the plan's weights have moved.
type hold int

const (
	notMoved hold = iota // or not active, or not long
	held                 // it stays where it is for now
	timeUp               // it has stayed for long enough
	noRoom               // its engine is not known to have room, or is not the plan's any more
)

// holdOrPlace returns the engine of a selection's conversation, which is the one where it
// had its last turn while it is held.
func (t *Table) holdOrPlace(s *selection, h *head) (e *engine, d detour, hold hold) {
	name, now := s.name(), t.clock.Load()
	last := t.places.find(name, now)
	if e, hold = t.former(s, &last, h); e == nil {
		e, d = t.place(s, true)
	}
	if d == elsewhere || d == otherPool {
		t.places.drop(name)
		return e, d, hold
	}
	turn := lastTurn{engine: e.hash, settled: now, turns: last.turns + 1}
	if hold == held {
		turn.settled = last.settled
	}
	t.places.keep(name, turn, now)
	return e, d, hold
}

// former returns the engine where a conversation is held, nil if it is not.
func (t *Table) former(s *selection, last *lastTurn, h *head) (*engine, hold) {
	switch {
	case last.engine == 0 || last.engine == s.own.hash || last.turns < longTurns && h.length() < longBytes:
		return nil, notMoved
	case float64(t.clock.Load()-last.settled) >= t.hold*(1+unit(mix(s.key))):
		return nil, timeUp
	}
	for place := 1; place < s.pools.n; place++ {
		p := s.further(place)
		if p.weight == noShare {
			continue
		}
		if e := p.pool.best(s.key); e.hash == last.engine && e.holds(t.clock.Load(), s.key) {
			return e, held
		}
	}
	return nil, noRoom
}

// holds says whether an engine may keep conversations that the plan sends elsewhere:
// it is known to have no queue, and was not full a while ago.
func (e *engine) holds(now int64, key uint64) bool {
	return e.live.whole.Load() && e.live.queued.Load() == 0 && !e.live.fullLately(now, key) && !e.pool.full(e)
}

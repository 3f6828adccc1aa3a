package simulate

// How weir-extproc holds conversations: one that the plan's weights have moved stays
// where it is for a while, if it is active and long and its engine has room.
const (
	recentIdle    = 60 // seconds for which a conversation counts as active after a turn
	longTurns     = 2  // that were seen, or
	longBytes     = 16 << 10
	bytesPerToken = 4 // of a body, roughly
)

// lastTurn is what a front-end remembers of a conversation.
type lastTurn struct {
	engine        int32
	turns         int
	seen, settled int64 // seconds: of the last turn, and when it last went where it belongs
}

// place returns the number of the engine that a request of a conversation with such a
// body goes to; none without any.
func (c *crowd) place(now float64, of *choice, key uint64, bytes int) int32 {
	name, at := key^of.salt, second(now)
	last, ok := c.recent[name]
	if !ok || at-last.seen > recentIdle {
		last = lastTurn{engine: none}
	}
	if number := c.former(at, of, key, last, bytes); number != none {
		c.recent[name] = lastTurn{number, last.turns + 1, at, last.settled}
		return number
	}
	number := c.bounded(now, of, key)
	switch home := of.home(key); {
	case c.hold == 0 || number == none:
	case number != home.first(key):
		delete(c.recent, name)
	default:
		c.recent[name] = lastTurn{number, last.turns + 1, at, at}
	}
	return number
}

// former returns the engine where a conversation is held, none if it is not.
func (c *crowd) former(now int64, of *choice, key uint64, last lastTurn, bytes int) int32 {
	if last.engine == none || last.turns < longTurns && bytes < longBytes || float64(now-last.settled) >= c.hold*(1+unit(mix(key))) {
		return none
	}
	pools := of.rank(key)
	for _, place := range pools.best[1:max(1, pools.n)] {
		if p := &of.pools[place]; p.weight > noShare && p.first(key) == last.engine && c.holds(now, p, key, last.engine) {
			return last.engine
		}
	}
	return none
}

// holds says whether an engine may keep conversations that the plan sends elsewhere.
func (c *crowd) holds(now int64, p *poolChoice, key uint64, number int32) bool {
	e := &c.engines[number]
	return e.queued == 0 && !e.fullLately(now, key) && !c.full(&c.pools[p.number], number)
}

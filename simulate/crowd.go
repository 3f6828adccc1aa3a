package simulate

import (
	"math"

	"weir/fleet"
)

// How weir-extproc bounds the load of engines: what a conversation's own engine has
// too much of goes to the next in its ranking, and comes back when that one has had
// room for a while. It goes by the levels that the control plane tells each round and
// by its own open requests.
const (
	noLevel      = -1
	maxQueued    = 4   // the longest queue of an engine that has room
	excessSigmas = 4   // above an engine's fair part of the requests in flight
	staysAway    = 10  // seconds that an engine must have had room, up to twice as long
	divertedIdle = 600 // seconds after which a diversion is forgotten
	staleTicks   = 5   // rounds after which levels count for nothing
)

// crowd is how full a front-end takes engines to be.
type crowd struct {
	engines  []engineCrowd // by number
	pools    []poolCrowd   // by number
	diverted map[uint64]diversion
	recent   map[uint64]lastTurn
	hold     float64 // seconds; 0: nobody is held
	learned  float64 // when levels came last
}

type engineCrowd struct {
	open, then     int     // our open requests: now, and those that the levels know of
	told           [2]int  // at the last report, and at the one before
	others, queued float64 // by the levels; or noLevel
	full           int64   // second in which it was last found full; 0: never
}

type poolCrowd struct {
	engines  []engineChoice // that serve
	inFlight float64        // or noLevel
	waiting  float64        // of them, in queues that were told of
	crowded  bool           // most of its engines have queues that are too long
}

type diversion struct {
	engine int32
	used   int64
}

func newCrowd(pools, engines int, hold float64) crowd {
	c := crowd{engines: make([]engineCrowd, engines), pools: make([]poolCrowd, pools), diverted: map[uint64]diversion{}, recent: map[uint64]lastTurn{}, hold: hold}
	for i := range c.engines {
		c.engines[i].others, c.engines[i].queued = noLevel, noLevel
	}
	return c
}

// second is the clock by which diversions go; it is never 0.
func second(now float64) int64 { return int64(now) + 1 }

// adopt takes the engines that serve from what a front-end is told.
func (c *crowd) adopt(choices []choice) {
	for i := range choices {
		for k := range choices[i].pools {
			p := &choices[i].pools[k]
			c.pools[p.number].engines = p.engines
		}
	}
}

// learn takes a round's levels.
func (c *crowd) learn(now float64, l *fleet.Levels, f *fleet.Fleet, n *numbers) {
	c.learned = now
	c.forget()
	for i := range l.Pools {
		p := &l.Pools[i]
		for k, id := range f.Pools[n.pools[p.ID]].Engines {
			e, told := &c.engines[n.engines[id]], p.Engines[k]
			known := max(e.told[0], e.told[1])
			e.then = known
			if told.Queued.Known {
				e.queued = told.Queued.Value
			}
			if told.InFlight.Known {
				e.others = max(0, told.InFlight.Value-float64(known))
			}
		}
	}
	c.refresh(now)
}

func (c *crowd) forget() {
	for i := range c.engines {
		c.engines[i].others, c.engines[i].queued = noLevel, noLevel
	}
}

// waiting is how many requests wait at an engine: those that it has told of, and what
// has come from here since.
func (e *engineCrowd) waiting() float64 {
	if e.queued <= 0 {
		return 0
	}
	return max(0, e.queued+float64(e.open-e.then))
}

// tell returns how many requests are open, for the control plane.
func (e *engineCrowd) tell() int {
	e.told = [2]int{e.open, e.told[0]}
	return e.open
}

func (e *engineCrowd) inFlight() float64 { return max(0, e.others) + float64(e.open) }

// refresh sums up what is known of pools, as each second and with each round's levels.
func (c *crowd) refresh(now float64) {
	for i := range c.pools {
		p := &c.pools[i]
		p.inFlight, p.waiting = noLevel, 0
		all, long, known := 0.0, 0, false
		for _, e := range p.engines {
			x := &c.engines[e.number]
			all += x.inFlight()
			known = known || x.others != noLevel
			waiting := x.waiting()
			p.waiting += waiting
			if waiting > maxQueued {
				long++
			}
		}
		if known {
			p.inFlight = all
		}
		p.crowded = 2*long > len(p.engines)
		for _, e := range p.engines {
			if c.full(p, e.number) {
				c.engines[e.number].full = second(now)
			}
		}
	}
}

// tick is a second that has passed.
func (c *crowd) tick(now, round float64) {
	if now-c.learned > staleTicks*round {
		c.forget()
	}
	c.refresh(now)
}

// excess is the part of a crowded pool's requests that waits.
func (p *poolCrowd) excess() float64 {
	if !p.crowded || p.inFlight <= 0 {
		return 0
	}
	return min(1, p.waiting/p.inFlight)
}

// full says whether an engine has more than it should.
func (c *crowd) full(p *poolCrowd, number int32) bool {
	e, engines := &c.engines[number], float64(len(p.engines))
	if waiting := e.waiting(); waiting > maxQueued && (!p.crowded || waiting > bound(p.waiting/engines)) {
		return true
	}
	if p.inFlight < 0 || e.others == noLevel {
		return false
	}
	n := e.inFlight()
	return n > bound(p.inFlight/engines) && n > bound(c.inFlight(p)/engines)
}

func (c *crowd) inFlight(p *poolCrowd) (sum float64) {
	for _, e := range p.engines {
		sum += c.engines[e.number].inFlight()
	}
	return sum
}

// bound is how many requests an engine may have whose fair part is so many.
func bound(fair float64) float64 {
	fair = max(1, fair)
	return fair + excessSigmas*math.Sqrt(fair)
}

// fullLately says whether an engine was full a while ago.
func (e *engineCrowd) fullLately(now int64, key uint64) bool {
	return e.full != 0 && float64(now-e.full) < staysAway*(1+unit(mix(key)))
}

// bounded returns the number of the engine that a request of a conversation goes to
// that is not held; none without any.
func (c *crowd) bounded(now float64, of *choice, key uint64) int32 {
	home := of.home(key)
	if home == nil {
		return none
	}
	own, at := home.first(key), second(now)
	e := &c.engines[own]
	leaves := c.leaves(home, key)
	full := leaves || c.full(&c.pools[home.number], own)
	if full {
		e.full = at
	} else if !e.fullLately(at, key) {
		return own
	}
	name := key ^ of.salt
	kept, ok := c.diverted[name]
	if ok && at-kept.used > divertedIdle {
		delete(c.diverted, name)
		ok = false
	}
	if ok {
		c.diverted[name] = diversion{kept.engine, at}
		if p := of.poolOf(home, key, kept.engine); p != nil && !c.full(&c.pools[p.number], kept.engine) {
			return kept.engine
		}
	}
	if !full {
		delete(c.diverted, name)
		return own
	}
	to := c.roomier(of, home, key, leaves)
	if to == none {
		return own
	}
	c.diverted[name] = diversion{to, at}
	return to
}

// poolOf is the pool of an engine, if a key may be diverted there.
func (c *choice) poolOf(home *poolChoice, key uint64, number int32) *poolChoice {
	r := home.rank(key)
	for _, place := range r.best[1:max(1, r.n)] {
		if home.engines[place].number == number {
			return home
		}
	}
	pools := c.rank(key)
	for _, place := range pools.best[1:max(1, pools.n)] {
		if p := &c.pools[place]; p.weight > noShare && p.first(key) == number {
			return p
		}
	}
	return nil
}

// leaves says whether a key is of the part of its home's requests that is too many for
// the pool.
func (c *crowd) leaves(home *poolChoice, key uint64) bool {
	excess := c.pools[home.number].excess()
	return excess > 0 && unit(mix(mix(key)^home.hash)) < excess
}

// roomier returns the best engine for a key that is not full, of another pool if it
// leaves its own; none if there is none.
func (c *crowd) roomier(of *choice, home *poolChoice, key uint64, leaves bool) int32 {
	if leaves {
		number := c.outside(of, key)
		if number != none || !c.full(&c.pools[home.number], home.first(key)) {
			return number
		}
	}
	r := home.rank(key)
	for _, place := range r.best[1:max(1, r.n)] {
		if number := home.engines[place].number; !c.full(&c.pools[home.number], number) {
			return number
		}
	}
	return none
}

// outside returns the best engine for a key outside its home, none if all are full.
func (c *crowd) outside(of *choice, key uint64) int32 {
	pools := of.rank(key)
	for _, place := range pools.best[1:max(1, pools.n)] {
		p := &of.pools[place]
		if p.weight == noShare || c.pools[p.number].crowded {
			continue
		}
		if number := p.first(key); !c.full(&c.pools[p.number], number) {
			return number
		}
	}
	return none
}

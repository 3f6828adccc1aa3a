package extproc

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/extproc/gate"
	"weir/fleet"
)

const (
	// keptAfter is how long a class or an engine is remembered that no table has: for
	// requests that were decided by the table before.
	keptAfter = time.Minute
	// staleTicks is after how many rounds without a word the last levels count for
	// nothing: they say what was.
	staleTicks = 5
	// usualTick is that of a control plane that does not tell.
	usualTick = 2 * time.Second
)

// ledger counts per class and per engine, whatever table the requests were decided by.
// Requests only touch its atomic counts; what they stand in changes with the tables.
type ledger struct {
	clock    atomic.Int64                     // Unix seconds, brought up to date each second
	diverted memory[uint64]                   // conversations that are away from their own engine: the hash of the one where they are
	talks    recent                           // conversations that were let in, until engines have given up their cache
	refused  recent                           // conversations that were refused, until they should have come back
	places   atomic.Pointer[memory[lastTurn]] // nil: no table has held anybody yet
	unread   atomic.Uint64                    // words of what may enter that could not be read

	mu      sync.Mutex // guards what follows
	began   bool       // there was a table
	classes map[fleet.ClassID]*tally
	engines map[fleet.EngineID]*liveEngine
	levels  levels

	admission *fleet.Admission // nil: none came
	share     float64          // of it that is this process's
	stepped   time.Time        // when the gates were

	penalties map[fleet.EngineID]float64 // engines without one have none
}

// tally counts the requests of one class.
type tally struct {
	arrivals, shed atomic.Uint64 // since they were last taken
	open           atomic.Int64
	gate           gate.Gate
	retryAfter     atomic.Int64 // seconds; 0: as usual

	seen time.Time // when a table had it last; belongs to who holds the lock
}

// levels are the control plane's last word on how full engines are.
type levels struct {
	round  int64         // that they are of; 0: none came yet
	known  bool          // false: none came lately
	at     time.Time     // when they came
	tick   time.Duration // until the next ones come
	stale  atomic.Uint64 // times that none came in time
	unused atomic.Uint64 // pools whose levels were of other engines than the table's, or could not be read
}

// arrive counts a request that a client asks for the first time: retries are no
// demand. Only such are counted as shed, so that shed is a part of arrivals.
func (t *tally) arrive(d *decision, again bool) {
	if again {
		return
	}
	t.arrivals.Add(1)
	if d.refusal != nil && d.refusal.reason == reasonShed {
		t.shed.Add(1)
	}
}

// adopt has a new table count where the one before counted, and tells its engines what
// is known of them.
func (l *ledger) adopt(t *Table, now time.Time) {
	t.clock, t.diverted, t.talks, t.refused = &l.clock, &l.diverted, &l.talks, &l.refused
	l.clock.Store(now.Unix())
	if t.hold > 0 {
		if l.places.Load() == nil { // who adopts holds the lock
			l.places.Store(&memory[lastTurn]{idle: activeFor})
		}
		t.places = l.places.Load()
	}
	for _, c := range t.classes {
		if known := l.classes[c.id]; known != nil {
			c.tally = known
		}
		l.classes[c.id] = c.tally
	}
	serving := map[*liveEngine]bool{}
	for _, p := range t.pools {
		for i := range p.engines {
			e := &p.engines[i]
			if known := l.engines[e.id]; known != nil {
				e.live = known
			}
			l.engines[e.id] = e.live
			e.live.pool = p.id
			serving[e.live] = true
		}
	}
	l.join(serving, now)
	l.began = true
	l.penalise(l.penalties)
	l.refresh(t, now)
}

// penalise makes these the penalties.
func (l *ledger) penalise(all map[fleet.EngineID]float64) {
	l.penalties = all
	for id, e := range l.engines {
		e.penalty = cmp.Or(all[id], 1)
	}
}

// join notes which engines serve. One that did not is new, unless everything is: what
// stands in the first table has most likely served for long.
func (l *ledger) join(serving map[*liveEngine]bool, now time.Time) {
	for _, e := range l.engines {
		if serving[e] && !e.serves && l.began {
			e.since = now
		}
		if e.serves = serving[e]; e.serves {
			e.seen = now
		}
	}
}

// learn takes the control plane's levels; nil: there are none. Only those of another
// round are news.
func (l *ledger) learn(t *Table, told *fleet.Levels, unread int, now time.Time) {
	if t == nil || told == nil || told.Round == l.levels.round {
		return
	}
	l.levels.round, l.levels.known, l.levels.at = told.Round, true, now
	l.levels.tick = cmp.Or(max(0, told.Tick), usualTick)
	l.levels.unused.Add(uint64(unread))
	l.forget()
	for _, p := range t.pools {
		i, ok := slices.BinarySearchFunc(told.Pools, p.id, func(x fleet.PoolLevels, id fleet.PoolID) int { return cmp.Compare(x.ID, id) })
		switch {
		case !ok:
		case told.Pools[i].Print != p.print || len(told.Pools[i].Engines) != len(p.listed):
			l.levels.unused.Add(1)
		default:
			l.learnPool(p, told.Pools[i].Engines, now)
		}
	}
	l.refresh(t, now)
}

func (l *ledger) learnPool(p *pool, told []fleet.EngineLevels, now time.Time) {
	for i, e := range p.listed {
		live := l.engines[e.ID]
		if live == nil || !live.serves {
			continue
		}
		live.learn(&told[i])
		if age := told[i].AgeSeconds; age.Known {
			live.aged(time.Duration(age.Value*float64(time.Second)), now)
		}
	}
}

// forget makes all levels unknown.
func (l *ledger) forget() {
	for _, e := range l.engines {
		e.forget()
	}
}

// refresh brings up to date what changes with time alone.
func (l *ledger) refresh(t *Table, now time.Time) {
	l.clock.Store(now.Unix())
	l.diverted.sweep(now.Unix())
	if l.levels.known && now.Sub(l.levels.at) > staleTicks*l.levels.tick {
		l.levels.known = false
		l.levels.stale.Add(1)
		l.forget()
	}
	if t != nil {
		for _, p := range t.pools {
			p.refresh(now)
		}
		for _, c := range t.classes {
			c.tally.seen = now
		}
		for _, e := range l.engines {
			if e.serves {
				e.seen = now
			}
		}
	}
	gone := now.Add(-keptAfter)
	maps.DeleteFunc(l.engines, func(_ fleet.EngineID, e *liveEngine) bool {
		return !e.serves && e.open.Load() == 0 && e.seen.Before(gone)
	})
	maps.DeleteFunc(l.classes, func(_ fleet.ClassID, t *tally) bool {
		return t.open.Load() == 0 && t.arrivals.Load() == 0 && t.seen.Before(gone)
	})
}

// take returns the counts by class and sets them back.
func (l *ledger) take() []fleet.ClassLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []fleet.ClassLoad
	for id, t := range l.classes {
		// Shed first: a request between the two is then an arrival whose refusal comes
		// with the next report, and shed stays a part of arrivals.
		shed := t.shed.Swap(0)
		if arrivals := t.arrivals.Swap(0); arrivals > 0 {
			out = append(out, fleet.ClassLoad{Class: id, Arrivals: arrivals, Shed: shed})
		}
	}
	slices.SortFunc(out, func(a, b fleet.ClassLoad) int { return cmp.Compare(a.Class, b.Class) })
	return out
}

// takeOpen returns the engines that have open requests, by pool and address, and
// notes what was told.
func (l *ledger) takeOpen() []fleet.EngineOpen {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []fleet.EngineOpen
	for id, e := range l.engines {
		if n := e.tell(); n > 0 {
			out = append(out, fleet.EngineOpen{Pool: e.pool, Engine: id, Open: uint64(n)})
		}
	}
	slices.SortFunc(out, func(a, b fleet.EngineOpen) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Engine, b.Engine))
	})
	return out
}

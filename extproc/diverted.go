package extproc

import (
	"sync"
	"sync/atomic"
)

const (
	// Conversations that are remembered to be diverted, at most: sets × ways.
	divertedSets = 8192
	divertedWays = 8
	// divertedLocks guard the sets, each an equal part of them.
	divertedLocks = 64
	// divertedIdle is how long a conversation is remembered that has no turns: by then
	// engines have given up its cache.
	divertedIdle = 600 // seconds
)

// diverted remembers which conversations are away from their own engine, and where:
// it is full once and has room again, and they would go back and forth. A table of
// fixed size, in sets that forget the longest unused. Nothing is wrong without it; the
// conversations that it forgets go where every other replica would send them.
type diverted struct {
	locks     [divertedLocks]sync.Mutex // guard the sets
	sets      [divertedSets][divertedWays]detoured
	kept      atomic.Int64
	forgotten atomic.Uint64 // for want of room, before they were idle
}

// detoured is one conversation.
type detoured struct {
	key    uint64
	engine uint64 // hash of it; 0: the place is free
	used   int64  // Unix seconds
}

func (d *diverted) set(key uint64) (*[divertedWays]detoured, *sync.Mutex) {
	i := mix(key) % divertedSets
	return &d.sets[i], &d.locks[i%divertedLocks]
}

// find returns the hash of the engine that a conversation was diverted to; 0: it is
// not known that it was.
func (d *diverted) find(key uint64, now int64) uint64 {
	if d == nil {
		return 0
	}
	set, lock := d.set(key)
	lock.Lock()
	defer lock.Unlock()
	for i := range set {
		if e := &set[i]; e.engine != 0 && e.key == key {
			if now-e.used > divertedIdle {
				d.free(e)
				return 0
			}
			e.used = now
			return e.engine
		}
	}
	return 0
}

// keep remembers that a conversation is diverted to an engine.
func (d *diverted) keep(key, engine uint64, now int64) {
	if d == nil {
		return
	}
	set, lock := d.set(key)
	lock.Lock()
	defer lock.Unlock()
	place := &set[0]
	for i := range set {
		e := &set[i]
		if e.engine != 0 && e.key == key {
			e.engine, e.used = engine, now
			return
		}
		if place.engine != 0 && (e.engine == 0 || e.used < place.used) {
			place = e
		}
	}
	switch {
	case place.engine == 0:
		d.kept.Add(1)
	case now-place.used <= divertedIdle:
		d.forgotten.Add(1)
	}
	*place = detoured{key, engine, now}
}

// drop forgets a conversation that is back at its own engine.
func (d *diverted) drop(key uint64) {
	if d == nil {
		return
	}
	set, lock := d.set(key)
	lock.Lock()
	defer lock.Unlock()
	for i := range set {
		if e := &set[i]; e.engine != 0 && e.key == key {
			d.free(e)
		}
	}
}

func (d *diverted) free(e *detoured) {
	*e = detoured{}
	d.kept.Add(-1)
}

// sweep forgets idle conversations, one part of the sets at a time.
func (d *diverted) sweep(now int64) {
	part := int(now % divertedLocks)
	d.locks[part].Lock()
	defer d.locks[part].Unlock()
	for i := part; i < divertedSets; i += divertedLocks {
		for j := range d.sets[i] {
			if e := &d.sets[i][j]; e.engine != 0 && now-e.used > divertedIdle {
				d.free(e)
			}
		}
	}
}

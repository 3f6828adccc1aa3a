package extproc

import (
	"sync"
	"sync/atomic"
)

const (
	// Conversations of the last minute that are remembered, at most: sets × ways.
	placesSets = 8192
	placesWays = 8
	// placesLocks guard the sets, each an equal part of them.
	placesLocks = 64
	// activeFor is for how long a conversation counts as active after a turn.
	activeFor = 60 // seconds
)

// whereabouts remember where conversations of late had their last turn. A table of fixed
// size, in sets that forget the longest unused. Nothing is wrong without it; the
// conversations that it does not know follow the plan at once.
type whereabouts struct {
	locks     [placesLocks]sync.Mutex // guard the sets
	sets      [placesSets][placesWays]lastTurn
	forgotten atomic.Uint64 // for want of room, before they were idle
}

// lastTurn is a conversation's.
type lastTurn struct {
	key     uint64
	engine  uint64 // hash of it; 0: it is not known
	seen    int64  // Unix seconds
	settled int64  // when it last went where it belongs, Unix seconds
	turns   int64  // that were seen, none of them long after the one before
}

func (w *whereabouts) set(key uint64) (*[placesWays]lastTurn, *sync.Mutex) {
	i := mix(key) % placesSets
	return &w.sets[i], &w.locks[i%placesLocks]
}

// find returns the last turn of a conversation that is active, else nothing.
func (w *whereabouts) find(key uint64, now int64) lastTurn {
	set, lock := w.set(key)
	lock.Lock()
	defer lock.Unlock()
	for i := range set {
		if t := &set[i]; t.engine != 0 && t.key == key && now-t.seen <= activeFor {
			return *t
		}
	}
	return lastTurn{}
}

// note remembers a turn in place of the one before.
func (w *whereabouts) note(t lastTurn) {
	set, lock := w.set(t.key)
	lock.Lock()
	defer lock.Unlock()
	place := &set[0]
	for i := range set {
		known := &set[i]
		if known.engine != 0 && known.key == t.key {
			*known = t
			return
		}
		if place.engine != 0 && (known.engine == 0 || known.seen < place.seen) {
			place = known
		}
	}
	if place.engine != 0 && t.seen-place.seen <= activeFor {
		w.forgotten.Add(1)
	}
	*place = t
}

// lost is how many were forgotten that were active.
func (w *whereabouts) lost() uint64 {
	if w == nil {
		return 0
	}
	return w.forgotten.Load()
}

// drop forgets a conversation.
func (w *whereabouts) drop(key uint64) {
	set, lock := w.set(key)
	lock.Lock()
	defer lock.Unlock()
	for i := range set {
		if t := &set[i]; t.engine != 0 && t.key == key {
			*t = lastTurn{}
		}
	}
}

package extproc

import (
	"sync"
	"sync/atomic"
)

const (
	// Conversations that are remembered at once, at most: sets × ways.
	memorySets = 8192
	memoryWays = 8
	// memoryLocks guard the sets, each an equal part of them.
	memoryLocks = 64
)

// memory knows something of conversations that are not idle. A table of fixed size, in
// sets that forget the longest unused. Nothing is wrong without it, and nil is one that
// knows nothing: conversations that it does not know go where every other replica would
// send them.
type memory[V any] struct {
	idle      int64                   // a conversation is forgotten that has had no turn for so long, seconds
	locks     [memoryLocks]sync.Mutex // guard the sets
	sets      [memorySets][memoryWays]remembered[V]
	kept      atomic.Int64
	forgotten atomic.Uint64 // for want of room, before they were idle
}

// remembered is one conversation.
type remembered[V any] struct {
	key  uint64
	ends int64 // until when, Unix seconds; 0: the place is free
	what V
}

func (m *memory[V]) set(key uint64) (*[memoryWays]remembered[V], *sync.Mutex) {
	i := mix(key) % memorySets
	return &m.sets[i], &m.locks[i%memoryLocks]
}

// find returns what is known of a conversation that has a turn; zero: nothing is.
func (m *memory[V]) find(key uint64, now int64) (what V) {
	if m == nil {
		return what
	}
	set, lock := m.set(key)
	lock.Lock()
	defer lock.Unlock()
	for i := range set {
		if r := &set[i]; r.key == key && r.ends >= now {
			r.ends = now + m.idle
			return r.what
		}
	}
	return what
}

// keep remembers something of a conversation, in place of what was known of it.
func (m *memory[V]) keep(key uint64, what V, now int64) {
	if m == nil {
		return
	}
	set, lock := m.set(key)
	lock.Lock()
	defer lock.Unlock()
	place := &set[0]
	for i := range set {
		r := &set[i]
		if r.key == key && r.ends != 0 {
			place = r
			break
		}
		if r.ends < place.ends {
			place = r
		}
	}
	switch {
	case place.ends == 0:
		m.kept.Add(1)
	case place.key != key && place.ends >= now:
		m.forgotten.Add(1)
	}
	*place = remembered[V]{key, now + m.idle, what}
}

// drop forgets a conversation.
func (m *memory[V]) drop(key uint64) {
	if m == nil {
		return
	}
	set, lock := m.set(key)
	lock.Lock()
	defer lock.Unlock()
	for i := range set {
		if r := &set[i]; r.key == key && r.ends != 0 {
			m.free(r)
		}
	}
}

func (m *memory[V]) free(r *remembered[V]) {
	*r = remembered[V]{}
	m.kept.Add(-1)
}

// sweep forgets idle conversations, one part of the sets at a time.
func (m *memory[V]) sweep(now int64) {
	part := int(now % memoryLocks)
	m.locks[part].Lock()
	defer m.locks[part].Unlock()
	for i := part; i < memorySets; i += memoryLocks {
		for j := range m.sets[i] {
			if r := &m.sets[i][j]; r.ends != 0 && r.ends < now {
				m.free(r)
			}
		}
	}
}

// lost is how many were forgotten that were not idle.
func (m *memory[V]) lost() uint64 {
	if m == nil {
		return 0
	}
	return m.forgotten.Load()
}

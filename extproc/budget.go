package extproc

import (
	"sync"
	"time"
)

// DefaultBudget is eight bodies of the largest size that a fleet file asks for by
// default: reading more of them at once takes a machine of a few cores longer than
// Envoy waits.
const DefaultBudget = 256 << 20

// unsaidLength is what a body counts for whose length is not said, until it is here.
const unsaidLength = 256 << 10

// budget bounds the bytes of all bodies that are held at once. A body that Envoy was
// asked for counts before it is here, so that many that come at once do not pass
// the bound together; but only for a turn or two, so that clients who send slowly,
// which costs Envoy memory and nothing here, do not use it up.
type budget struct {
	limit int64 // bytes
	began time.Time

	mu   sync.Mutex // guards what follows
	here int64      // bytes of bodies that are being read
	due  [2]int64   // bytes of those asked for in this turn, and in the last
	turn int64      // this one, counted from 1
}

// turnTime is what a body takes that nothing holds up.
const turnTime = time.Second / 2

// claim is the part of a budget that one request has. The zero value is none.
type claim struct {
	bytes int64
	turn  int64 // in which the body was asked for; 0: it is here
}

// ask claims room for a body before Envoy is asked for it. It says no where there is
// none: a body that is all alone always fits.
func (b *budget) ask(length int64, now time.Time) (claim, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	if !b.fits(length) {
		return claim{}, false
	}
	b.due[0] += length
	return claim{length, b.turn}, true
}

// receive claims room for a body that is here, in place of the claim under which it
// was asked for.
func (b *budget) receive(c claim, length int64, now time.Time) (claim, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	b.drop(c)
	if !b.fits(length) {
		return claim{}, false
	}
	b.here += length
	return claim{bytes: length}, true
}

// release gives back what a claim holds.
func (b *budget) release(c claim, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	b.drop(c)
}

// held returns the bytes of bodies that are being read.
func (b *budget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.here
}

func (b *budget) fits(bytes int64) bool {
	all := b.here + b.due[0] + b.due[1]
	return all == 0 || all+bytes <= b.limit
}

func (b *budget) drop(c claim) {
	switch c.turn {
	case 0:
		b.here -= c.bytes
	case b.turn:
		b.due[0] -= c.bytes
	case b.turn - 1:
		b.due[1] -= c.bytes
	}
}

// advance forgets what was asked for before the last turn.
func (b *budget) advance(now time.Time) {
	turn := int64(now.Sub(b.began)/turnTime) + 1
	switch turn - b.turn {
	case 0:
	case 1:
		b.due = [2]int64{0, b.due[0]}
	default:
		b.due = [2]int64{}
	}
	b.turn = turn
}

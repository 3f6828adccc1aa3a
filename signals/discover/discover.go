// Package discover finds the engines of pools whose fleet file does not list them.
//
// Sources do the I/O: the [Finder] follows one for each pool and posts what it hears as
// [Answer]s. The [Book] is pure and belongs to one goroutine: it makes of the
// fleet file and of all answers the fleet that everybody else works with.
//
// What a source says is news, and no more. One that fails leaves its last answer in
// force. An answer without engines is doubted until it has lasted, since an empty list
// is nearly always a mistake and takes a whole pool down. Engines that are named no
// more stay in the fleet as leaving until their requests have ended. Unknown is never
// empty: until a source has answered once, its pool keeps what an earlier process, or
// the source before, had.
package discover

import (
	"errors"
	"sync/atomic"

	"weir/fleet"
)

// Bounds of what sources may fill.
const (
	MaxEngines     = 20_000 // of all pools, those that leave aside
	MaxPoolEngines = 5_000  // in one answer
	maxLeaving     = 2_000  // of one pool; those that left first are left out first
	maxRefused     = 3      // that are named; the others are counted
)

// Answer is what a source says once.
type Answer struct {
	Pool    fleet.PoolID
	Source  fleet.Discovery
	Engines []fleet.EngineID // in any order
	Leaving []fleet.EngineID // that it knows to be about to end: they get nothing new
	Unready []fleet.EngineID // that it knows to be unready: they get nothing, and have nothing to end
	Err     error            // why it cannot tell; the rest means nothing then
}

// errTooMany refuses an answer as a whole: which part of it is right nobody knows.
var errTooMany = errors.New("names more engines than a pool may have")

// Counters count what sources said and the fallbacks taken. Any goroutine may read
// them.
type Counters struct {
	Answers atomic.Uint64 // that were taken
	Failed  atomic.Uint64 // fallback: times that a source could not tell and its last answer stayed
	Doubted atomic.Uint64 // fallback: answers without engines that were not believed yet
	Refused atomic.Uint64 // engines that came to be refused, being another pool's or too many
	Cut     atomic.Uint64 // fallback: engines left out before their requests had ended, or their time
}

package penalty

import (
	"slices"
	"time"

	"weir/fleet"
)

// Load is what first tokens of an engine wait for, that need not be its own fault.
type Load int

const (
	// Queued is an engine at which requests wait. So they do at one that is sick, too.
	Queued Load = 1 + iota
	// Strained is one in a pool that is sent more than it can do.
	Strained
)

const (
	// strainLasts is how long after a strain first tokens that come late are still taken
	// for its consequence.
	strainLasts = 5 * time.Second
	// pulse is over what answers are counted that begin: a sick engine's are missed soon.
	pulse = 1500 * time.Millisecond
	// keepsUp is the part of what others begin that a busy engine does at least: one
	// three times slower, whose first tokens are late without a queue, does not.
	keepsUp = 0.5
)

// Loaded takes the load of engines; that of all others is none.
//
// Where first tokens come late in a strained pool, that is load, which admission, bounded
// load and the plan see to: an engine that is sick as well shows it by its pace and its
// failures. Where they come late at one engine that has a queue, that is chance as long as
// it begins as many answers as others: it was sent more than its part, and to take its
// traffic away would only give others such a queue.
func (b *Book) Loaded(now time.Time, loads map[fleet.EngineID]Load) {
	for id, e := range b.engines {
		e.load = loads[id]
		if e.load == Strained {
			e.strain = now.Add(strainLasts)
		}
	}
}

// Begins takes that an engine has begun an answer.
func (b *Book) Begins(id fleet.EngineID) {
	if e := b.engines[id]; e != nil {
		e.begun++
	}
}

// excused says whether it is no sign that the first token of a request which began then is
// late.
func (e *engine) excused(began time.Time) bool { return e.busy || began.Before(e.strain) }

// keepUp finds which engines of a pool are only busy. What was held against their first
// tokens before that was known is forgotten.
func keepUp(p []*engine) {
	begun := make([]float64, len(p))
	for i, e := range p {
		begun[i] = e.begun
	}
	slices.Sort(begun)
	for _, e := range p {
		others, ok := middleOfOthers(begun, e.begun)
		e.busy = ok && e.load == Queued && e.begun >= max(1, keepsUp*others)
		if e.busy {
			e.tests[firstTokens].score = 0
		}
	}
}

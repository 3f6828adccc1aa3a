package penalty

import (
	"math"
	"slices"
	"time"

	"weir/fleet"
)

// Load is what first tokens of an engine may wait for that is not sick. The zero Load is
// that of an engine which has no more to do than it can.
type Load struct {
	Queued   bool // requests wait at it, as they do at a sick one, too
	Strained bool // its pool is sent more than it can do
}

const (
	// strainLasts is how long after a strain first tokens that come late are still taken
	// for its consequence.
	strainLasts = 5 * time.Second
	// busyLasts is how long a queue may be chance. One that lasts longer, where peers have
	// none, is the engine's own.
	busyLasts = 10 * time.Second
	// Without requests that wait for so long, which is more than one word of the levels, a
	// queue has ended.
	queueEnds = 3 * time.Second
	// pulse is over what answers are counted that begin: a sick engine's are missed soon.
	pulse = 4 * time.Second
	// keepsUp is the part of what its peers begin that a busy engine does at least. Who has
	// a queue by chance begins all that it can, which is more than they do.
	keepsUp = 0.8
	// leastBegun is how many answers of a peer say what there is to keep up with.
	leastBegun = 4
)

// queue is whether requests wait at an engine, since when, and when they last did.
type queue struct {
	waits       bool
	first, last time.Time
}

// Loaded takes the loads of engines; who is not among them has none.
//
// Where first tokens come late in a strained pool, that is load, which admission, bounded
// load and the plan see to: an engine that is sick as well shows it by its pace and its
// failures. Where they come late at one engine that has a queue and keeps up with its
// peers, that is chance for a while: it was sent more than its part, and to take its
// traffic away would only give others such a queue.
func (b *Book) Loaded(now time.Time, loads map[fleet.EngineID]Load) {
	for id, e := range b.engines {
		load := loads[id]
		if load.Strained {
			e.strain = wall(now).Add(strainLasts)
		}
		e.queue.take(now, load.Queued)
	}
}

// take takes whether requests wait.
func (q *queue) take(now time.Time, waits bool) {
	q.waits = waits
	if !waits {
		return
	}
	if since := now.Sub(q.last); since > queueEnds || since < 0 {
		q.first = now
	}
	q.last = now
}

// Begins takes that an engine has begun an answer.
func (b *Book) Begins(id fleet.EngineID) {
	if e := b.engines[id]; e != nil {
		e.begun++
	}
}

// wall is a time by the clock alone: those of requests are, and who compares them with a
// process's own does not see that the clock was set back.
func wall(t time.Time) time.Time { return t.Round(0) }

// excused says whether it is no sign that the first token of a request which began then is
// late.
func (e *engine) excused(began time.Time) bool { return began.Before(e.strain) }

// excuse finds which engines of a pool are only busy: late first tokens of what they have
// begun so far count no more, nor those that were told before that was known.
func excuse(p []*engine, now time.Time) {
	var begun []float64
	for _, e := range p {
		if e.toGoBy(now) {
			begun = append(begun, e.begun)
		}
	}
	slices.Sort(begun)
	for _, e := range p {
		if e.queue.waits && now.Sub(e.queue.first) < busyLasts && e.keepsUp(begun, now) {
			e.forgive(now)
		}
	}
}

// toGoBy says whether an engine is one to go by: one that begins few answers, or gets a part
// of the traffic only, is none.
func (e *engine) toGoBy(now time.Time) bool { return e.begun >= leastBegun && e.warm(now) }

// keepsUp says whether an engine begins about as many answers as its peers, of those to go
// by, in order.
func (e *engine) keepsUp(begun []float64, now time.Time) bool {
	own := math.NaN()
	if e.toGoBy(now) {
		own = e.begun
	}
	middle, ok := middleOfOthers(begun, own)
	return ok && e.begun >= keepsUp*middle
}

// forgive takes back what was held against an engine's first tokens, and a penalty for
// them as though it had not been: if another follows, that is no relapse.
func (e *engine) forgive(now time.Time) {
	if e.strain.Before(now) {
		e.strain = wall(now)
	}
	t := &e.tests[firstTokens]
	*t = test{threshold: t.threshold, bad: t.bad, good: t.good}
	if e.value < 1 && e.fault == fleet.FaultFirstTokens {
		e.value = 1
	}
}

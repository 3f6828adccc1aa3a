// Package penalty says which engines get less than their part for now, because their
// requests go wrong.
//
// Each request is a mark, good or bad, in one of three signals: whether it failed, how
// soon its first token came, how fast its tokens come. A time is bad that is three times
// what is usual at the engine's peers, the others of its pool. A score adds up what each
// mark says for an engine that is sick and against one that is well (the logarithm of
// the likelihood ratio, never below 0: E. S. Page, Continuous Inspection Schemes,
// Biometrika 1954). So at ten requests a second or at one, three failures in a row are
// enough, and one in a thousand never is. Slowness must last for more than a second, too.
//
// A high score alone is no penalty: the engine must stand out. An engine is suspect only
// if, of the requests that began after its own trouble did, those of its peers went well:
// at most of them or, where it fails, clearly at one. So nobody is penalised for what
// befalls all, which is load, or a client's doing. Nor is an engine for late first tokens
// that is busy: requests wait at it, and it begins as many answers as its peers. Of no pool
// are more than half of the engines penalised, rounded down.
//
// A penalised engine keeps a trickle of traffic. Good answers to it lower the score, and
// so does time, more slowly each time that the engine relapses.
//
// Everything here is pure: time is an argument, and a [Book] belongs to one goroutine at a
// time.
package penalty

import (
	"cmp"
	"math"
	"slices"
	"time"

	"weir/fleet"
)

const (
	// Least is what is left of the weight of an engine at worst: of ten requests a second
	// a probe every two seconds.
	Least = 0.05
	// alike is the penalty from which on there is none: a weight that changes by less
	// only moves conversations.
	alike = 0.9
	// span is how much of a score costs a factor e of the weight.
	span = 0.7
	// reserve is how far a score can rise above its threshold: by more than what takes
	// the penalty to its worst, so that one good answer does not lift that.
	reserve = 5
	// memory is how long a score lasts of which nothing more is heard: e-folding.
	memory = 30 * time.Second
	// Each relapse within this time doubles the memory, so many times at most.
	relapse     = 2 * time.Minute
	maxRelapses = 2
	// graced is how long an engine that has joined, or was penalised, is believed to
	// have cold caches.
	graced = time.Minute
)

// signal is one by which engines are judged.
type signal int

const (
	failures    signal = iota
	firstTokens        // how soon they come
	tokens             // how fast those after them come
	signals
)

// Book keeps the penalties of the engines of all pools.
type Book struct {
	engines map[fleet.EngineID]*engine
	pools   map[fleet.PoolID][]*engine // by ID
	stepped time.Time
}

// engine is what is known of one.
type engine struct {
	id     fleet.EngineID
	pool   fleet.PoolID
	joined time.Time // zero: with the first engines
	strain time.Time // until when its first tokens are no sign
	queue  queue
	begun  float64 // answers, over the time [pulse]
	tests  [signals]test
	times  [kinds]recent

	value     float64   // 0 < value ≤ 1
	since     time.Time // when the penalty began
	lifted    time.Time // when the last one ended
	relapses  int
	fault     fleet.Fault
	threshold float64 // of the score that the fault rests on
	score     float64
}

// NewBook returns a book without engines.
func NewBook() *Book { return &Book{} }

// Set makes these the engines. What is known of those that stay is kept.
func (b *Book) Set(now time.Time, pools map[fleet.PoolID][]fleet.EngineID) {
	before := b.engines
	b.engines, b.pools = map[fleet.EngineID]*engine{}, map[fleet.PoolID][]*engine{}
	for id, ids := range pools {
		for _, e := range ids {
			known := before[e]
			if known == nil || known.pool != id {
				known = newEngine(e, id)
				if before != nil {
					known.joined = now
				}
			}
			b.engines[e] = known
			b.pools[id] = append(b.pools[id], known)
		}
		slices.SortFunc(b.pools[id], func(x, y *engine) int { return cmp.Compare(x.id, y.id) })
	}
}

func newEngine(id fleet.EngineID, pool fleet.PoolID) *engine {
	e := &engine{id: id, pool: pool, value: 1}
	for s := range e.tests {
		e.tests[s].weigh(signal(s), leastRate)
	}
	return e
}

// Lasts takes that an attempt has lasted for a second: it has not failed at once. Of such
// a one an answer is not told any more, a failure is.
func (b *Book) Lasts(id fleet.EngineID, began time.Time) { b.Outcome(id, began, fleet.Answered) }

// Outcome takes what became of an attempt of a request that began at that time.
func (b *Book) Outcome(id fleet.EngineID, began time.Time, o fleet.Outcome) {
	e := b.engines[id]
	if e == nil {
		return
	}
	fault, blamed := fleet.FaultOf(o)
	if blamed || o == fleet.Answered {
		e.mark(b.stepped, failures, began, fault)
	}
}

// Time takes how long something of a request took.
func (b *Book) Time(id fleet.EngineID, k Kind, began time.Time, seconds float64) {
	e := b.engines[id]
	if e == nil {
		return
	}
	e.times[k].add(seconds)
	b.judge(e, k, began, seconds)
}

// Took takes how long something took that [Book.Waiting] has called late before it was known
// what it would be: to know what is usual, and as no second mark.
func (b *Book) Took(id fleet.EngineID, k Kind, seconds float64) {
	if e := b.engines[id]; e != nil {
		e.times[k].add(seconds)
	}
}

// Waiting says whether the first byte of an answer has taken too long already, though it
// has not come yet, and takes that if so, of a stream with the time so far. Before the headers
// have come nobody knows whether it will be a stream: where answers in one piece were seen,
// it must be late for these, too, and nothing is known as long as no peer has had such.
func (b *Book) Waiting(id fleet.EngineID, began time.Time, seconds float64, stream bool) (late bool) {
	e := b.engines[id]
	if e == nil || e.excused(began) {
		return false
	}
	first, whole := &e.times[FirstToken], &e.times[Whole]
	switch {
	case stream || whole.n == 0:
		late = first.late(seconds)
	default:
		late = whole.late(seconds) && (!first.comparable() || first.late(seconds))
	}
	if late {
		if stream {
			first.add(seconds)
		}
		e.mark(b.stepped, firstTokens, began, fleet.FaultFirstTokens)
	}
	return late
}

func (b *Book) judge(e *engine, k Kind, began time.Time, seconds float64) {
	late := e.times[k].late(seconds)
	switch {
	case !e.times[k].comparable():
	case late && signalOf[k] == firstTokens && e.excused(began):
	case late:
		e.mark(b.stepped, signalOf[k], began, faultOf[k])
	default:
		e.mark(b.stepped, signalOf[k], began, "")
	}
}

// Stalled takes that an answer made no progress for a second.
func (b *Book) Stalled(id fleet.EngineID, began time.Time) {
	e := b.engines[id]
	if e == nil || !e.times[Pace].comparable() {
		return
	}
	e.mark(b.stepped, tokens, began, fleet.FaultStalled)
	t := &e.tests[tokens] // of this no more is heard: it has lasted
	if since := t.last.Add(-lasting[tokens]); t.first.After(since) {
		t.first = since
	}
}

// Step brings all up to date. It is to be called about four times a second.
func (b *Book) Step(now time.Time) {
	elapsed := max(0, now.Sub(b.stepped))
	if b.stepped.IsZero() {
		elapsed = 0
	}
	b.stepped = now
	for _, p := range b.pools {
		for _, e := range p {
			e.setBack(now)
			e.fade(elapsed)
		}
		excuse(p, now)
		compare(p, now)
		decide(p, now)
	}
}

// Of returns what an engine's weight is to be multiplied by, 0 < p ≤ 1.
func (b *Book) Of(id fleet.EngineID) float64 {
	if e := b.engines[id]; e != nil {
		return e.value
	}
	return 1
}

// Penalties are those of engines that are penalised, by pool and engine.
func (b *Book) Penalties() (out []fleet.Penalty) {
	for _, e := range b.engines {
		if e.value < 1 {
			out = append(out, fleet.Penalty{
				Pool: e.pool, Engine: e.id, Value: e.value, Fault: e.fault,
				AgeSeconds: b.stepped.Sub(e.since).Seconds(), ClearsSeconds: e.clears().Seconds(),
			})
		}
	}
	slices.SortFunc(out, func(x, y fleet.Penalty) int {
		return cmp.Or(cmp.Compare(x.Pool, y.Pool), cmp.Compare(x.Engine, y.Engine))
	})
	return out
}

// clears is how long until the penalty is gone by time alone.
func (e *engine) clears() time.Duration {
	end := e.threshold - span*math.Log(alike)
	return time.Duration(float64(e.memory()) * max(0, math.Log(e.score/end)))
}

// memory is how long the engine's scores last.
func (e *engine) memory() time.Duration { return memory << e.relapses }

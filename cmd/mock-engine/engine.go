package main

import (
	"hash/fnv"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// engine is the state that requests share.
type engine struct {
	options
	journal  *journal
	ready    time.Time // when the model will have been loaded
	draining atomic.Bool
	faults   atomic.Pointer[faults]
	frozen   atomic.Pointer[string] // page of metrics that is shown for ever; nil: the true one
	slots    chan struct{}          // holds an item for each running request

	mu      sync.Mutex // guards what follows
	meter   meter
	cache   *cache
	history *lru[string, []turn] // by IDs of responses and conversations
	stats   stats
}

func newEngine(o options, journal *journal) *engine {
	e := &engine{
		options: o,
		journal: journal,
		ready:   time.Now().Add(o.loadTime),
		slots:   make(chan struct{}, o.slots),
		meter:   meter{capacity: o.profile.capacity, window: o.window},
		cache:   newCache(o.kvTokens, o.block),
		history: newLRU[string, []turn](keptResponses),
		stats:   newStats(),
	}
	e.sicken(o.faults)
	return e
}

// arrive numbers a request and decides what becomes of it. If it will be worked on,
// it counts its work.
func (e *engine) arrive(q *request, refusal *apiError, now time.Time) *job {
	e.recall(q)
	j := &job{
		request: q, engine: e.name, seed: e.seed, arrived: now, faults: e.faults.Load(),
		context: q.prompt(e.block), voice: e.random(q.body.sha256),
	}
	j.prompt = j.context.tokens()
	j.decide(e.answer, e.maxOutput)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.arrived++
	j.number, j.others = e.stats.arrived, e.stats.inside
	j.chance = rand.New(rand.NewPCG(e.seed, j.number))
	j.refusal, j.outcome = refusal, rejected
	if refusal == nil {
		j.refusal, j.outcome = e.turnAway(j)
	}
	if j.refusal != nil {
		j.status = j.refusal.status
		return j
	}
	e.stats.inside++
	j.cached = e.cache.find(j.context)
	j.utilisation = e.meter.arrive(now, e.profile.work(j.prompt-j.cached, j.output))
	return j
}

// random draws the same numbers for the same text and seed.
func (e *engine) random(text string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, text) // a hash takes everything
	return rand.New(rand.NewPCG(e.seed, h.Sum64()))
}

// change lets f alter the statistics.
func (e *engine) change(f func(*stats)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.stats)
}

// tokenGap is the time between tokens at the load of a moment.
func (e *engine) tokenGap(now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.profile.tbt.at(e.meter.at(now))
}

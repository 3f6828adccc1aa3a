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
	draining atomic.Bool
	faults   atomic.Pointer[faults]
	slots    chan struct{} // holds an item for each running request

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
		slots:   make(chan struct{}, o.slots),
		meter:   meter{capacity: o.profile.capacity, window: o.window},
		cache:   newCache(o.kvTokens, o.block),
		history: newLRU[string, []turn](keptResponses),
		stats:   newStats(),
	}
	e.faults.Store(&faults{Slow: 1})
	return e
}

// arrive numbers a request and, if it will be worked on, counts its work.
func (e *engine) arrive(q *request, accepted bool, now time.Time) *job {
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
	j.number, j.others = e.stats.arrived, e.stats.waiting+e.stats.running
	j.chance = rand.New(rand.NewPCG(e.seed, j.number))
	if accepted {
		j.cached = e.cache.find(j.context)
		j.utilisation = e.meter.arrive(now, e.profile.work(j.prompt-j.cached, j.output))
	}
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

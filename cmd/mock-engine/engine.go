package main

import (
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

	mu    sync.Mutex // guards what follows
	meter meter
	stats stats
}

func newEngine(o options, journal *journal) *engine {
	e := &engine{
		options: o,
		journal: journal,
		slots:   make(chan struct{}, o.slots),
		meter:   meter{capacity: o.profile.capacity, window: o.window},
		stats:   newStats(),
	}
	e.faults.Store(&faults{Slow: 1})
	return e
}

// arrive numbers a request and, if it will be worked on, counts its work.
func (e *engine) arrive(q *request, accepted bool, now time.Time) *job {
	j := &job{
		request: q, arrived: now, faults: e.faults.Load(),
		prompt: q.promptTokens(), output: min(q.asked(), e.maxOutput),
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.arrived++
	j.number, j.others = e.stats.arrived, e.stats.waiting+e.stats.running
	j.random = rand.New(rand.NewPCG(e.seed, j.number))
	if accepted {
		j.utilisation = e.meter.arrive(now, e.profile.work(j.prompt, j.output))
	}
	return j
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

package simulate

import (
	"math"

	"weir/fleet"
)

// replica is one engine at work. A request waits for a slot, then as long as the
// engine is over its capacity, is prefilled, and then makes a token at each beat of
// the batch, to whose clock all that decode go.
type replica struct {
	*Engine
	id   fleet.EngineID
	jobs *jobs
	slow float64 // factor of every wait of what arrives

	meter   meter
	cache   *kvCache
	waiting fifo[int32] // for a slot
	slots   int         // taken
	phases  timers      // ends of queueing and of prefill, by time
	batch   timers      // ends of decoding, by the batch's clock
	clock   float64
	clockAt float64 // when the clock was read
	told    told
}

// told is what the engine's metrics page says, as far as anybody reads it.
type told struct {
	running, queued       int
	held                  float64 // prompt tokens of running requests
	begun                 float64 // sum of the clock at which each of the batch joined it
	ttftCount, ttftSum    float64
	tokenCount, tokenTime float64 // gaps between tokens, and seconds in them
	promptTokens, cached  float64
	firstTokens           float64
	work                  float64 // that arrived, in reference requests
	arrived               int
	insideSeconds         float64 // ∫ requests inside dt, up to clockAt
	inside                int
}

// Kinds of events within an engine.
const (
	queueEnds eventKind = iota
	prefillEnds
	decodeEnds
)

// moment is what happened to a request at an engine.
type moment int

const (
	nothing moment = iota
	firstToken
	ended
)

func newReplica(e *Engine, id fleet.EngineID, jobs *jobs) *replica {
	return &replica{
		Engine: e, id: id, jobs: jobs, slow: 1,
		meter: meter{capacity: e.CapacityRps, window: e.Window},
		cache: newKVCache(e.KVTokens / e.Block),
	}
}

// next is when something happens by itself; +Inf for never.
func (r *replica) next() float64 {
	next := r.phases.next()
	if end := r.batch.next(); !math.IsInf(end, 1) {
		next = min(next, r.clockAt+r.paceNow().seconds(max(0, end-r.clock)))
	}
	return next
}

func (r *replica) paceNow() pace { return r.pace(r.meter.at(r.clockAt)) }

// advance brings the batch's clock to now.
func (r *replica) advance(now float64) {
	elapsed := now - r.clockAt
	if elapsed <= 0 {
		return
	}
	r.told.insideSeconds += elapsed * float64(r.told.inside)
	if n := float64(len(r.batch.heap)); n > 0 {
		beats := r.paceNow().tokens(elapsed)
		r.clock += beats
		r.told.tokenCount += n * beats
		r.told.tokenTime += n * elapsed
	}
	r.clockAt = now
}

// arrive takes a request in.
func (r *replica) arrive(now float64, id int32) {
	r.advance(now)
	j := r.jobs.at(id)
	known := min(len(j.Context), (j.Prompt-1)/r.Block) // something must be computed to go on from
	j.cached = r.cache.find(j.Context[:max(0, known)]) * r.Block
	uncached := float64(j.Prompt - j.cached)
	work := r.Work(uncached, float64(j.Output))
	queue, prefill := r.firstToken(r.meter.arrive(now, work), uncached)
	j.queue = queue * j.stretch(0, r.Jitter, r.slow)
	j.prefill = prefill * j.stretch(1, r.Jitter, r.slow)
	j.beats = float64(j.Output-1) * j.stretchMean(r.Jitter, r.slow)
	j.reached = now
	r.told.arrived++
	r.told.inside++
	r.told.work += work
	r.waiting.push(id)
	r.told.queued++
	r.fill(now)
}

// fill gives free slots to those that wait.
func (r *replica) fill(now float64) {
	for r.slots < r.Slots && r.waiting.len() > 0 {
		id := r.waiting.pop()
		r.slots++
		r.phases.push(now+r.jobs.at(id).queue, queueEnds, id)
	}
}

// step does the first thing that is due.
func (r *replica) step(now float64) (int32, moment) {
	r.advance(now)
	if r.phases.next() > now {
		return r.end(now), ended
	}
	due := r.phases.pop()
	j := r.jobs.at(due.what)
	if due.kind == queueEnds {
		r.told.queued--
		r.told.running++
		r.told.held += float64(j.Prompt)
		r.phases.push(now+j.prefill, prefillEnds, due.what)
		return due.what, nothing
	}
	r.join(now, due.what, j)
	return due.what, firstToken
}

// join begins the decoding of a request whose first token is there.
func (r *replica) join(now float64, id int32, j *job) {
	r.cache.add(j.Context[:min(len(j.Context), j.Prompt/r.Block)])
	j.first = now
	r.told.ttftCount++
	r.told.ttftSum += now - j.reached
	r.told.promptTokens += float64(j.Prompt)
	r.told.cached += float64(j.cached)
	r.told.firstTokens++
	r.told.begun += r.clock
	j.joined = r.clock
	r.batch.push(r.clock+j.beats, decodeEnds, id)
}

// end lets the request go that is done.
func (r *replica) end(now float64) int32 {
	due := r.batch.pop()
	r.clock = max(r.clock, due.at) // rounding
	j := r.jobs.at(due.what)
	r.cache.add(j.Context)
	r.told.begun -= j.joined
	r.told.held -= float64(j.Prompt)
	r.told.running--
	r.told.inside--
	r.slots--
	r.fill(now)
	return due.what
}

// heldTokens is what running requests hold of the KV cache.
func (r *replica) heldTokens() float64 {
	n := float64(len(r.batch.heap))
	return r.told.held + n*r.clock - r.told.begun + n
}

// outputTokens is how many were made.
func (r *replica) outputTokens() float64 { return r.told.firstTokens + r.told.tokenCount }

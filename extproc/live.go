package extproc

import (
	"math"
	"sync/atomic"
	"time"

	"weir/fleet"
)

const (
	// noLevel stands for a count that is not known.
	noLevel = -1
	// maxQueued is the longest queue of an engine that has room: what passes through
	// at once, and costs less than to prefill a conversation elsewhere.
	maxQueued = 4
	// excessSigmas is how far above its fair part an engine's requests must be to be
	// no accident: 4 σ of a Poisson count.
	excessSigmas = 4
)

// liveEngine is what is known of an engine at this moment, whatever tables it stands
// in. Requests read and change it without a lock.
type liveEngine struct {
	id   fleet.EngineID
	pool fleet.PoolID

	open   atomic.Int64 // admitted requests that are open, whose first choice it was
	others atomic.Int64 // requests in flight that are not ours, by the last levels; or noLevel
	queued atomic.Int64 // requests that waited there, by the last levels; or noLevel
	then   atomic.Int64 // our open requests that these levels know of
	whole  atomic.Bool  // it is worth as much as any engine: neither new nor sick
	full   atomic.Int64 // when it was last found full, Unix seconds; 0: never

	// The rest belongs to who holds the ledger's lock.
	told    [2]int64  // how many were open when the control plane was told last, and the time before
	serves  bool      // it may be given requests, by the table in force
	since   time.Time // when it began to; zero: when everything began
	seen    time.Time // when a table had it last
	health  fleet.Amount
	penalty float64 // 0 < penalty ≤ 1 multiplies its weight
}

func newLiveEngine(id fleet.EngineID, pool fleet.PoolID) *liveEngine {
	e := &liveEngine{id: id, pool: pool, penalty: 1}
	e.forget()
	return e
}

// forget makes what the control plane said unknown.
func (e *liveEngine) forget() {
	e.others.Store(noLevel)
	e.queued.Store(noLevel)
	e.health = fleet.Amount{}
}

// tell returns how many requests are open, for the control plane.
func (e *liveEngine) tell() int64 {
	e.told = [2]int64{max(0, e.open.Load()), e.told[0]}
	return e.told[0]
}

// learn takes what the control plane says. Of our own requests it knows those that it
// was told of, last or, if that came too late for it, the time before: of the two the
// more, lest requests that have ended be taken for others'.
func (e *liveEngine) learn(l *fleet.EngineLevels) {
	told := max(e.told[0], e.told[1])
	e.then.Store(told)
	e.queued.Store(count(l.Queued, 0))
	e.others.Store(count(l.InFlight, told))
	e.health = l.Health
}

// count is an amount less a part of it.
func count(a fleet.Amount, less int64) int64 {
	if !a.Known {
		return noLevel
	}
	return max(0, int64(min(a.Value, math.MaxInt32))-less)
}

// waiting is how many requests wait at the engine: those that it has told of, and what
// has come from here since, less what has ended. Without a queue it may have had room
// for them, so that it has none.
func (e *liveEngine) waiting() int64 {
	queued := e.queued.Load()
	if queued <= 0 {
		return 0
	}
	return max(0, queued+e.open.Load()-e.then.Load())
}

// inFlight is how many requests the engine has, those of this moment from here among
// them.
func (e *liveEngine) inFlight() (n float64, known bool) {
	others := e.others.Load()
	return float64(max(0, others) + e.open.Load()), others != noLevel
}

// poolState is what is known of a pool's engines together: made afresh each second and
// with each round's levels.
type poolState struct {
	weights   []float64 // nil: all alike
	sum       float64   // of the weights
	penalties []float64 // of the engines; nil: there are none
	factor    float64   // of the pool's weight in any class: 0 < factor ≤ 1
	inFlight  float64   // requests in all of it; less than 0: not known
	waiting   float64   // of them, in queues that were told of
	crowded   bool      // most of its engines have queues that are too long
}

// excess is the part of a crowded pool's requests that waits, 0–1; 0 if it is not known.
func (s *poolState) excess() float64 {
	if !s.crowded || s.inFlight <= 0 {
		return 0
	}
	return min(1, s.waiting/s.inFlight)
}

// penalty is what the engine's weight is multiplied by, 0 < p ≤ 1.
func (e *engine) penalty() float64 {
	if all := e.pool.state.Load().penalties; all != nil {
		return all[e.place]
	}
	return 1
}

// weights are those of the engines, nil where they weigh alike.
func (p *pool) weights() []float64 { return p.state.Load().weights }

// share is the fair part of an engine in its pool's requests.
func (s *poolState) share(e *engine) float64 {
	if s.weights == nil {
		return 1 / s.sum
	}
	return s.weights[e.place] / s.sum
}

// bound is how many requests an engine may have whose fair part is so many. An idle
// pool's first ones are not in excess.
func bound(fair float64) float64 {
	fair = max(1, fair)
	return fair + excessSigmas*math.Sqrt(fair)
}

// full says whether an engine has more than it should: it has told of a queue that is
// too long, or has more requests than by chance. Where most queues are too long, only
// one that is longer than the others' by more than chance counts: to move from one to
// another would help nobody. What is not known does not count.
// This process's own count of open requests alone would say nothing: it sees a small
// part of the traffic.
func (p *pool) full(e *engine) bool {
	s := p.state.Load()
	share := s.share(e)
	if waiting := e.live.waiting(); waiting > maxQueued && (!s.crowded || float64(waiting) > bound(share*s.waiting)) {
		return true
	}
	if s.inFlight < 0 {
		return false
	}
	n, known := e.live.inFlight()
	// The pool's sum may be a second old. In a burst it is taken again before anything
	// is concluded.
	return known && n > bound(share*s.inFlight) && n > bound(share*p.inFlight())
}

// inFlight is how many requests the pool's engines have at this moment.
func (p *pool) inFlight() float64 {
	sum := 0.0
	for i := range p.engines {
		n, _ := p.engines[i].live.inFlight()
		sum += n
	}
	return sum
}

// penalise notes the penalty of an engine.
func (s *poolState) penalise(place int, penalty float64) {
	if penalty == 1 && s.penalties == nil {
		return
	}
	if s.penalties == nil {
		s.penalties = make([]float64, len(s.weights))
		for i := range place {
			s.penalties[i] = 1
		}
	}
	s.penalties[place] = penalty
}

// factor is what the pool as a whole is worth less than the plan believes, since engines
// of it are penalised: the mean of their penalties, in parts of the health that the plan
// has priced. Each engine's penalty applies fully beside its peers': were it divided by
// the health, too, an engine would have its share back as soon as the plan knows.
func (p *pool) factor() float64 {
	if len(p.engines) == 0 {
		return 1
	}
	sum, health := 0.0, fleet.Amount{}
	for i := range p.engines {
		live := p.engines[i].live
		sum += live.penalty
		if live.health.Known {
			health = live.health
		}
	}
	mean := sum / float64(len(p.engines))
	if health.Known && health.Value > 0 {
		mean = min(1, mean/health.Value)
	}
	return mean
}

// refresh makes the pool's state of what is known of its engines.
func (p *pool) refresh(now time.Time) {
	s := &poolState{weights: make([]float64, len(p.engines)), inFlight: noLevel, factor: p.factor()}
	all, long, known, alike := 0.0, 0, false, true
	for i := range p.engines {
		live := p.engines[i].live
		s.weights[i] = live.weight(now)
		s.penalise(i, live.penalty)
		s.sum += s.weights[i]
		live.whole.Store(s.weights[i] >= 1 && !(live.health.Known && live.health.Value < 1))
		alike = alike && s.weights[i] == s.weights[0]
		n, ok := live.inFlight()
		all += n
		known = known || ok
		waiting := live.waiting()
		s.waiting += float64(waiting)
		if waiting > maxQueued {
			long++
		}
	}
	if alike {
		s.weights, s.sum = nil, float64(len(p.engines))
	}
	if known {
		s.inFlight = all
	}
	s.crowded = 2*long > len(p.engines)
	p.state.Store(s)
	for i := range p.engines {
		if e := &p.engines[i]; p.full(e) {
			e.live.full.Store(now.Unix())
		}
	}
}

package extproc

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

const (
	// maxAnswers is how many responses are remembered, at most.
	maxAnswers = 65_536
	// answersIdle is after how long a response is forgotten that nobody follows: half
	// of it at least, for those that were not followed since.
	answersIdle = 3600 // seconds
)

// followed is a response that a request may follow: where it is, and the key of the
// request that it answered. Zero: it is not known.
type followed struct{ engine, key uint64 }

// answers remembers which engine made which response, by hashes. It keeps two
// generations: what is asked for moves to the young one, and the old one is
// forgotten, whole, as soon as the young one is full or has lasted.
type answers struct {
	mu         sync.Mutex // guards what follows
	young, old map[uint64]followed
	turned     int64  // Unix seconds, when young began
	forgotten  uint64 // for want of room
}

// keep remembers a response.
func (a *answers) keep(id uint64, f followed, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
	a.put(id, f)
}

// find returns what is known of a response, and keeps it for longer.
func (a *answers) find(id uint64, now int64) followed {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
	f, ok := a.young[id]
	if !ok {
		if f, ok = a.old[id]; ok {
			a.put(id, f)
		}
	}
	return f
}

func (a *answers) put(id uint64, f followed) {
	if len(a.young) >= maxAnswers/2 {
		a.forgotten += uint64(len(a.old))
		a.old, a.young = a.young, nil
	}
	if a.young == nil {
		a.young = map[uint64]followed{}
	}
	delete(a.old, id)
	a.young[id] = f
}

// turn begins a generation once the young one has lasted for half of the time.
func (a *answers) turn(now int64) {
	switch age := now - a.turned; {
	case age < answersIdle/2:
		return
	case age < answersIdle:
		a.old, a.young = a.young, nil
	default:
		a.old, a.young = nil, nil
	}
	a.turned = now
}

// counts are how many responses are remembered, and how many were forgotten for want
// of room.
func (a *answers) counts() (kept int, forgotten uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.young) + len(a.old), a.forgotten
}

// Answered notes which engine made a response, and the affinity key of the request
// that it answered: one that follows it by its ID belongs there.
func (s *Server) Answered(id string, engine fleet.EngineID, key uint64) {
	s.answers.keep(hashOfText(id), followed{hashOf("engine", string(engine)), key}, s.ledger.clock.Load())
}

// lookUp notes what is known of the response that the path names.
func (s *Server) lookUp(h *head) {
	if id := responseIn(h.path); id != "" {
		h.response = hashOfText(id)
		h.followed = s.answers.find(h.response, s.ledger.clock.Load())
	}
}

// hint says what came of the response that a request follows.
type hint int

const (
	noHint      hint = iota // it follows none, or names its conversation
	hintHit                 // it goes to the engine that made it
	hintMiss                // who made it is not known
	hintNoRoute             // who made it does not serve the class, or not now
)

// made returns the engine of that hash, if it serves the class.
func (c *class) made(hash uint64) *engine {
	for _, p := range c.pools {
		for i, h := range p.pool.hashes {
			if h == hash {
				return &p.pool.engines[i]
			}
		}
	}
	return nil
}

// registerAnswers has collected what following responses comes to.
func (s *Server) registerAnswers(r prometheus.Registerer) error {
	kept := prometheus.GaugeOpts{Name: "weir_extproc_responses", Help: "Responses whose engine is remembered."}
	forgotten := prometheus.CounterOpts{Name: "weir_extproc_responses_forgotten_total", Help: "Responses whose engine was forgotten for want of room."}
	return errors.Join(
		family(r, "follows", "Admitted requests that follow a response and name no conversation, by what is known of it.", "hint", []label{
			{"hit", &s.counters.Followed},
			{"miss", &s.counters.FollowsUnknown},
			{"not_eligible", &s.counters.FollowsGone},
		}),
		r.Register(prometheus.NewGaugeFunc(kept, func() float64 { n, _ := s.answers.counts(); return float64(n) })),
		r.Register(prometheus.NewCounterFunc(forgotten, func() float64 { _, n := s.answers.counts(); return float64(n) })),
	)
}

package signals

import (
	"time"

	"weir/fleet"
)

const (
	// verdictProbes is how many probes in a row overturn a verdict.
	verdictProbes = 2
	// answerCounts is how long requests that a pool answered outvote probes.
	answerCounts = 5 * time.Second
	// firstProbe is how long an engine that was discovered waits for its first probe.
	// After that it cannot be probed, and serves as unknown engines do.
	firstProbe = 5 * time.Second
)

// pool is what probes and traffic say of a pool's engines.
type pool struct {
	named    *fleet.Pool // as the fleet describes it
	engines  map[fleet.EngineID]*engine
	answered time.Time // when a front-end last reported answered requests
	burden   *burden
	record   *record
}

// empty says whether a pool that may be new has no engine.
func (p *pool) empty() bool { return p == nil || len(p.engines) == 0 }

// engine is what its probes, its pages and those whom it served say of it.
type engine struct {
	verdict fleet.Readiness
	against int       // probes in a row that contradict the verdict
	silent  bool      // the last probe had no answer
	joins   bool      // it was added to the fleet, and was not ready yet
	since   time.Time // when it became ready; zero: that was not seen
	leaves  bool      // discovery names it no more
	awaited bool      // discovery named it under way: it gets nothing before its first probe
	joined  time.Time // when that was seen first
	told    told
	seen    seen
}

func (e *engine) observe(now time.Time, p Probe) {
	outcome := fleet.Ready
	if p.Err != nil {
		outcome = fleet.Unready
	}
	e.silent = p.Err != nil && !p.Answered
	switch {
	case e.verdict == fleet.Unknown:
		e.verdict = outcome
		if outcome == fleet.Ready && e.joins {
			e.since, e.joins = now, false
		}
	case e.verdict == outcome:
		e.against = 0
	default:
		e.against++
	}
}

// settle overturns the verdict where probes demand it. Doubt keeps a ready
// engine ready.
func (e *engine) settle(now time.Time, doubt bool) fleet.Readiness {
	if e.against >= verdictProbes && !(doubt && e.verdict == fleet.Ready) {
		e.verdict = fleet.Ready + fleet.Unready - e.verdict
		e.against = 0
		if e.verdict == fleet.Ready {
			e.since = now
		}
	}
	return e.known(now)
}

// known is the verdict. Of an engine that joins it is that it is unready until it was
// probed: others serve, and it may be loading its model for minutes.
func (e *engine) known(now time.Time) fleet.Readiness {
	if e.verdict != fleet.Unknown || !e.awaited {
		return e.verdict
	}
	if e.joined.IsZero() {
		e.joined = now
	}
	if now.Sub(e.joined) >= firstProbe {
		e.awaited = false
		return e.verdict
	}
	return fleet.Unready
}

// leave has the engines that leave drain, unless those that stay are none of them able
// to serve yet: where all of a pool is replaced at once, the old ones serve until the
// first of the new ones can. A pool of which none is to stay just ends.
func (p *pool) leave(known map[fleet.EngineID]fleet.Readiness) {
	stay, serve := false, false
	for id, e := range p.engines {
		stay = stay || !e.leaves
		serve = serve || !e.leaves && known[id].Serves()
	}
	if stay && !serve {
		return
	}
	for id, e := range p.engines {
		if e.leaves && known[id].Serves() {
			known[id] = fleet.Draining
		}
	}
}

// doubted says whether the probes are contradicted by traffic. It is asked for a
// pool as a whole, because load reports do not tell its engines apart: they can
// contradict that all are dead, not that one is. Nor do they contradict an engine
// that answers, if only to say that it is not ready: it can be reached.
func (p *pool) doubted(now time.Time) bool {
	if now.Sub(p.answered) > answerCounts || len(p.engines) == 0 {
		return false
	}
	condemned := false
	for _, e := range p.engines {
		if !e.silent {
			return false
		}
		condemned = condemned || e.verdict == fleet.Ready && e.against >= verdictProbes
	}
	return condemned
}

func (p *pool) state(now time.Time) (st fleet.PoolState, doubted bool) {
	doubted = p.doubted(now)
	st.Engines = make(map[fleet.EngineID]fleet.Readiness, len(p.engines))
	for id, e := range p.engines {
		st.Engines[id] = e.settle(now, doubted)
	}
	p.leave(st.Engines)
	for id, e := range p.engines {
		if st.Engines[id] == fleet.Ready && !e.since.IsZero() {
			if st.ReadySince == nil {
				st.ReadySince = map[fleet.EngineID]time.Time{}
			}
			st.ReadySince[id] = e.since
		}
	}
	return st, doubted
}

// answers takes the load that an Envoy reports as evidence: pools where requests
// ended well. Issued requests that neither failed nor ended prove nothing, since
// an engine that hangs takes requests too.
func (n *node) answers(r fleet.LoadReport, answered func(fleet.PoolID)) {
	inFlight := map[route]uint64{}
	for _, c := range r.Classes {
		for _, l := range c.Pools {
			way := route{c.Class, l.Pool}
			inFlight[way] = l.InFlight
			if l.Issued+n.inFlight[way] > l.InFlight+l.Failed {
				answered(l.Pool)
			}
		}
	}
	n.inFlight = inFlight
}

package signals

import (
	"cmp"
	"slices"
	"time"

	"weir/fleet"
)

// attemptsSpan is how many seconds of reports attempts are believed from on.
const attemptsSpan = 2

// attempts are one node's requests of a class at the engines of a pool.
type attempts struct {
	way route
	// From Envoy's reports.
	span             decayed // seconds
	issued, failed   decayed // requests
	inFlightRequests decayed // requests × seconds
	// From weir-extproc's, which sees more: what is refused with a 429, too.
	ended, lost     decayed // attempts
	whole, streamed decayed // answers
}

// attemptsOf finds those of a way, or makes room for them.
func (n *node) attemptsOf(way route) *attempts {
	i, ok := slices.BinarySearchFunc(n.attempts, way, func(a *attempts, way route) int {
		return cmp.Or(cmp.Compare(a.way.class, way.class), cmp.Compare(a.way.pool, way.pool))
	})
	if !ok {
		n.attempts = slices.Insert(n.attempts, i, &attempts{way: way})
	}
	return n.attempts[i]
}

// observeAttempts takes a report of one of the node's two clients. A way without an
// entry was idle; one that the fleet does not know is left out.
func (n *node) observeAttempts(now time.Time, r *fleet.LoadReport, knows func(route) bool) {
	for i := range r.Classes {
		c := &r.Classes[i]
		for j := range c.Pools {
			l := &c.Pools[j]
			if way := (route{c.Class, l.Pool}); knows(way) {
				n.attemptsOf(way).observe(now, r, l)
			}
		}
	}
	if r.Role == fleet.RoleEnvoy {
		for _, a := range n.attempts {
			a.span.add(now, loadTau, r.Interval.Seconds())
		}
	}
}

func (a *attempts) observe(now time.Time, r *fleet.LoadReport, l *fleet.PoolLoad) {
	if r.Role == fleet.RoleEnvoy {
		a.issued.add(now, loadTau, float64(l.Issued))
		a.failed.add(now, loadTau, float64(min(l.Failed, l.Issued)))
		a.inFlightRequests.add(now, loadTau, float64(l.InFlight)*r.Interval.Seconds())
		return
	}
	for i := range l.Engines {
		e := &l.Engines[i]
		for o, count := range e.Outcomes {
			switch fleet.Outcome(o) {
			case fleet.Busy, fleet.ServerError, fleet.Refused, fleet.Reset:
				a.lost.add(now, loadTau, float64(count))
			}
			a.ended.add(now, loadTau, float64(count))
		}
		a.whole.add(now, loadTau, float64(e.Whole))
		a.streamed.add(now, loadTau, float64(e.TTFT.Count()))
	}
}

// sums of attempts: over ways, over nodes.
type sums struct{ rps, failed, inFlight, ended, lost, whole, streamed float64 }

// add adds those of a way. What a weir-extproc said that is not heard of any more is no
// word on what fails now; its Envoy's is.
func (s *sums) add(now time.Time, a *attempts, heard bool) {
	if span := a.span.read(now, loadTau); span > 0 {
		s.rps += a.issued.read(now, loadTau) / span
		s.failed += a.failed.read(now, loadTau) / span
		s.inFlight += a.inFlightRequests.read(now, loadTau) / span
	}
	ended, lost := &a.ended, &a.lost
	if !heard {
		ended, lost = &a.issued, &a.failed
	}
	s.ended += ended.read(now, loadTau)
	s.lost += lost.read(now, loadTau)
	s.whole += a.whole.read(now, loadTau)
	s.streamed += a.streamed.read(now, loadTau)
}

// failing is the part that fails by weir-extproc's word; else by Envoy's, which takes a
// 429 for an answer.
func (s *sums) failing() float64 {
	if s.ended > 1 {
		return s.lost / s.ended
	}
	return ratio(s.failed, s.rps)
}

func ratio(part, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return min(1, part/all)
}

// attempts adds to a state what front-ends that are heard of tell of their attempts.
func (t *Tracker) attempts(now time.Time, s *fleet.State, newest time.Time) {
	pools := map[fleet.PoolID]*sums{}
	at := map[fleet.PoolID]time.Time{}
	for i := range t.fleet.FrontEnds {
		id := t.fleet.FrontEnds[i].ID
		f := t.frontEnds[id]
		if f.heard.IsZero() || newest.Sub(f.heard) > frontEndSilent {
			continue
		}
		f.streams(now, func(class fleet.ClassID, a fleet.Attempts) { s.Attempts[fleet.Stream{FrontEnd: id, Class: class}] = a })
		for _, n := range f.nodes {
			if !n.envoy.fresh(f.heard) {
				continue
			}
			for _, a := range n.attempts {
				if pools[a.way.pool] == nil {
					pools[a.way.pool] = &sums{}
				}
				pools[a.way.pool].add(now, a, n.extProc.fresh(f.heard))
				at[a.way.pool] = latest(at[a.way.pool], f.heard)
			}
		}
	}
	for id, sum := range pools {
		st := s.Pools[id]
		if sum.ended > 1 || sum.rps*loadTau.Seconds() > 1 { // less is long ago
			st.Signals.Failed = fleet.Reading{Value: sum.failing(), At: at[id]}
		}
		s.Pools[id] = st
	}
}

// streams tells of each class that its nodes had requests of.
func (f *frontEnd) streams(now time.Time, tell func(fleet.ClassID, fleet.Attempts)) {
	all, busiest, spans := map[fleet.ClassID]*sums{}, map[fleet.ClassID]float64{}, map[fleet.ClassID]float64{}
	for _, n := range f.nodes {
		if !n.envoy.fresh(f.heard) {
			continue
		}
		own := map[fleet.ClassID]float64{}
		for _, a := range n.attempts {
			c := a.way.class
			if all[c] == nil {
				all[c] = &sums{}
			}
			before := all[c].inFlight
			all[c].add(now, a, n.extProc.fresh(f.heard))
			own[c] += all[c].inFlight - before
			spans[c] = max(spans[c], a.span.read(a.span.at, loadTau))
		}
		for c, inFlight := range own {
			busiest[c] = max(busiest[c], inFlight)
		}
	}
	for c, sum := range all {
		if spans[c] < attemptsSpan {
			continue
		}
		tell(c, fleet.Attempts{
			At: f.heard, Rps: sum.rps, Failed: sum.failing(), InFlight: sum.inFlight,
			Busiest: max(ratio(busiest[c], sum.inFlight), 1/float64(len(f.nodes))), Whole: ratio(sum.whole, sum.whole+sum.streamed),
		})
	}
}

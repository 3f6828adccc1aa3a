package signals

import (
	"cmp"
	"math"
	"slices"
	"time"

	"weir/fleet"
)

// The history of a pool: what its engines showed, by load, so that whoever asks can
// tell whether its profile is true and what would be truer.
//
// One span is kept for each step, and of each load only the newest few: rare loads,
// which tell most of a curve, are not crowded out by the usual one. A span counts only
// what is sound; what becomes odd under way is thrown away with all that the span had.
const (
	// settle is how long the same engines must have been ready: a new one comes to its
	// full part within 30 s, and has an empty cache for some more.
	settle = time.Minute
	// wellEnough is the least health: else part of the traffic stays away from some
	// engines, and those are not as loaded as the mean says.
	wellEnough = 0.97
	// fewestTimes make a span; with less it goes on, for no more than maxSteps.
	fewestTimes = 20
	maxSteps    = 10
	// A history has the newest historyRecent spans, whatever their load, and beyond
	// them historyOfLoad of each twentieth of the capacity up to historyLoads of them.
	// With spans of 300 bytes that is 50 kB a pool at the very most.
	historyRecent = 30
	historyOfLoad = 6
	historyLoads  = 24
	loadWidth     = 0.05
	historySteps  = 1440 // older is forgotten: a day of minutes
	// undecayed is far beyond a span: its means are plain ones.
	undecayed = 1000 * time.Hour
)

// record is what makes the history of one pool.
type record struct {
	spans   []fleet.Span // by time; replaced, never changed
	ready   uint64       // fingerprint of the engines that were, 0: not known
	settled time.Time    // when they are old news
	open    stretch
}

// stretch is the span that is under way.
type stretch struct {
	from, to      time.Time // zero: none is
	engineSeconds float64
	begun         map[fleet.FrontEndID]coverage
	issued        map[fleet.Stream]float64
	over          map[fleet.FrontEndID]attemptsOver
	seen          seen
}

type attemptsOver struct{ ended, failed float64 }

// coverage is for how long a front-end's clients have reported so far, in all, and how
// many they are. Reports come every few seconds: a span has some more of one client's
// than of another's, or one more than its length.
type coverage struct {
	envoySeconds, extProcSeconds float64
	envoys, extProcs             int
}

// scales are by what counts of Envoys and of weir-extprocs since then must be multiplied
// to be those of a time; false: other clients report than did, or some have not yet.
func (c coverage) scales(then coverage, seconds float64) (envoy, extProc float64, ok bool) {
	ok = c.envoys == then.envoys && c.extProcs == then.extProcs
	of := func(n int, covered float64) float64 {
		if n == 0 {
			return 0
		}
		if covered <= 0 {
			ok = false
			return 0
		}
		return float64(n) * seconds / covered
	}
	envoy, extProc = of(c.envoys, c.envoySeconds-then.envoySeconds), of(c.extProcs, c.extProcSeconds-then.extProcSeconds)
	return envoy, extProc, ok
}

// observe takes a report of one class at the pool.
func (r *record) observe(now time.Time, from fleet.Stream, l *fleet.PoolLoad, network float64) {
	if r.open.from.IsZero() {
		return
	}
	if l.Issued > 0 {
		r.open.issued[from] += float64(l.Issued)
	}
	over := r.open.over[from.FrontEnd]
	for i := range l.Engines {
		e := &l.Engines[i]
		r.open.seen.observe(now, undecayed, e, network)
		for o, n := range e.Outcomes {
			over.ended += float64(n)
			switch fleet.Outcome(o) {
			case fleet.Busy, fleet.ServerError, fleet.Refused, fleet.Reset:
				over.failed += float64(n)
			}
		}
	}
	if over.ended > 0 {
		r.open.over[from.FrontEnd] = over
	}
}

// round brings the record up to a round, in whose state is what is known of the pool's
// engines and health.
func (r *record) round(now time.Time, s *fleet.State, p *fleet.Pool, factor float64, covered map[fleet.FrontEndID]coverage) []fleet.Span {
	step := cmp.Or(s.Fleet.Options.HistoryStep, fleet.DefaultHistoryStep)
	r.spans = since(r.spans, now.Add(-historySteps*step)) // also of a pool that gets no more
	r.watch(now, s, p)
	ready := s.ReadyEngines(p)
	switch {
	case covered == nil || ready == 0 || now.Before(r.settled) || s.Health(p.ID) < wellEnough:
		r.open = stretch{}
		return r.spans
	case r.open.from.IsZero():
		r.begin(now, covered)
		return r.spans
	}
	r.open.engineSeconds += float64(ready) * max(0, now.Sub(r.open.to).Seconds())
	r.open.to = now
	length := now.Sub(r.open.from)
	enough := r.open.seen.ttft.count() >= fewestTimes
	if length < step || !enough && length < maxSteps*step {
		return r.spans
	}
	if span, ok := r.open.span(now, s, p, covered); ok && enough {
		span.Factor = factor
		r.spans = trim(append(slices.Clip(r.spans), span), &p.Profile)
	}
	r.begin(now, covered)
	return r.spans
}

func (r *record) begin(now time.Time, covered map[fleet.FrontEndID]coverage) {
	r.open = stretch{from: now, to: now, begun: covered, issued: map[fleet.Stream]float64{}, over: map[fleet.FrontEndID]attemptsOver{}}
}

// watch notes when other engines are ready than were.
func (r *record) watch(now time.Time, s *fleet.State, p *fleet.Pool) {
	var serve []fleet.EngineID
	for _, e := range p.Engines {
		if s.Readiness(p.ID, e).Serves() {
			serve = append(serve, e)
		}
	}
	print := fleet.FingerprintOf(serve)
	if r.ready != 0 && print != r.ready {
		r.settled = now.Add(settle)
	}
	r.ready = print
}

// span closes the stretch; false: it cannot be told how much was sent in it.
func (o *stretch) span(now time.Time, s *fleet.State, p *fleet.Pool, covered map[fleet.FrontEndID]coverage) (fleet.Span, bool) {
	out := fleet.Span{
		From: o.from, To: o.to, EngineSeconds: o.engineSeconds,
		TTFT: timing(&o.seen.ttft, now), TBT: timing(&o.seen.tbt, now),
	}
	for i := range s.Fleet.FrontEnds {
		id := s.Fleet.FrontEnds[i].ID
		sent, over, ok := covered[id].scales(o.begun[id], o.to.Sub(o.from).Seconds())
		if !ok {
			return out, false
		}
		out.Ended += over * o.over[id].ended
		out.Failed += over * o.over[id].failed
		before := out.Issued
		for j := range s.Fleet.Classes { // in their order, so that the sum is the same each time
			o.add(&out, s, &s.Fleet.Classes[j], p, sent*o.issued[fleet.Stream{FrontEnd: id, Class: s.Fleet.Classes[j].ID}])
		}
		if out.Issued > before && covered[id].extProcs == 0 {
			return out, false // nobody says what became of these
		}
	}
	if out.Issued == 0 {
		return out, false
	}
	out.Tokens.Prompt /= out.Issued
	out.Tokens.Output /= out.Issued
	out.Tokens.Cached /= out.Issued
	return out, true
}

// add counts requests of a class to a span, and sums up their tokens.
func (*stretch) add(to *fleet.Span, s *fleet.State, c *fleet.Class, p *fleet.Pool, n float64) {
	size := s.TokensOf(c)
	if size == (fleet.Tokens{}) {
		size = p.Profile.Reference // as plans take it
	}
	to.Issued += n
	to.Tokens.Prompt += n * size.Prompt
	to.Tokens.Output += n * size.Output
	to.Tokens.Cached += n * size.Cached
}

func timing(a *average, now time.Time) fleet.Timing {
	e := a.read(now, undecayed)
	return fleet.Timing{Items: math.Round(e.items), Seconds: e.mean, StdErr: e.stdErr}
}

// trim keeps the newest spans and, of each load, some of those before them. What it
// returns is a new slice.
func trim(spans []fleet.Span, p *fleet.Profile) []fleet.Span {
	recent := max(0, len(spans)-historyRecent)
	var kept []fleet.Span
	var of [historyLoads]int
	for i := recent - 1; i >= 0; i-- {
		load := min(historyLoads-1, int(max(0, spans[i].Utilisation(p)/loadWidth)))
		if of[load] < historyOfLoad {
			kept = append(kept, spans[i])
			of[load]++
		}
	}
	slices.Reverse(kept)
	return append(kept, spans[recent:]...)
}

// since are the spans that end after a time.
func since(spans []fleet.Span, oldest time.Time) []fleet.Span {
	for len(spans) > 0 && !spans[0].To.After(oldest) {
		spans = spans[1:]
	}
	return spans
}

// coverage is that of every front-end that was ever heard of; nil: one is silent, which
// may send by the last plan, or all are.
func (t *Tracker) coverage(now time.Time) map[fleet.FrontEndID]coverage {
	all, heard := make(map[fleet.FrontEndID]coverage, len(t.frontEnds)), false
	for id, f := range t.frontEnds {
		silent := now.Sub(f.heard)
		switch {
		case f.heard.IsZero():
		case silent > clientSilent:
			return nil
		default:
			all[id], heard = f.coverage(), true
		}
	}
	if !heard {
		return nil
	}
	return all
}

func (f *frontEnd) coverage() coverage {
	c := f.covered
	for _, n := range f.nodes {
		if n.envoy.fresh(f.heard) {
			c.envoys++
		}
		if n.extProc.fresh(f.heard) {
			c.extProcs++
		}
	}
	return c
}

// cover counts the time that a report speaks of.
func (f *frontEnd) cover(r *fleet.LoadReport) {
	if r.Role == fleet.RoleExtProc {
		f.covered.extProcSeconds += r.Interval.Seconds()
	} else {
		f.covered.envoySeconds += r.Interval.Seconds()
	}
}

// Remember begins with the history that an earlier process has kept. What cannot be true
// is left out, and what is more than a history has.
func (t *Tracker) Remember(now time.Time, all map[fleet.PoolID][]fleet.Span) {
	oldest := now.Add(-historySteps * cmp.Or(t.fleet.Options.HistoryStep, fleet.DefaultHistoryStep))
	for id, p := range t.pools {
		if len(p.record.spans) == 0 {
			sound := slices.DeleteFunc(slices.Clone(all[id]), func(s fleet.Span) bool {
				return !(s.EngineSeconds > 0 && s.Issued > 0 && s.TTFT.Items > 0 && s.TTFT.Seconds > 0) || !(s.Tokens.Prompt >= 0 && s.Tokens.Output >= 0) ||
					s.To.Before(s.From) || s.To.After(now)
			})
			p.record.spans = trim(since(sound, oldest), &p.named.Profile)
		}
	}
}

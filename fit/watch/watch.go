// Package watch asks, of a running control plane, whether the pools' profiles are still
// true, what traffic says they should be, and puts that in force where the fleet file
// asks for it. What is compared and fitted, and how, is package fit's; here is when.
//
// It works beside the loop: a fit takes as long as a plan, and nobody waits for it.
package watch

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"weir/fit"
	"weir/fleet"
)

const (
	// lookEvery is how often it looks whether a history has grown.
	lookEvery = time.Second
	// adoptSteps is how many spans lie between two steps towards a fit, so that the
	// next one rests on what the last one did.
	adoptSteps = 10
	// fitSteps is how many spans lie between two fits of a pool.
	fitSteps = 5
	// resamples are fewer than the command line takes: the interval is as wide, and a
	// little less sure.
	resamples = 40
)

// Watcher judges profiles. [New] makes one, Run runs it once.
type Watcher struct {
	Counters Counters

	latest func() fleet.Round
	adopt  func(fleet.PoolID, fleet.Adoption) bool
	log    *zap.Logger
	news   atomic.Pointer[[]fleet.ProfileNews]

	pools map[fleet.PoolID]*watched // only the goroutine of Run touches these
}

// Counters count what was made of fits. Any goroutine may read them.
type Counters struct {
	Fits      atomic.Uint64
	Unfitted  atomic.Uint64 // histories that said too little
	Adoptions atomic.Uint64 // steps towards a fit that were put in force
}

// watched is what is known of one pool.
type watched struct {
	news    fleet.ProfileNews
	newest  time.Time     // end of the last span that was judged
	judged  time.Time     // when
	profile fleet.Profile // by which
	file    fleet.Profile // the fleet file's, for which a fit was made
	since   time.Time     // when the engines became other than the profile said that stood then
	sinceFit,
	sinceAdoption int // spans
	fitted *fit.Result
}

// New returns a watcher. Adopt puts a profile in force in place of a pool's, and says
// whether it could; it is called by the goroutine of Run.
func New(latest func() fleet.Round, adopt func(fleet.PoolID, fleet.Adoption) bool, log *zap.Logger) *Watcher {
	return &Watcher{latest: latest, adopt: adopt, log: log, pools: map[fleet.PoolID]*watched{}}
}

// News is what traffic says of each pool's profile, by pool. It is immutable, and any
// goroutine may ask.
func (w *Watcher) News() []fleet.ProfileNews {
	if n := w.news.Load(); n != nil {
		return *n
	}
	return nil
}

// Run looks until the context ends, and then returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if r := w.latest(); r.State != nil {
				w.look(ctx, r.At, r.State)
			}
		}
	}
}

// look judges the pools whose history has grown, or whose profile is another one.
func (w *Watcher) look(ctx context.Context, now time.Time, s *fleet.State) {
	var all []fleet.ProfileNews
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		if w.pools[p.ID] == nil {
			w.pools[p.ID] = &watched{sinceFit: fitSteps, sinceAdoption: adoptSteps}
		}
		of, h := w.pools[p.ID], s.Pools[p.ID].History
		grown := len(h) > 0 && h[len(h)-1].To.After(of.newest)
		// A drift that nothing speaks of any more is forgotten.
		due := len(of.news.Drifts) > 0 && now.Sub(of.judged) >= stepOf(s)
		if grown || due || of.news.Pool == "" || !of.profile.Same(&p.Profile) || of.news.Adopted != (p.FileProfile != nil) {
			w.judge(now, s, p, of, grown)
		}
		all = append(all, of.news)
		if ctx.Err() != nil {
			return
		}
	}
	w.news.Store(&all)
	for id := range w.pools {
		if s.Fleet.Pool(id) == nil {
			delete(w.pools, id)
		}
	}
}

// judge compares a pool's history with its profile, and fits another one where it has
// drifted.
func (w *Watcher) judge(now time.Time, s *fleet.State, p *fleet.Pool, of *watched, grown bool) {
	h := s.Pools[p.ID].History
	c := fit.Compare(&p.Profile, h, now, stepOf(s))
	of.judged = now
	w.tell(p, of.news.Drifts, c.Drifts)
	before := of.news
	if !of.file.Same(file(p)) { // what was fitted was for another one
		of.file, of.fitted, of.sinceFit, before.Fitted, before.Unfitted = *file(p), nil, fitSteps, nil, ""
	}
	of.profile = p.Profile
	of.news = fleet.ProfileNews{
		Pool: p.ID, Spans: len(h), Compared: c.Spans, Why: c.Why, Drifts: slices.Clip(append([]fleet.Drift{}, c.Drifts...)),
		Adopted: p.FileProfile != nil, CapacityRps: p.Profile.CapacityRps, FileRps: p.Profile.CapacityRps,
	}
	if p.FileProfile != nil {
		of.news.FileRps = p.FileProfile.CapacityRps
	}
	if grown {
		of.newest = h[len(h)-1].To
		of.sinceFit++
		of.sinceAdoption++
	}
	switch {
	case len(c.Drifts) > 0:
		of.since = of.news.Began()
	case !of.news.Adopted: // what is adopted comes to its end, though it is near it
		of.fitted, of.sinceFit, of.since = nil, fitSteps, time.Time{}
		return
	}
	of.news.Since = of.since
	if of.sinceFit >= fitSteps {
		w.fit(h, p, of)
	} else {
		of.news.Fitted, of.news.Unfitted = before.Fitted, before.Unfitted
	}
	switch {
	case !p.AdoptFit:
	case s.Fleet.Options.DeclaredOnly:
		of.news.Adopting = "by its option demand the fleet file's capacities rule"
	default:
		of.news.Adopting = w.step(p, of)
	}
}

func stepOf(s *fleet.State) time.Duration {
	return cmp.Or(s.Fleet.Options.HistoryStep, fleet.DefaultHistoryStep)
}

// fit makes a profile of what a pool has shown since it drifted.
func (w *Watcher) fit(h []fleet.Span, p *fleet.Pool, of *watched) {
	of.sinceFit = 0
	r, err := fit.FitHistory(h, of.since, file(p), fit.Options{Resamples: resamples})
	if of.fitted = r; err != nil {
		w.Counters.Unfitted.Add(1)
		of.fitted, of.news.Unfitted = nil, err.Error()
		return
	}
	w.Counters.Fits.Add(1)
	of.news.Fitted = &fleet.FitSummary{CapacityRps: r.Profile.CapacityRps, LowRps: r.CapacityRps.Low, HighRps: r.CapacityRps.High}
}

// file is the profile of the fleet file, which says what the operator wants of capacity.
func file(p *fleet.Pool) *fleet.Profile {
	if p.FileProfile != nil {
		return p.FileProfile
	}
	return &p.Profile
}

// step puts the next profile towards the fit in force, or says why not.
func (w *Watcher) step(p *fleet.Pool, of *watched) string {
	switch {
	case of.fitted == nil:
		return of.news.Unfitted
	case of.sinceAdoption < adoptSteps:
		return "what the last step did must show first"
	}
	next, err := fit.Adopt(&p.Profile, of.fitted)
	if err != nil {
		return err.Error()
	}
	if !w.adopt(p.ID, fleet.Adoption{File: *file(p), Profile: next}) {
		return "the control plane is overloaded"
	}
	w.Counters.Adoptions.Add(1)
	of.sinceAdoption = 0
	w.log.Info("profile adopted", zap.String("pool", string(p.ID)), zap.Float64("capacityRps", next.CapacityRps),
		zap.Float64("fittedRps", of.fitted.Profile.CapacityRps), zap.Float64("beforeRps", p.Profile.CapacityRps))
	return ""
}

// tell logs drifts that begin and end.
func (w *Watcher) tell(p *fleet.Pool, before, now []fleet.Drift) {
	switch {
	case len(before) == 0 && len(now) > 0:
		d := now[0]
		w.log.Warn("profile has drifted", zap.String("pool", string(p.ID)), zap.String("signal", string(d.Signal)),
			zap.Float64("load", d.Low), zap.Float64("ratio", d.Ratio), zap.Float64("stdErr", d.StdErr), zap.Time("since", d.Since))
	case len(before) > 0 && len(now) == 0:
		w.log.Info("profile holds again", zap.String("pool", string(p.ID)))
	}
}

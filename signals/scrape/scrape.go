// Package scrape fetches engines' metrics pages for the control plane: every
// engine once a second, within bounds of time, memory and connections.
//
// What a page says is the business of package dialect. A page that cannot be had
// leaves what was known, as stale, and after a minute nothing: unknown is never
// zero.
package scrape

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
	"weir/signals/dialect"
)

const (
	interval = time.Second
	// beat is what the scrapes of one moment share: few wake-ups for many
	// engines halve the cost of an idle fleet.
	beat = interval / 5
	// Timeout is how long one page may take, from the connection to its end.
	Timeout = 2 * time.Second
	// forgetAfter is how long values are told as stale.
	forgetAfter = time.Minute

	// maxScrapes bounds the pages that are read at once. Engines whose last page
	// could not be had have slots of their own, so that those which hang do not
	// keep the others waiting.
	maxScrapes, maxDoubtful = 128, 64
)

// otherEngine is the type of engines that have no metrics to read.
const otherEngine = "other"

// Sample is what one scrape says of one engine.
type Sample struct {
	Pool   fleet.PoolID
	Engine fleet.EngineID
	At     time.Time // when the page was read, or could not be
	Err    error     // nil: a page was read; else why not

	Dialect string
	Values  dialect.Values // stale if Err is not nil
	ReadAt  time.Time      // when Values were read; zero: never
	Notes   []string       // samples of the page that were not used, and why

	// Window is what happened since the page before this one, Over ago. Without
	// either page it is unknown.
	Window dialect.Window
	Over   time.Duration
}

// Clients makes the client for a pool's engines and tells the scheme of their URLs.
type Clients func(*fleet.TLS) (client *http.Client, scheme string, err error)

// Scraper reads the metrics of every engine of the fleet once a second.
type Scraper struct {
	Counters Counters
	// Override tells what an operator knows better of a pool's engines; nil:
	// nothing. Set it before Run.
	Override func(*fleet.Pool) dialect.Override

	log     *zap.Logger
	clients Clients
	report  func(Sample)
	known   *book
	fleets  chan *fleet.Fleet // holds the fleet to scrape next

	slots, doubtful chan struct{}
}

// New returns a scraper of a fleet's engines. It calls report for each scrape,
// from many goroutines at once; report must not block.
func New(log *zap.Logger, f *fleet.Fleet, clients Clients, report func(Sample)) *Scraper {
	s := &Scraper{
		log:      log,
		clients:  clients,
		report:   report,
		known:    newBook(dialect.NewTable(dialect.Dialects()...)),
		fleets:   make(chan *fleet.Fleet, 1),
		slots:    make(chan struct{}, maxScrapes),
		doubtful: make(chan struct{}, maxDoubtful),
	}
	s.SetFleet(f)
	return s
}

// watch scrapes one engine each second, give or take a tenth so that the engines
// spread over the beats.
func (s *Scraper) watch(ctx context.Context, t *target) {
	timer := time.NewTimer(rand.N(interval))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		timer.Reset(untilNext(time.Now()))
		release, ok := s.acquire(ctx, t.failing)
		if !ok {
			return
		}
		page, err := t.scrape(ctx)
		release()
		if ctx.Err() != nil {
			return // the scrape was cut short and says nothing
		}
		s.Counters.count(&page, err)
		s.logChange(t, page.Dialect, err)
		s.report(t.sample(time.Now(), &page, err))
	}
}

// untilNext is how long to wait for the beat of an engine's next scrape.
func untilNext(now time.Time) time.Duration {
	next := now.Add(interval - interval/10 + rand.N(interval/5))
	return next.Round(beat).Sub(now)
}

// acquire waits for a slot; a wait beyond a beat is counted.
func (s *Scraper) acquire(ctx context.Context, failing bool) (release func(), ok bool) {
	slots := s.slots
	if failing {
		slots = s.doubtful
	}
	began := time.Now()
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	if time.Since(began) > beat {
		s.Counters.Late.Add(1)
	}
	return func() { <-slots }, true
}

// logChange logs that an engine's metrics can be read or no longer can; other
// reasons why they cannot are not told.
func (s *Scraper) logChange(t *target, name string, err error) {
	log := s.log.With(zap.String("pool", string(t.pool)), zap.String("engine", string(t.engine)))
	switch {
	case err == nil && (t.failing || t.read.dialect != name):
		log.Info("engine's metrics are read", zap.String("dialect", name))
	case err != nil && !t.failing:
		log.Warn("engine's metrics cannot be read", zap.Error(err))
	}
}

package scrape

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/signals/dialect"
)

// Counters count what became of scrapes. Any goroutine may read them.
type Counters struct {
	Read         atomic.Uint64 // pages that were read
	Unreachable  atomic.Uint64 // no connection, or it broke
	Timeout      atomic.Uint64 // no page in time
	Status       atomic.Uint64 // an answer other than 200, a redirect included
	Encoding     atomic.Uint64 // a page that cannot be unpacked
	Unrecognised atomic.Uint64 // a page of no engine that Weir knows

	Cut            atomic.Uint64 // fallback: pages that broke off, and were used as far as they went
	SamplesDropped atomic.Uint64 // samples of pages that were not used
	Late           atomic.Uint64 // scrapes that waited for others to end, beyond a beat
	PoolsSkipped   atomic.Uint64 // pools whose pages cannot be read, once a fleet
}

func (c *Counters) count(p *dialect.Page, err error) {
	c.outcome(err).Add(1)
	c.SamplesDropped.Add(uint64(p.Dropped))
	if err == nil && p.Cut {
		c.Cut.Add(1)
	}
}

func (c *Counters) outcome(err error) *atomic.Uint64 {
	switch {
	case err == nil:
		return &c.Read
	case errors.Is(err, errTimeout):
		return &c.Timeout
	case errors.Is(err, errStatus), errors.Is(err, errRedirect):
		return &c.Status
	case errors.Is(err, errEncoding):
		return &c.Encoding
	case errors.Is(err, ErrNoDialect):
		return &c.Unrecognised
	}
	return &c.Unreachable
}

// RegisterMetrics has the scraper's counters collected.
func (c *Counters) RegisterMetrics(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newScrapes("read", &c.Read)),
		r.Register(newScrapes("unreachable", &c.Unreachable)),
		r.Register(newScrapes("timeout", &c.Timeout)),
		r.Register(newScrapes("status", &c.Status)),
		r.Register(newScrapes("encoding", &c.Encoding)),
		r.Register(newScrapes("unrecognised", &c.Unrecognised)),
		r.Register(newCounter("scrapes_cut", "Metrics pages that broke off and were used as far as they went.", &c.Cut)),
		r.Register(newCounter("samples_dropped", "Samples of engines' metrics that were not used: they cannot be true or cannot be read.", &c.SamplesDropped)),
		r.Register(newCounter("scrapes_late", "Scrapes of engines' metrics that waited for others to end.", &c.Late)),
		r.Register(newCounter("pools_unscraped", "Pools whose engines' metrics cannot be read, once a fleet.", &c.PoolsSkipped)),
	)
}

func newScrapes(outcome string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{
		Name:        "weir_signals_scrapes_total",
		Help:        "Scrapes of engines' metrics, by outcome.",
		ConstLabels: prometheus.Labels{"outcome": outcome},
	}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

func newCounter(name, help string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: "weir_signals_" + name + "_total", Help: help}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

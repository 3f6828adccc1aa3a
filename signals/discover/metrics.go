package discover

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// RegisterMetrics has the book's counters collected.
func (c *Counters) RegisterMetrics(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newCounter("answers", "Answers of sources of engines that were taken.", &c.Answers)),
		r.Register(newCounter("failed", "Times that a source of engines could not tell and its last answer stayed.", &c.Failed)),
		r.Register(newCounter("doubted", "Answers without engines that were not believed yet.", &c.Doubted)),
		r.Register(newCounter("refused", "Engines that a pool did not get, being another pool's or too many.", &c.Refused)),
		r.Register(newCounter("cut", "Engines left out when the time for their requests was up.", &c.Cut)),
	)
}

func newCounter(name, help string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: "weir_discover_" + name + "_total", Help: help}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

// RegisterSources has collected what the last round knew of the sources of engines.
func RegisterSources(r prometheus.Registerer, latest func() fleet.Round) error {
	return r.Register(sources{latest})
}

type sources struct{ latest func() fleet.Round }

var (
	enginesFigure = figure("engines", "Engines of a pool that its source names; absent: they stand in the fleet file.")
	leavingFigure = figure("engines_leaving", "Engines of a pool that its source names no more, and that end what they have.")
	troubleFigure = figure("troubled", "1 while a pool's engines may not be those that its source has.")
	heardFigure   = figure("age_seconds", "Time since a pool's source last answered; absent: this process has not heard it.")
)

func figure(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("weir_discover_"+name, help, []string{"pool"}, nil)
}

// Describe implements [prometheus.Collector].
func (sources) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{enginesFigure, leavingFigure, troubleFigure, heardFigure} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (s sources) Collect(out chan<- prometheus.Metric) {
	r := s.latest()
	if r.State == nil {
		return
	}
	for id, known := range r.State.Sources {
		set := func(d *prometheus.Desc, value float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, string(id))
		}
		set(enginesFigure, float64(known.Engines))
		set(leavingFigure, float64(known.Leaving))
		trouble := 0.0
		if known.Problem != "" {
			trouble = 1
		}
		set(troubleFigure, trouble)
		if !known.Heard.IsZero() {
			set(heardFigure, r.At.Sub(known.Heard).Seconds())
		}
	}
}

package watch

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// RegisterMetrics has the counters and what is found of profiles collected.
func (w *Watcher) RegisterMetrics(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newCounter("fits", "Profiles that were fitted to the traffic of pools whose own has drifted.", &w.Counters.Fits)),
		r.Register(newCounter("fits_refused", "Histories of such pools that said too little for a fit.", &w.Counters.Unfitted)),
		r.Register(newCounter("adoptions", "Steps towards a fitted profile that were put in force.", &w.Counters.Adoptions)),
		r.Register(figures{w}),
	)
}

func newCounter(name, help string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: "weir_profile_" + name + "_total", Help: help}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

// figures shows what is found of each pool's profile.
type figures struct{ watcher *Watcher }

var (
	spans   = figure("spans", "Stretches of traffic by which a pool's profile can be judged.", "pool")
	drift   = figure("drift_ratio", "What traffic shows over what the profile says, at the load where that is farthest off; 1: no drift is named.", "pool", "signal")
	adopted = figure("adopted", "1 where a profile that was fitted to traffic stands in for the fleet file's.", "pool")
)

func figure(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_profile_"+name, help, labels, nil)
}

// Describe implements [prometheus.Collector].
func (figures) Describe(out chan<- *prometheus.Desc) {
	out <- spans
	out <- drift
	out <- adopted
}

// Collect implements [prometheus.Collector].
func (f figures) Collect(out chan<- prometheus.Metric) {
	for _, n := range f.watcher.News() {
		set := func(d *prometheus.Desc, value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{string(n.Pool)}, labels...)...)
		}
		set(spans, float64(n.Spans))
		for _, s := range []fleet.Signal{fleet.SignalTTFT, fleet.SignalTBT} {
			set(drift, n.Farthest(s), string(s))
		}
		stands := 0.0
		if n.Adopted {
			stands = 1
		}
		set(adopted, stands)
	}
}

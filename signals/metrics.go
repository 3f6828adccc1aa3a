package signals

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics has the tracker's counters collected.
func (c *Counters) RegisterMetrics(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newCounter("reports_refused", "Load reports with an impossible interval, count or node.", &c.ReportsRefused)),
		r.Register(newCounter("reports_unknown", "Load reports from front-ends that the fleet does not name.", &c.ReportsUnknown)),
		r.Register(newCounter("classes_unknown", "Entries of load reports for classes that the fleet does not name.", &c.ClassesUnknown)),
		r.Register(newCounter("nodes_refused", "Load reports from nodes beyond the cap of their front-end.", &c.NodesRefused)),
		r.Register(newCounter("samples_unknown", "Scrapes of engines that the fleet does not name.", &c.SamplesUnknown)),
		r.Register(newCounter("probes_unknown", "Probes of engines that the fleet does not name.", &c.ProbesUnknown)),
		r.Register(newCounter("streams_stood_in", "Demands that rested on Envoy's counts, at least in part, once a round.", &c.StreamsStoodIn)),
		r.Register(newCounter("streams_forgotten", "Demands that fell back from measured to declared, once a round.", &c.StreamsForgotten)),
		r.Register(newCounter("pools_doubted", "Pools whose failing probes were not believed, once a round.", &c.PoolsDoubted)),
	)
}

// RegisterMetrics has the prober's counters collected.
func (c *ProbeCounters) RegisterMetrics(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newProbes("ready", &c.Ready)),
		r.Register(newProbes("unready", &c.Unready)),
		r.Register(newCounter("pools_unprobed", "Pools that could not be probed, their TLS files being unreadable, once a fleet.", &c.PoolsUnprobed)),
	)
}

func newProbes(outcome string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{
		Name:        "weir_signals_probes_total",
		Help:        "Health checks of engines, by outcome.",
		ConstLabels: prometheus.Labels{"outcome": outcome},
	}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

func newCounter(name, help string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: "weir_signals_" + name + "_total", Help: help}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

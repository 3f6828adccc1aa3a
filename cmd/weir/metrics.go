package main

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// planeCounters count the fallbacks of the wiring. Any goroutine may read them.
type planeCounters struct {
	fleetRefused   atomic.Uint64 // times that the fleet file was not taken and the last one stayed
	restoresFailed atomic.Uint64 // state directories whose plan could not be used
}

func (p *plane) registerMetrics(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newCounter("fleet_refused", "Times that the fleet file was not taken and the last one stayed.", &p.counters.fleetRefused)),
		r.Register(newCounter("restores_failed", "State directories whose plan could not be used.", &p.counters.restoresFailed)),
	)
}

func newCounter(name, help string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: "weir_serve_" + name + "_total", Help: help}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

package signals

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// RegisterBeliefs has collected what the last round believed of pools by their
// engines' and front-ends' word. What is not known has no sample.
func RegisterBeliefs(r prometheus.Registerer, latest func() fleet.Round) error {
	return r.Register(beliefs{latest})
}

type beliefs struct{ latest func() fleet.Round }

var (
	factorFigure = figure("capacity_factor", "What the evidence makes of a pool's profile; absent: there is none.")
	loadFigure   = figure("load", "Work that each ready engine of a pool is sent, 1 being what its profile promises; absent: none was reported.")
	staleFigure  = figure("engines_stale", "Engines of a pool whose metrics are asked for and not believed; absent: none were asked for.")
)

func figure(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("weir_signals_"+name, help, []string{"pool"}, nil)
}

// Describe implements [prometheus.Collector].
func (beliefs) Describe(out chan<- *prometheus.Desc) {
	out <- factorFigure
	out <- loadFigure
	out <- staleFigure
}

// Collect implements [prometheus.Collector].
func (b beliefs) Collect(out chan<- prometheus.Metric) {
	s := b.latest().State
	if s == nil {
		return
	}
	for id, p := range s.Pools {
		set := func(d *prometheus.Desc, known bool, value float64) {
			if known {
				out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, string(id))
			}
		}
		set(factorFigure, p.CapacityFactor != 0, p.CapacityFactor)
		set(loadFigure, p.Signals.Load.Known(), p.Signals.Load.Value)
		set(staleFigure, len(p.Signals.Engines) > 0, stale(p.Signals.Engines))
	}
}

func stale(engines map[fleet.EngineID]fleet.EngineSignals) (n float64) {
	for _, e := range engines {
		if e.Why != "" {
			n++
		}
	}
	return n
}

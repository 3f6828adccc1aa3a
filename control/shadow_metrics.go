package control

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// registerShadow has the shadow's counters and figures collected.
func (l *Loop) registerShadow(r prometheus.Registerer) error {
	c := &l.Counters
	return errors.Join(
		r.Register(shadowCounter("plans", "Plans that the shadow policy made.", &c.ShadowsPlanned)),
		r.Register(shadowCounter("failed", "Rounds in which the shadow policy made no plan, or one that a guard refused.", &c.ShadowsFailed)),
		r.Register(shadowCounter("skipped", "Rounds that the shadow policy missed, still being at an earlier one.", &c.ShadowsSkipped)),
		r.Register(shadowFigures{l.Latest}),
	)
}

func shadowCounter(name, help string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: "weir_shadow_" + name + "_total", Help: help}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

// shadowFigures shows what the shadow's last plan would change. They are absent while
// it has none.
type shadowFigures struct{ latest func() fleet.Round }

var (
	shadowLatency     = shadowFigure("mean_latency_difference_seconds", "Mean latency that the shadow policy's plan expects, less that of the plan in force.")
	shadowMoved       = shadowFigure("moved_ratio", "Part of the admitted traffic that the shadow policy would send to another pool.")
	shadowShed        = shadowFigure("shed_difference_rps", "What the shadow policy would refuse, less what the plan in force refuses.")
	shadowUtilisation = shadowFigure("max_utilisation_ratio", "Utilisation of the fullest pool by the shadow policy's plan.")
)

func shadowFigure(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("weir_shadow_"+name, help, []string{"policy"}, nil)
}

// Describe implements [prometheus.Collector].
func (shadowFigures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{shadowLatency, shadowMoved, shadowShed, shadowUtilisation} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (f shadowFigures) Collect(out chan<- prometheus.Metric) {
	sh := f.latest().Shadow
	if sh == nil || sh.Difference == nil {
		return
	}
	g := gauges{out}
	g.set(shadowLatency, sh.Difference.MeanSeconds, sh.Policy)
	g.set(shadowMoved, sh.Difference.MovedShare, sh.Policy)
	g.set(shadowShed, sh.Difference.ShedRps, sh.Policy)
	g.set(shadowUtilisation, sh.Difference.MaxUtilisation, sh.Policy)
}

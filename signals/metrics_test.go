package signals

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	var c Counters
	var p ProbeCounters
	r := prometheus.NewPedanticRegistry()
	if err := errors.Join(c.RegisterMetrics(r), p.RegisterMetrics(r)); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	c.ReportsRefused.Add(1)
	c.ReportsUnknown.Add(2)
	c.ClassesUnknown.Add(3)
	c.NodesRefused.Add(4)
	c.SamplesUnknown.Add(9)
	c.ProbesUnknown.Add(5)
	c.StreamsStoodIn.Add(6)
	c.StreamsForgotten.Add(7)
	c.PoolsDoubted.Add(8)
	p.count(nil)
	p.count(errors.New("down"))
	p.count(errors.New("down"))
	p.PoolsUnprobed.Add(9)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "weir_signals_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"reports_refused_total":   1,
		"reports_unknown_total":   2,
		"classes_unknown_total":   3,
		"nodes_refused_total":     4,
		"samples_unknown_total":   9,
		"probes_unknown_total":    5,
		"streams_stood_in_total":  6,
		"streams_forgotten_total": 7,
		"pools_doubted_total":     8,
		"probes_total ready":      1,
		"probes_total unready":    2,
		"pools_unprobed_total":    9,
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
}

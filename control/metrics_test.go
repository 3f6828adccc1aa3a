package control

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"weir/fleet"
)

// registered returns a registry with a loop's and a keeper's metrics.
func registered(t *testing.T, l *Loop) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := errors.Join(l.RegisterMetrics(r), NewKeeper(Store{}, zap.NewNop()).RegisterMetrics(r)); err != nil {
		t.Fatal(err)
	}
	return r
}

func lint(t *testing.T, r *prometheus.Registry) {
	t.Helper()
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// value is that of the one series of a name with those label values.
func value(t *testing.T, r *prometheus.Registry, name string, labels ...string) (v float64, ok bool) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == "weir_control_"+name && strings.Join(values, " ") == strings.Join(labels, " ") {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
			}
		}
	}
	return 0, false
}

func TestMetricsOfALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testConfig())
		r := registered(t, l)
		lint(t, r)
		if v, ok := value(t, r, "round_age_seconds"); ok {
			t.Errorf("the last round's age before the first: %v, want none", v)
		}
		runLoop(t, l)
		elapse(time.Second)
		synctest.Wait()
		elapse(500 * time.Millisecond)
		lint(t, r)
		at := l.Latest().At
		for _, c := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"rounds_total", nil, 1},
			{"planning_seconds", nil, 1},
			{"round_age_seconds", nil, time.Since(at).Seconds()},
			{"plan_age_seconds", nil, time.Since(at).Seconds()},
			{"plan_status", []string{"Optimal"}, 1},
			{"plan_status", []string{"Held"}, 0},
			{"plan_status", []string{"Routed"}, 0},
			{"policy", []string{"optimal"}, 1},
			{"policy", []string{"nearest"}, 0},
			{"pool_engines", []string{"p", "ready"}, 2},
			{"pool_engines", []string{"p", "unready"}, 0},
			{"pool_health_ratio", []string{"p"}, 1},
			{"pool_capacity_factor_ratio", []string{"q"}, 1},
			{"demand_rps", []string{string(stream.Class), string(stream.FrontEnd)}, l.Latest().State.Demand[stream].Rps},
			{"shed_rps", []string{string(stream.Class), string(stream.FrontEnd)}, 0},
			{"rounds_held_total", nil, 0},
			{"plans_unsaved_total", nil, 0},
		} {
			if got, ok := value(t, r, c.name, c.labels...); !ok || got != c.want {
				t.Errorf("%s%v = %v (there: %v), want %v", c.name, c.labels, got, ok, c.want)
			}
		}
	})
}

// The figures are those of the plan: shares, rates, pools.
func TestMetricsOfAPlan(t *testing.T) {
	l := New(testConfig())
	l.latest.Store(&fleet.Round{
		At:    time.Now(),
		State: &fleet.State{Fleet: &fleet.Fleet{Pools: []fleet.Pool{{ID: "p", Engines: []fleet.EngineID{"a", "b"}}}}, Demand: map[fleet.Stream]fleet.Demand{{FrontEnd: "f", Class: "k"}: {Rps: 9, Source: fleet.SourceEnvoy}}},
		Plan: &fleet.Plan{
			Status: fleet.Shedding, MeanSeconds: 0.25,
			Routes: []fleet.Route{{FrontEnd: "f", Class: "k", DemandRps: 9, ShedRps: 1, Shares: []fleet.Share{{Pool: "p", Share: 0.75, Rps: 6}, {Pool: "q", Share: 0.25, Rps: 2}}}},
			Pools:  []fleet.PoolPlan{{Pool: "p", CapacityRps: 6, Rps: 6, Utilisation: 1, PriceSeconds: 3}},
		},
	})
	r := registered(t, l)
	lint(t, r)
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"mean_latency_seconds", nil, 0.25},
		{"plan_status", []string{"Shedding"}, 1},
		{"streams", []string{"envoy"}, 1},
		{"streams", []string{"declared"}, 0},
		{"demand_rps", []string{"k", "f"}, 9},
		{"shed_rps", []string{"k", "f"}, 1},
		{"planned_rps", []string{"k", "f", "q"}, 2},
		{"share_ratio", []string{"k", "f", "p"}, 0.75},
		{"pool_capacity_rps", []string{"p"}, 6},
		{"pool_planned_rps", []string{"p"}, 6},
		{"pool_utilisation_ratio", []string{"p"}, 1},
		{"pool_price_seconds", []string{"p"}, 3},
		{"pool_replica_gain_requests", []string{"p"}, 9}, // 3 × 6 RPS over two engines
	} {
		if got, ok := value(t, r, c.name, c.labels...); !ok || got != c.want {
			t.Errorf("%s%v = %v (there: %v), want %v", c.name, c.labels, got, ok, c.want)
		}
	}
	other := *l.latest.Load().Plan
	other.Policy = fleet.PolicyNearest
	round := *l.latest.Load()
	round.Plan = &other
	l.latest.Store(&round)
	for _, name := range []string{"pool_price_seconds", "pool_replica_gain_requests"} {
		if v, ok := value(t, r, name, "p"); ok {
			t.Errorf("%s of a plan by a policy that knows none: %v", name, v)
		}
	}
	if v, ok := value(t, r, "plan_age_seconds"); ok {
		t.Errorf("the age of a plan of an earlier process: %v, want none", v)
	}
}

// The shadow's figures are those of its last plan, and gone when it has none.
func TestMetricsOfAShadow(t *testing.T) {
	l := New(testConfig())
	r := registered(t, l)
	for _, name := range []string{"mean_latency_difference_seconds", "moved_ratio"} {
		if v, ok := shadowValue(t, r, name); ok {
			t.Errorf("%s without a shadow: %v, want none", name, v)
		}
	}
	l.Counters.ShadowsPlanned.Store(3)
	l.Counters.ShadowsFailed.Store(2)
	l.Counters.ShadowsSkipped.Store(1)
	l.latest.Store(&fleet.Round{Shadow: &fleet.Shadow{
		Policy:     fleet.PolicyNearest,
		Difference: &fleet.Difference{MeanSeconds: -0.002, MovedShare: 0.08, ShedRps: -5, MaxUtilisation: 1.2},
	}})
	lint(t, r)
	for name, want := range map[string]float64{
		"mean_latency_difference_seconds": -0.002, "moved_ratio": 0.08, "shed_difference_rps": -5, "max_utilisation_ratio": 1.2,
		"plans_total": 3, "failed_total": 2, "skipped_total": 1,
	} {
		if got, ok := shadowValue(t, r, name); !ok || got != want {
			t.Errorf("%s = %v (there: %v), want %v", name, got, ok, want)
		}
	}
	l.latest.Store(&fleet.Round{Shadow: &fleet.Shadow{Policy: fleet.PolicyNearest, Why: "luckless"}})
	if v, ok := shadowValue(t, r, "moved_ratio"); ok {
		t.Errorf("of a plan that there is not: %v", v)
	}
}

func shadowValue(t *testing.T, r *prometheus.Registry, name string) (v float64, ok bool) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "weir_shadow_"+name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
		}
	}
	return 0, false
}

// What is dropped or not waited for is counted.
func TestFallbacksAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		c.Restored = &fleet.Plan{MeanSeconds: -1}
		state := c.State
		c.State = func(now time.Time, previous *fleet.Plan) *fleet.State {
			s := state(now, previous)
			s.Pools = nil // nothing was heard of any engine
			return s
		}
		l := New(c)
		if got := l.Counters.RestoredDropped.Load(); got != 1 {
			t.Errorf("%d restored plans dropped, want 1", got)
		}
		runLoop(t, l)
		elapse(probeWait + time.Second)
		synctest.Wait()
		if got := l.Counters.StartsUnprobed.Load(); got != 1 {
			t.Errorf("%d starts without probes, want 1", got)
		}
	})
}

// A stream that is not measured any more keeps its retries, and that is counted.
func TestKeptRetryBudgetsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		state, measured := c.State, true
		c.State = func(now time.Time, previous *fleet.Plan) *fleet.State {
			s := state(now, previous)
			if measured {
				s.Attempts = map[fleet.Stream]fleet.Attempts{stream: {At: now, Rps: 10, InFlight: 100, Busiest: 1}}
			}
			return s
		}
		l := New(c)
		runLoop(t, l)
		before := aRound(l).State.RetriesOf(stream)
		if got := l.Counters.BudgetsKept.Load(); got != 0 {
			t.Errorf("%d budgets kept while they are measured, want none", got)
		}
		l.Post(func(time.Time) { measured = false })
		after := aRound(l).State.RetriesOf(stream)
		if after.RetryBudget != before.RetryBudget || after.Why == before.Why {
			t.Errorf("unmeasured the budget is %+v, want that of before: %+v", after, before)
		}
		if got := l.Counters.BudgetsKept.Load(); got != 1 {
			t.Errorf("%d budgets kept, want 1 in a round", got)
		}
	})
}

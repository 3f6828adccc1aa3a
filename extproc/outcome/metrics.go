package outcome

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// metrics are totals since the start, by class and pool; views bound them.
type metrics struct {
	outcomes               *prometheus.CounterVec
	ttft, tbt, byCache     *prometheus.HistogramVec
	prompt, output, cached *prometheus.CounterVec
	requests, guessed      *prometheus.CounterVec
	penalties              *prometheus.CounterVec
	penalised              *prometheus.GaugeVec
	pools                  map[fleet.PoolID][]fleet.EngineID // whose penalties are shown
}

func newMetrics() metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_extproc_" + name + "_total", Help: help}, labels)
	}
	histogram := func(name, help string, from, to float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_extproc_" + name + "_seconds", Help: help, Buckets: bounds(from, to),
		}, append([]string{"class", "pool"}, labels...))
	}
	return metrics{
		outcomes:  counter("attempts", "Attempts at engines, by what became of them.", "class", "pool", "outcome"),
		ttft:      histogram("time_to_first_token", "Time from the first byte sent to an engine to the first byte of its streamed answer's body; of slow attempts, what was waited.", 0.01, 180),
		tbt:       histogram("time_between_tokens", "Mean time between the tokens of each streamed answer.", 0.001, 3),
		byCache:   histogram("time_to_first_token_by_cache", "Time to first token of whole streamed answers that say how much of the prompt was cached: a hit is at least half.", 0.01, 180, "cache"),
		prompt:    counter("prompt_tokens", "Prompt tokens of requests that were answered.", "class"),
		output:    counter("output_tokens", "Output tokens of requests that were answered.", "class"),
		cached:    counter("cached_prompt_tokens", "Prompt tokens found in an engine's KV cache, as answers say.", "class"),
		requests:  counter("requests_with_tokens", "Requests whose tokens are counted.", "class"),
		penalties: counter("penalties", "Penalties that began, by what for.", "pool", "fault"),
		penalised: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_extproc_engines_penalised", Help: "Engines that get less than their part, for their requests go wrong.",
		}, []string{"pool"}),
		guessed: counter("requests_with_estimated_tokens", "Requests whose tokens are estimated from bytes, their answers not saying.", "class"),
	}
}

// bounds are every second one of the bins of a load report, from one that is at
// least so short to one that is at least so long, in seconds.
func bounds(from, to float64) []float64 {
	var all []float64
	for i := 0; i < fleet.Bins; i += 2 {
		if b := fleet.BinBound(i); b >= from {
			all = append(all, b)
			if b >= to {
				break
			}
		}
	}
	return all
}

func (m *metrics) tokens(c fleet.ClassID, u usage) {
	class := string(c)
	m.prompt.WithLabelValues(class).Add(u.prompt)
	m.output.WithLabelValues(class).Add(u.output)
	m.requests.WithLabelValues(class).Inc()
	if u.estimated {
		m.guessed.WithLabelValues(class).Inc()
	}
}

// cache tells turns that found their conversation in an engine's KV cache from those
// that had to compute it.
func (m *metrics) cache(e *entry, p place) {
	m.cached.WithLabelValues(string(p.class)).Add(e.cached.value)
	if !e.stream || !e.first.known || !e.prompt.known || !e.cached.known {
		return
	}
	found := "miss"
	if e.cached.value >= e.prompt.value/2 {
		found = "hit"
	}
	m.byCache.WithLabelValues(string(p.class), string(p.pool), found).Observe(e.first.value)
}

// forget drops the metrics of a class that is no more.
func (m *metrics) forget(c fleet.ClassID) {
	of := prometheus.Labels{"class": string(c)}
	for _, each := range []*prometheus.CounterVec{m.outcomes, m.prompt, m.output, m.cached, m.requests, m.guessed} {
		each.DeletePartialMatch(of)
	}
	for _, each := range []*prometheus.HistogramVec{m.ttft, m.tbt, m.byCache} {
		each.DeletePartialMatch(of)
	}
}

// adopt shows nothing of pools but these, and of each something.
func (m *metrics) adopt(pools map[fleet.PoolID][]fleet.EngineID) {
	for id := range m.pools {
		if _, stays := pools[id]; !stays {
			of := prometheus.Labels{"pool": string(id)}
			m.penalties.DeletePartialMatch(of)
			m.penalised.DeletePartialMatch(of)
		}
	}
	m.pools = pools
	for id := range pools {
		m.penalised.WithLabelValues(string(id))
		for _, f := range fleet.Faults() {
			m.penalties.WithLabelValues(string(id), string(f))
		}
	}
}

// penalise tells how many engines of each pool are penalised.
func (m *metrics) penalise(all []fleet.Penalty) {
	for id := range m.pools {
		m.penalised.WithLabelValues(string(id)).Set(0)
	}
	for _, p := range all {
		m.penalised.WithLabelValues(string(p.Pool)).Inc()
	}
}

// RegisterMetrics has what the recorder counts collected.
func (r *Recorder) RegisterMetrics(to prometheus.Registerer) error {
	m, c := &r.metrics, &r.Counters
	var errs []error
	for _, each := range []prometheus.Collector{
		m.outcomes, m.ttft, m.tbt, m.byCache, m.prompt, m.output, m.cached, m.requests, m.guessed, m.penalties, m.penalised,
		total("log_entries", "Entries of Envoy's access log.", c.Entries.Load),
		total("log_entries_elsewhere", "Entries of the access log that say nothing of an engine.", c.Elsewhere.Load),
		total("log_entries_unknown", "Entries of the access log of an engine that its class does not have.", c.Unknown.Load),
		total("attempts_untracked", "Attempts counted at their end alone, too many being under way.", c.Untracked.Load),
		total("attempts_forgotten", "Attempts under way whose end was never heard of.", c.Forgotten.Load),
	} {
		errs = append(errs, to.Register(each))
	}
	return errors.Join(errs...)
}

func total(name, help string, n func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_extproc_" + name + "_total", Help: help},
		func() float64 { return float64(n()) })
}

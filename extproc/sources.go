package extproc

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// keyCounters counts keys by the source that named them. The sources are those of
// the table in force, so that the fleet file bounds them.
type keyCounters struct {
	counted *prometheus.CounterVec

	mu      sync.Mutex      // guards sources
	sources map[string]bool // that are counted
}

func newKeyCounters() keyCounters {
	return keyCounters{
		sources: map[string]bool{},
		counted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_extproc_keys_total",
			Help: "Affinity keys of requests that belong to a class, by the source that named them and its kind.",
		}, []string{"kind", "source"}),
	}
}

// of returns the counters of these sources. All others are counted no more.
func (k *keyCounters) of(sources []string) []prometheus.Counter {
	k.mu.Lock()
	defer k.mu.Unlock()
	gone := k.sources
	k.sources = make(map[string]bool, len(sources))
	var out []prometheus.Counter
	for _, s := range sources {
		out = append(out, k.counted.WithLabelValues(kindOf(s), s))
		k.sources[s] = true
		delete(gone, s)
	}
	for s := range gone {
		k.counted.DeleteLabelValues(kindOf(s), s)
	}
	return out
}

func kindOf(source string) string {
	kind, _, _ := strings.Cut(source, ":")
	return kind
}

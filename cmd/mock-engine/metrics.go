package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// stats are what /metrics tells. The zero value has no histograms: use newStats.
type stats struct {
	arrived          uint64
	inside           int // requests that are worked on or wait for it
	waiting, running int
	held             int // tokens of running requests in the KV cache
	promptTokens     int
	cachedTokens     int // of these, from the KV cache
	outputTokens     int
	finished         map[string]uint64 // by reason
	ttft, interToken *histogram
}

func newStats() stats {
	return stats{
		finished: map[string]uint64{},
		ttft: newHistogram(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
			1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
		interToken: newHistogram(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
			1, 2.5, 5, 7.5, 10, 20, 40, 80),
	}
}

// ended counts a request that was worked on.
func (s *stats) ended(j *job) {
	reason := "abort"
	if j.outcome == done {
		reason = string(j.finish)
	}
	s.finished[reason]++
	s.inside--
}

// histogram counts durations into buckets with upper bounds in seconds.
type histogram struct {
	bounds []float64
	counts []uint64 // one more than bounds: the last is unbounded
	sum    float64  // seconds
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(d time.Duration) {
	i, _ := slices.BinarySearch(h.bounds, d.Seconds())
	h.counts[i]++
	h.sum += d.Seconds()
}

func (e *engine) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if page := e.frozen.Load(); page != nil {
		_, _ = io.WriteString(w, *page)
		return
	}
	_, _ = io.WriteString(w, e.metrics())
}

// metrics is the page in Prometheus' text format, with vLLM's names.
func (e *engine) metrics() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.stats
	p := page{labels: `engine="0",model_name="` + escapeLabel.Replace(e.models[0]) + `"`}
	p.value("num_requests_running", "gauge", "Requests that are running.", float64(s.running))
	p.value("num_requests_waiting", "gauge", "Requests that wait in the queue.", float64(s.waiting))
	p.value("kv_cache_usage_perc", "gauge", "KV cache in use, 0 to 1.", min(1, float64(s.held)/float64(e.kvTokens)))
	p.value("prefix_cache_queries_total", "counter", "Tokens looked up in the KV cache.", float64(s.promptTokens))
	p.value("prefix_cache_hits_total", "counter", "Tokens found in the KV cache.", float64(s.cachedTokens))
	p.value("prompt_tokens_total", "counter", "Prompt tokens processed.", float64(s.promptTokens))
	p.value("prompt_tokens_cached_total", "counter", "Prompt tokens taken from the KV cache.", float64(s.cachedTokens))
	p.value("generation_tokens_total", "counter", "Output tokens made.", float64(s.outputTokens))
	p.head("request_success_total", "counter", "Requests that ended.")
	for _, reason := range []string{"stop", "length", "abort"} {
		p.sample("request_success_total", `,finished_reason="`+reason+`"`, float64(s.finished[reason]))
	}
	p.histogram("time_to_first_token_seconds", "Time to first token.", s.ttft)
	p.histogram("inter_token_latency_seconds", "Time between two tokens.", s.interToken)
	return p.String()
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// page is a page of metrics as it grows.
type page struct {
	strings.Builder
	labels string // of every sample
}

func (p *page) head(name, kind, help string) {
	fmt.Fprintf(p, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", name, help, name, kind)
}

func (p *page) sample(name, moreLabels string, value float64) {
	fmt.Fprintf(p, "vllm:%s{%s%s} %v\n", name, p.labels, moreLabels, value)
}

func (p *page) value(name, kind, help string, value float64) {
	p.head(name, kind, help)
	p.sample(name, "", value)
}

func (p *page) histogram(name, help string, h *histogram) {
	p.head(name, "histogram", help)
	total := uint64(0)
	for i, bound := range h.bounds {
		total += h.counts[i]
		p.sample(name+"_bucket", fmt.Sprintf(`,le="%v"`, bound), float64(total))
	}
	total += h.counts[len(h.bounds)]
	p.sample(name+"_bucket", `,le="+Inf"`, float64(total))
	p.sample(name+"_count", "", float64(total))
	p.sample(name+"_sum", "", h.sum)
}

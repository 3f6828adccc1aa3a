package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestMetricsCountWhatWasDone(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, _ *sink) {
		post(t.Context(), e, chatPath, whole)
		post(t.Context(), e, chatPath, whole)
		post(t.Context(), e, embeddingsPath, `{"model":"mock","input":"12345678"}`)
		page := get(e, "/metrics").Body.String()
		const labels = `{engine="0",model_name="a\"b"`
		for _, want := range []string{
			"# TYPE vllm:num_requests_running gauge",
			"vllm:num_requests_running" + labels + "} 0",
			"vllm:num_requests_waiting" + labels + "} 0",
			"vllm:kv_cache_usage_perc" + labels + "} 0",
			"vllm:prompt_tokens_total" + labels + "} 8",
			"vllm:prefix_cache_queries_total" + labels + "} 8",
			"vllm:prefix_cache_hits_total" + labels + "} 0",
			"vllm:prompt_tokens_cached_total" + labels + "} 0",
			"vllm:generation_tokens_total" + labels + "} 6",
			"vllm:request_success_total" + labels + `,finished_reason="length"} 2`,
			"vllm:request_success_total" + labels + `,finished_reason="stop"} 1`,
			"vllm:request_success_total" + labels + `,finished_reason="abort"} 0`,
			"# TYPE vllm:time_to_first_token_seconds histogram",
			"vllm:time_to_first_token_seconds_bucket" + labels + `,le="0.1"} 0`,
			"vllm:time_to_first_token_seconds_bucket" + labels + `,le="0.25"} 2`,
			"vllm:time_to_first_token_seconds_bucket" + labels + `,le="+Inf"} 2`,
			"vllm:time_to_first_token_seconds_count" + labels + "} 2",
			"vllm:time_to_first_token_seconds_sum" + labels + "} 0.4",
			"vllm:inter_token_latency_seconds_bucket" + labels + `,le="0.01"} 4`,
			"vllm:inter_token_latency_seconds_count" + labels + "} 4",
		} {
			if !strings.Contains(page, want+"\n") {
				t.Errorf("no line %s in\n%s", want, page)
			}
		}
	}, `--models=a"b,mock`)
}

func TestHistogramBounds(t *testing.T) {
	h := newHistogram(0.1, 1)
	for _, d := range []time.Duration{100 * time.Millisecond, 101 * time.Millisecond, time.Second, time.Minute} {
		h.observe(d)
	}
	if h.counts[0] != 1 || h.counts[1] != 2 || h.counts[2] != 1 {
		t.Errorf("counts = %v, want [1 2 1]: a bound belongs to its bucket", h.counts)
	}
}

// typeLines are the names and types of a page's metrics.
func typeLines(page string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(page) {
		if kind, ok := strings.CutPrefix(line, "# TYPE "); ok {
			found[strings.TrimSpace(kind)] = true
		}
	}
	return found
}

func TestNamesAreThoseOfVLLM(t *testing.T) {
	const file = "../../../shared/cases/metrics/vllm-0.33.0.prom"
	real, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("no page of a real engine to compare with: %v", err)
	}
	e, _ := testEngine(t)
	ours, known := typeLines(e.metrics()), typeLines(string(real))
	if len(ours) < 10 {
		t.Fatalf("only %d metrics on the page", len(ours))
	}
	for line := range ours {
		if !known[line] {
			t.Errorf("%s is on no page of vLLM", line)
		}
	}
}

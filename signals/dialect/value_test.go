package dialect_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/signals/dialect"
)

func known(t *testing.T, what string, got dialect.Value, want float64) {
	t.Helper()
	if !got.Known() || math.Abs(got.X-want) > 1e-9 {
		t.Errorf("%s = %v (%s), want %v", what, got.X, got.State, want)
	}
}

func unknown(t *testing.T, what string, got dialect.Value) {
	t.Helper()
	if got.State != dialect.Unknown {
		t.Errorf("%s = %v (%s), want unknown", what, got.X, got.State)
	}
}

const ttft = `vllm:time_to_first_token_seconds_bucket{le="0.1"} 2
vllm:time_to_first_token_seconds_bucket{le="0.2"} 6
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 8
vllm:time_to_first_token_seconds_sum 2.4
vllm:time_to_first_token_seconds_count 8
`

func TestQuantiles(t *testing.T) {
	h := mustRead(t, ttft).Values.TTFT
	known(t, "mean", h.Mean(), 0.3)
	for q, want := range map[float64]float64{0: 0, 0.125: 0.05, 0.25: 0.1, 0.5: 0.15, 0.75: 0.2, 0.99: 0.2, 1: 0.2} {
		known(t, "quantile", h.Quantile(q), want)
	}
	for _, q := range []float64{-0.1, 1.1, math.NaN()} {
		unknown(t, "quantile", h.Quantile(q))
	}
	unknown(t, "quantile of nothing", dialect.Histogram{}.Quantile(0.5))
	unknown(t, "mean of nothing", dialect.Histogram{}.Mean())
}

func TestHistogramsThatLackSomething(t *testing.T) {
	tests := []struct {
		name, without  string
		mean, quantile bool
	}{
		{"no count: the last bucket has it", "vllm:time_to_first_token_seconds_count 8\n", true, true},
		{"no sum", "vllm:time_to_first_token_seconds_sum 2.4\n", false, true},
		{"no last bucket", `vllm:time_to_first_token_seconds_bucket{le="+Inf"} 8` + "\n", true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := mustRead(t, strings.Replace(ttft, tt.without, "", 1)).Values.TTFT
			if h.Mean().Known() != tt.mean || h.Quantile(0.5).Known() != tt.quantile {
				t.Errorf("mean known: %t, quantile known: %t, want %t, %t", h.Mean().Known(), h.Quantile(0.5).Known(), tt.mean, tt.quantile)
			}
		})
	}
	h := mustRead(t, ttft[:strings.Index(ttft, `vllm:time_to_first_token_seconds_bucket{le="+Inf"}`)]).Values.TTFT
	if h.Known() {
		t.Errorf("a histogram without count and last bucket is %v, want unknown", h)
	}
}

func TestRanksWithOtherBoundsLeaveTheMean(t *testing.T) {
	other := strings.NewReplacer("_bucket{", `_bucket{engine="1",`, "_sum", `_sum{engine="1"}`, "_count", `_count{engine="1"}`, "0.2", "0.3").Replace(ttft)
	h := mustRead(t, ttft+other).Values.TTFT
	known(t, "mean", h.Mean(), 0.3)
	unknown(t, "quantile", h.Quantile(0.5))
}

// grown is ttft after two more observations of 0.15 s.
var grown = strings.NewReplacer("} 6", "} 8", "} 8", "} 10", "sum 2.4", "sum 2.7", "count 8", "count 10").Replace(ttft)

func between(t *testing.T, before, after string) dialect.Window {
	t.Helper()
	b, a := mustRead(t, before), mustRead(t, after)
	return dialect.Between(&b.Values, &a.Values)
}

func TestBetweenPages(t *testing.T) {
	const tokens = "vllm:prompt_tokens_total{engine=\"0\"} 100\nvllm:prompt_tokens_total{engine=\"1\"} 50\n"
	const later = "vllm:prompt_tokens_total{engine=\"1\"} 55\nvllm:prompt_tokens_total{engine=\"0\"} 107\n"
	w := between(t, ttft+tokens, grown+later)
	known(t, "observations", w.TTFT.Count, 2)
	known(t, "mean", w.TTFT.Mean(), 0.15)
	known(t, "median", w.TTFT.Quantile(0.5), 0.15)
	known(t, "prompt tokens", w.PromptTokens, 12)
	unknown(t, "generated tokens", w.GeneratedTokens)
	if w.Reset {
		t.Error("growth was taken for a reset")
	}
}

func TestBetweenPagesWithoutRequests(t *testing.T) {
	w := between(t, ttft, ttft)
	known(t, "observations", w.TTFT.Count, 0)
	unknown(t, "mean", w.TTFT.Mean())
	unknown(t, "median", w.TTFT.Quantile(0.5))
}

func TestBetweenPagesOfARestartedEngine(t *testing.T) {
	w := between(t, grown+"vllm:generation_tokens_total 90\n", ttft+"vllm:generation_tokens_total 7\n")
	if !w.Reset {
		t.Error("a reset was not seen")
	}
	known(t, "observations since", w.TTFT.Count, 8)
	known(t, "mean since", w.TTFT.Mean(), 0.3)
	known(t, "tokens since", w.GeneratedTokens, 7)
}

func TestBetweenPagesOfOtherSeries(t *testing.T) {
	const two = "vllm:prompt_tokens_total{engine=\"0\"} 100\nvllm:prompt_tokens_total{engine=\"1\"} 50\n"
	const one = "vllm:prompt_tokens_total{engine=\"0\"} 101\n"
	for name, pages := range map[string][2]string{
		"a rank is missing": {two, one},
		"a rank was added":  {one, two},
		"no page before":    {"", one},
		"a bad sample":      {two, strings.Replace(two, " 50", " NaN", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := between(t, pages[0], pages[1])
			unknown(t, "growth", w.PromptTokens)
			if w.Reset {
				t.Error("it was taken for a reset")
			}
		})
	}
	w := between(t, ttft, strings.ReplaceAll(grown, "0.2", "0.3"))
	known(t, "mean with other bounds", w.TTFT.Mean(), 0.15)
	unknown(t, "median with other bounds", w.TTFT.Quantile(0.5))
}

func TestStale(t *testing.T) {
	v := mustRead(t, ttft+"vllm:num_requests_running 3\n").Values.Stale()
	if v.Running.X != 3 || v.Running.State != dialect.Stale || v.TTFT.Mean().State != dialect.Stale {
		t.Errorf("running = %v, mean = %v, want stale", v.Running, v.TTFT.Mean())
	}
	unknown(t, "waiting", v.Waiting)
	if v.Any() {
		t.Error("stale values are taken for known")
	}
	w := dialect.Between(&v, &v)
	unknown(t, "growth of stale values", w.TTFT.Count)
}

func TestValueInJSON(t *testing.T) {
	got, err := json.Marshal([]dialect.Value{{}, dialect.Is(0), dialect.Is(0.25)})
	if diff := cmp.Diff(string(got), "[null,0,0.25]"); diff != "" || err != nil {
		t.Errorf("JSON (-got +want, %v):\n%s", err, diff)
	}
}

// Quantiles grow with q and stay within the bounds.
func TestQuantilesAreOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := dialect.Histogram{Count: dialect.Is(0)}
		at, n := 0.0, 0.0
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 5), 1, 20).Draw(t, "steps") {
			at, n = at+0.5, n+float64(step)
			h.Buckets = append(h.Buckets, dialect.Bucket{AtMost: at, Count: n})
		}
		h.Buckets = append(h.Buckets, dialect.Bucket{AtMost: math.Inf(1), Count: n})
		h.Count = dialect.Is(n)
		last := 0.0
		for q := 0.0; q <= 1; q += 0.05 {
			x := h.Quantile(q)
			if x.Known() != (n > 0) || x.X < last || x.X > at {
				t.Fatalf("quantile %v = %v after %v", q, x, last)
			}
			last = x.X
		}
	})
}

package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/admin"
	"weir/deploy/stage"
	"weir/fleet"
)

// pageEngine is healthy and shows the metrics page of some version of an engine; a
// frozen one takes requests for the page and never answers.
type pageEngine struct {
	version, dialect string
	page             string
	frozen           atomic.Bool
	address          string
}

// versions are the engines of one fleet; their pools have the dialects' names.
var versions = []struct{ version, dialect string }{
	{"vllm-0.6.3.post1", "vllm"},
	{"vllm-0.8.5", "vllm"},
	{"vllm-0.10.2", "vllm"},
	{"vllm-0.33.0", "vllm"},
	{"sglang-0.4.10.post2", "sglang"},
	{"sglang-0.5.23", "sglang"},
}

// wordsOf are what the engines call running, waiting and the KV cache's usage; of two
// words for one thing either will do.
var wordsOf = map[string][3][]string{
	"vllm": {
		{"vllm:num_requests_running"},
		{"vllm:num_requests_waiting"},
		{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
	},
	"sglang": {{"sglang:num_running_reqs"}, {"sglang:num_queue_reqs"}, {"sglang:token_usage"}},
}

// pathsOf are where the pages are: one elsewhere than usual, as the fleet file says.
var pathsOf = map[string]string{"vllm": "/metrics", "sglang": "/engine/metrics"}

func startPageEngine(t *testing.T, version, dialect string) *pageEngine {
	t.Helper()
	page, err := os.ReadFile(cases + "/metrics/" + version + ".prom")
	if err != nil {
		t.Skip("the shared cases are not here:", err)
	}
	e := &pageEngine{version: version, dialect: dialect, page: string(page)}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	e.address = server.Listener.Addr().String()
	return e
}

func (e *pageEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/health":
	case r.URL.Path != pathsOf[e.dialect]:
		http.NotFound(w, r)
	case e.frozen.Load():
		<-r.Context().Done()
	default:
		w.Header().Set("content-type", "text/plain; version=0.0.4; charset=utf-8")
		fmt.Fprint(w, e.page)
	}
}

// sample reads the only sample of a page that has one of the names, with labels.
func sample(t *testing.T, page string, names ...string) float64 {
	t.Helper()
	for _, name := range names {
		for line := range strings.Lines(page) {
			if labels, ok := strings.CutPrefix(line, name+"{"); ok {
				_, text, _ := strings.Cut(labels, "} ")
				x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
				check(t, err)
				return x
			}
		}
	}
	t.Fatalf("the page has none of %q:\n%s", names, page)
	return 0
}

// startPages stages a fleet of engines that show pages.
func startPages(t *testing.T) (*stage.Stage, map[fleet.EngineID]*pageEngine) {
	t.Helper()
	engines := map[fleet.EngineID]*pageEngine{}
	var addresses []string // in the file, and in truth
	for i, v := range versions {
		e := startPageEngine(t, v.version, v.dialect)
		engines[fleet.EngineID(e.address)] = e
		addresses = append(addresses, fmt.Sprintf("10.0.0.%d:8000", i+1), e.address)
	}
	s := start(t, stage.Options{
		FleetFile: "testdata/dialects.yaml",
		Edit:      strings.NewReplacer(addresses...).Replace,
		External:  func(fleet.PoolID) bool { return true },
	})
	return s, engines
}

// A fleet of several versions of several engines is believed, each in its own words.
// Pages that cannot be had any more change no weight and are told of once: for the
// fleet if it is all of them, else for their pool.
func TestDialects(t *testing.T) {
	t.Parallel()
	s, engines := startPages(t)
	freeze := func(frozen bool, of ...string) {
		for _, e := range engines {
			for _, dialect := range of {
				if e.dialect == dialect {
					e.frozen.Store(frozen)
				}
			}
		}
	}
	eventually(t, "every engine's page is read", 20*time.Second, func() bool { return told(beliefs(t, s)) == len(versions) })
	believed(t, s, engines, false)
	awaitStatus(t, s, 0, "all is well")
	before := shares(t, s)
	if len(before) != 2 {
		t.Fatalf("shares are %v, want both pools to have one", before)
	}

	freeze(true, "vllm", "sglang")
	awaitAttention(t, s, "the metrics of all 6 engines are not believed")
	eventually(t, "ten seconds of pages that hang", 30*time.Second, func() bool {
		if diff := differ(before, shares(t, s)); diff != "" {
			t.Fatalf("shares (-before +frozen):\n%s", diff)
		}
		oldest := 0.0
		for _, p := range beliefs(t, s).Pools {
			for _, e := range p.Engines {
				oldest = max(oldest, e.Running.AgeSeconds)
			}
		}
		return oldest > 10
	})
	believed(t, s, engines, true)
	awaitAttention(t, s, "the metrics of all 6 engines are not believed")

	freeze(false, "vllm", "sglang")
	awaitStatus(t, s, 0, "all is well")
	freeze(true, "sglang")
	awaitAttention(t, s, `pool "sglang": the metrics of 2 of 2 engines are not believed: no page in time`)
}

// told counts the engines of which something fresh is known.
func told(b *admin.Beliefs) (n int) {
	for _, p := range b.Pools {
		for _, e := range p.Engines {
			if e.Running != nil && !e.Running.Stale {
				n++
			}
		}
	}
	return n
}

// believed holds that what is believed of every engine is what its page says, and
// fresh or stale.
func believed(t *testing.T, s *stage.Stage, engines map[fleet.EngineID]*pageEngine, stale bool) {
	t.Helper()
	seen := 0
	for _, p := range beliefs(t, s).Pools {
		for _, b := range p.Engines {
			e := engines[b.Engine]
			seen++
			if b.Dialect != e.dialect || b.Readiness != "ready" {
				t.Errorf("%s: dialect %q, %s, want %q and ready", e.version, b.Dialect, b.Readiness, e.dialect)
			}
			for i, got := range []*admin.Told{b.Running, b.Waiting, b.KVUsage} {
				words := wordsOf[e.dialect][i]
				want := sample(t, e.page, words...)
				switch {
				case got == nil || got.Value != want:
					t.Errorf("%s: %s is %+v, want %v", e.version, words[0], got, want)
				case got.Stale != stale || !stale && got.AgeSeconds >= 5:
					t.Errorf("%s: %s is %+v, want stale: %v and under 5 s if not", e.version, words[0], got, stale)
				}
			}
		}
	}
	if seen != len(engines) {
		t.Errorf("%d engines are believed in, want %d", seen, len(engines))
	}
}

// awaitAttention waits until `weir status` asks for attention with one line that
// begins so, and with no other.
func awaitAttention(t *testing.T, s *stage.Stage, begins string) {
	t.Helper()
	var lines []string
	eventually(t, "attention to "+begins, 30*time.Second, func() bool {
		lines = attention(t, s)
		return len(lines) > 0 && strings.HasPrefix(lines[0], begins)
	})
	if len(lines) != 1 {
		t.Errorf("attention is asked for %q, want one line", lines)
	}
}

func attention(t *testing.T, s *stage.Stage) []string {
	t.Helper()
	_, out := status(t, s, "-o", "json")
	var got admin.Status
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return got.Attention
}

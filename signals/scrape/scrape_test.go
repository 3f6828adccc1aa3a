package scrape_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"

	"weir/fleet"
	"weir/signals"
	"weir/signals/dialect"
	"weir/signals/scrape"
)

const page = `vllm:num_requests_running 3
vllm:num_requests_waiting NaN
vllm:generation_tokens_total %d
`

// engine serves a page, by a handler that may be replaced.
type engine struct {
	id     fleet.EngineID
	server *httptest.Server
	handle atomic.Pointer[http.HandlerFunc]
}

func startEngine(t *testing.T, start func(*httptest.Server), handle http.HandlerFunc) *engine {
	t.Helper()
	e := &engine{}
	e.answer(handle)
	e.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*e.handle.Load())(w, r) }))
	start(e.server)
	t.Cleanup(e.server.Close)
	e.id = fleet.EngineID(e.server.Listener.Addr().String())
	return e
}

func (e *engine) answer(handle http.HandlerFunc) { e.handle.Store(&handle) }

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

// growing is a page whose counter grows by ten with each request.
func growing() http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, page, 10*n.Add(1)) }
}

func fleetOf(pools ...fleet.Pool) *fleet.Fleet { return &fleet.Fleet{Pools: pools} }

func pool(id fleet.PoolID, kind string, engines ...*engine) fleet.Pool {
	p := fleet.Pool{ID: id, EngineType: kind}
	for _, e := range engines {
		p.Engines = append(p.Engines, e.id)
	}
	return p
}

// samples are what a scraper reported, newest last.
type samples struct {
	mu   sync.Mutex // guards all
	all  map[fleet.EngineID][]scrape.Sample
	more chan struct{}
}

func (s *samples) add(x scrape.Sample) {
	s.mu.Lock()
	s.all[x.Engine] = append(s.all[x.Engine], x)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// await returns the first sample of an engine, from some on, that is as wanted.
func (s *samples) await(t *testing.T, e *engine, what string, wanted func(scrape.Sample) bool) scrape.Sample {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		for _, x := range s.all[e.id] {
			if wanted(x) {
				s.mu.Unlock()
				return x
			}
		}
		s.mu.Unlock()
		select {
		case <-s.more:
		case <-deadline:
			t.Fatalf("no sample that is %s; all: %+v", what, s.all[e.id])
		}
	}
}

func start(t *testing.T, f *fleet.Fleet, override func(*fleet.Pool) dialect.Override) (*scrape.Scraper, *samples) {
	t.Helper()
	got := &samples{all: map[fleet.EngineID][]scrape.Sample{}, more: make(chan struct{}, 1)}
	s := scrape.New(zaptest.NewLogger(t), f, signals.NewEngineClient, got.add)
	s.Override = override
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s, got
}

func isRead(x scrape.Sample) bool    { return x.Err == nil }
func hasWindow(x scrape.Sample) bool { return x.Err == nil && x.Window.GeneratedTokens.Known() }

func TestScrapes(t *testing.T) {
	t.Parallel()
	e := startEngine(t, (*httptest.Server).Start, growing())
	s, got := start(t, fleetOf(pool("p", "vllm", e)), nil)

	first := got.await(t, e, "read", isRead)
	if first.Pool != "p" || first.Dialect != "vllm" || first.Values.Running.X != 3 {
		t.Errorf("first sample: %+v", first)
	}
	if first.Values.Waiting.Known() || len(first.Notes) != 1 || first.Window.GeneratedTokens.Known() {
		t.Errorf("first sample: %+v, want waiting and window unknown and one note", first)
	}
	next := got.await(t, e, "with a window", hasWindow)
	if next.Window.GeneratedTokens.X != 10 || next.Over < 500*time.Millisecond || next.Over > 10*time.Second {
		t.Errorf("grew by %v over %v, want 10 over about 1 s", next.Window.GeneratedTokens.X, next.Over)
	}
	if s.Counters.Read.Load() < 2 || s.Counters.SamplesDropped.Load() < 2 {
		t.Errorf("%d read, %d samples dropped, want at least 2 each", s.Counters.Read.Load(), s.Counters.SamplesDropped.Load())
	}
}

func TestFailuresLeaveStaleValues(t *testing.T) {
	t.Parallel()
	e := startEngine(t, (*httptest.Server).Start, growing())
	s, got := start(t, fleetOf(pool("p", "vllm", e)), nil)
	read := got.await(t, e, "read", isRead)
	e.answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) })
	failed := got.await(t, e, "failed", func(x scrape.Sample) bool { return x.Err != nil })
	if failed.Values.Running.State != dialect.Stale || failed.Values.Running.X != 3 || failed.ReadAt.Before(read.ReadAt) {
		t.Errorf("after a failure: %+v, want what was known, as stale", failed)
	}
	if failed.Window.GeneratedTokens.Known() || !strings.Contains(failed.Err.Error(), "answered 503") {
		t.Errorf("after a failure: %+v", failed)
	}
	e.answer(growing())
	got.await(t, e, "read again", func(x scrape.Sample) bool { return x.Err == nil && x.At.After(failed.At) })
	if s.Counters.Status.Load() == 0 {
		t.Error("the failure was not counted")
	}
}

func TestPathIsFoundAndKept(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	e := startEngine(t, (*httptest.Server).Start, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prometheus/metrics" {
			elsewhere.Add(1)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `[{"numActiveRequests":1}]`)
			return
		}
		fmt.Fprint(w, "trtllm_num_requests_running 2\ntrtllm_prompt_tokens_total 1\n")
	})
	_, got := start(t, fleetOf(pool("p", "vllm", e)), nil)
	got.await(t, e, "the second", func(x scrape.Sample) bool { return x.Err == nil && x.Window.PromptTokens.Known() })
	if n := elsewhere.Load(); n != 1 {
		t.Errorf("the other path was asked %d times, want once", n)
	}
}

func TestOtherEnginesAreLeftAlone(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	other := startEngine(t, (*httptest.Server).Start, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	told := startEngine(t, (*httptest.Server).Start, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stats" {
			fmt.Fprint(w, "jobs 5\n")
		}
	})
	override := func(p *fleet.Pool) dialect.Override {
		if p.ID != "told" {
			return dialect.Override{}
		}
		jobs := dialect.Names{{Name: "jobs"}}
		return dialect.Override{Paths: []string{"/stats"}, Fields: map[dialect.Field]dialect.Names{dialect.Running: jobs}}
	}
	_, got := start(t, fleetOf(pool("other", "other", other), pool("told", "other", told)), override)
	x := got.await(t, told, "read", isRead)
	if x.Values.Running.X != 5 || x.Dialect != "custom" || asked.Load() != 0 {
		t.Errorf("told engine: %+v; the other was asked %d times", x, asked.Load())
	}
}

func TestFleetIsReplaced(t *testing.T) {
	t.Parallel()
	a := startEngine(t, (*httptest.Server).Start, growing())
	b := startEngine(t, (*httptest.Server).Start, growing())
	s, got := start(t, fleetOf(pool("p", "", a)), nil)
	got.await(t, a, "read", isRead)
	s.SetFleet(fleetOf(pool("p", "", b)))
	x := got.await(t, b, "read", isRead)
	got.await(t, b, "read once more", func(y scrape.Sample) bool { return y.Err == nil && y.At.After(x.At) })
	got.mu.Lock()
	defer got.mu.Unlock()
	if last := got.all[a.id][len(got.all[a.id])-1]; last.At.After(x.At) {
		t.Error("an engine that is no longer in the fleet was scraped")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	e := startEngine(t, (*httptest.Server).StartTLS, growing())
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: e.server.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	secure, missing := pool("secure", "vllm", e), pool("missing", "vllm", e)
	secure.TLS, missing.TLS = &fleet.TLS{CAFile: ca}, &fleet.TLS{CAFile: ca + ".none"}
	s, got := start(t, fleetOf(missing, secure), nil)
	if x := got.await(t, e, "read", isRead); x.Pool != "secure" {
		t.Errorf("read for pool %q", x.Pool)
	}
	if n := s.Counters.PoolsSkipped.Load(); n != 1 {
		t.Errorf("%d pools skipped, want 1", n)
	}
}

// Engines that hang do not keep the others from being read.
func TestHangingEnginesHoldUpNobody(t *testing.T) {
	t.Parallel()
	hung, err := net.Listen("tcp4", ":0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	well := startEngine(t, (*httptest.Server).Start, growing())
	sick := fleet.Pool{ID: "sick", EngineType: "vllm"}
	for i := range 300 {
		sick.Engines = append(sick.Engines, fleet.EngineID(fmt.Sprintf("127.0.%d.%d:%d", i/250, 1+i%250, hung.Addr().(*net.TCPAddr).Port)))
	}
	s, got := start(t, fleetOf(sick, pool("well", "vllm", well)), nil)
	hangs := &engine{id: sick.Engines[0]}
	x := got.await(t, hangs, "failed", func(x scrape.Sample) bool { return x.Err != nil })
	if !strings.Contains(x.Err.Error(), "no page in time") {
		t.Errorf("err = %v, want that no page came in time", x.Err)
	}
	y := got.await(t, well, "read since", func(y scrape.Sample) bool { return y.Err == nil && y.At.After(x.At.Add(scrape.Timeout)) })
	if y.Over > 8*time.Second {
		t.Errorf("a page was read %v after the one before", y.Over)
	}
	if s.Counters.Timeout.Load() == 0 || s.Counters.Late.Load() == 0 {
		t.Errorf("%d timed out, %d were late, want some", s.Counters.Timeout.Load(), s.Counters.Late.Load())
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	var c scrape.Counters
	c.Timeout.Add(3)
	registry := prometheus.NewPedanticRegistry()
	if err := c.RegisterMetrics(registry); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, f := range families {
		names[f.GetName()] = len(f.Metric)
		for _, m := range f.Metric {
			if timeout := len(m.Label) > 0 && m.Label[0].GetValue() == "timeout"; timeout != (m.Counter.GetValue() == 3) {
				t.Errorf("%s = %v", f.GetName(), m)
			}
		}
	}
	if names["weir_signals_scrapes_total"] != 6 || len(names) != 5 {
		t.Errorf("metrics: %v", names)
	}
}

package deploy

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// defended are the classes whose name says how many engines they have.
var defended = map[fleet.ClassID]int{"one": 1, "two": 2, "three": 3}

// Envoy takes out engines that fail hard, by itself and within a second, but never all
// of a class, and never those that are only busy.
func TestEnvoyEjectsSomeButNeverAll(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/defences.yaml"})
	client := stage.NewClient()
	sent := 0
	ask := func(c fleet.ClassID) stage.Reply {
		sent++
		return stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: stage.Chat(string(c), fmt.Sprint("conversation ", sent), false, 0)})
	}
	ejected := func(c fleet.ClassID, what string) int {
		n, err := s.Stat(t.Context(), "main", fmt.Sprintf("cluster.%s.outlier_detection.%s", c, what))
		check(t, err)
		return n
	}
	everywhere := func(faults string) {
		for _, p := range s.Fleet.Pools {
			for _, e := range p.Engines {
				setFaults(t, e, faults)
			}
		}
	}
	for _, busy := range []int{429, 503} {
		everywhere(fmt.Sprintf(`{"errorRate": 1, "errorStatus": %d}`, busy))
		for c := range defended {
			for range 30 {
				ask(c)
			}
			if n := ejected(c, "ejections_enforced_total"); n > 0 {
				t.Errorf("class %s: %d engines were ejected for %d", c, n, busy)
			}
		}
	}
	everywhere(`{"errorRate": 1}`)
	most := map[fleet.ClassID]int{}
	begun := time.Now()
	eventually(t, "engines are ejected again and again", 20*time.Second, func() bool {
		for c := range defended {
			if r := ask(c); r.Status != 500 {
				t.Errorf("class %s: %v; want an engine's own error", c, &r)
			}
			most[c] = max(most[c], ejected(c, "ejections_active"))
		}
		return time.Since(begun) > 5*time.Second && ejected("two", "ejections_enforced_total") >= 2 && ejected("three", "ejections_enforced_total") >= 2
	})
	t.Logf("most engines out at once: %v of %v", most, defended)
	for c, want := range map[fleet.ClassID]int{"one": 0, "two": 1, "three": 1} {
		if most[c] != want {
			t.Errorf("class %s: %d of %d engines were out at once, want %d", c, most[c], defended[c], want)
		}
	}
}

// Where the last engine that is ready fails hard beside one that is not ready, none is
// left: clients are told so at once, and served again without anybody's doing.
func TestNobodyIsLeft(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/defences.yaml"})
	client := stage.NewClient()
	pair := s.Fleet.Pool("two").Engines
	setFaults(t, pair[0], `{"unhealthy": true}`)
	eventually(t, "the front-end is told", 10*time.Second, func() bool { return health(s, "main", pair[0]) == "unready" })
	ask := func() stage.Reply {
		return stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: stage.Chat("two", "hello", false, 0)})
	}
	setFaults(t, pair[1], `{"errorRate": 1}`)
	eventually(t, "no engine is left", 10*time.Second, func() bool {
		r := ask()
		return r.Status == 503 && strings.Contains(string(r.Body), "no_engine") && r.Took < time.Second
	})
	setFaults(t, pair[1], `{}`)
	well := time.Now()
	eventually(t, "the engine is asked again", 10*time.Second, func() bool { r := ask(); return r.OK() })
	t.Logf("asked again %v after it was well", time.Since(well).Round(100*time.Millisecond))
	if r := stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: stage.Chat("one", "hello", false, 0)}); r.Status != http.StatusOK {
		t.Errorf("another class meanwhile: %v", &r)
	}
}

// What a circuit breaker refuses is shed like anything else, and is not taken for an
// engine's failure, nor that for it: a request that fails and is not tried again for want
// of budget has the same flag.
func TestACircuitBreakerSheds(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/defences.yaml"})
	client := stage.NewClient()
	ask := func(model string) stage.Reply {
		return stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: stage.Chat(model, "hello", false, 0)})
	}
	check(t, s.Admin(t.Context(), "main", "/runtime_modify?circuit_breakers.one.default.max_requests=0"))
	eventually(t, "the breaker is open", 5*time.Second, func() bool { r := ask("one"); return r.Status != http.StatusOK })
	r := ask("one")
	p := mustRefuse(t, r, http.StatusTooManyRequests)
	if p.Error.Code != "overloaded" || p.Error.Type != "rate_limit_error" || r.Header.Get("retry-after") != "5" || r.Header.Get("x-weir-shed-reason") != "breaker" {
		t.Errorf("%v, headers %v", &r, r.Header)
	}
	check(t, s.Admin(t.Context(), "main", "/runtime_modify?circuit_breakers.one.default.max_requests="))
	eventually(t, "the breaker is closed", 5*time.Second, func() bool { r := ask("one"); return r.OK() })

	none := "circuit_breakers.two.default.retry_budget."
	check(t, s.Admin(t.Context(), "main", "/runtime_modify?"+none+"budget_percent=0&"+none+"min_retry_concurrency=0"))
	for _, e := range s.Fleet.Pool("two").Engines {
		check(t, s.Process("engine-"+string(e)).Kill())
	}
	r = ask("two")
	if p := mustRefuse(t, r, http.StatusServiceUnavailable); p.Error.Code != "engine_failed" {
		t.Errorf("%v, want engine_failed", &r)
	}
	if n, err := s.Stat(t.Context(), "main", "cluster.two.upstream_rq_retry_overflow"); err != nil || n == 0 {
		t.Errorf("%d retries were not made for want of budget (%v)", n, err)
	}
}

// Envoy's connections to engines are probed while nothing comes, and closed before an
// engine would close them.
func TestConnectionsToEnginesAreKept(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/defences.yaml"})
	r := stage.Do(t.Context(), stage.NewClient(), stage.Call{URL: s.URL("main"), Body: stage.Chat("one", "hello", false, 0)})
	if !r.OK() {
		t.Fatal(&r)
	}
	_, port, _ := strings.Cut(string(s.Fleet.Pool("one").Engines[0]), ":")
	number, err := strconv.Atoi(port)
	check(t, err)
	probed := func() (timers []string) {
		table, err := os.ReadFile("/proc/net/tcp")
		check(t, err)
		for line := range strings.Lines(string(table)) {
			// sl local remote state queues timer:when …; state 01 is open.
			f := strings.Fields(line)
			if len(f) > 5 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", number)) && f[3] == "01" {
				timers = append(timers, f[5])
			}
		}
		return timers
	}
	eventually(t, "a keepalive is due within 15 s", 5*time.Second, func() bool {
		for _, timer := range probed() {
			kind, when, _ := strings.Cut(timer, ":")
			if due, err := strconv.ParseInt(when, 16, 64); err == nil && kind == "02" && due <= 1500 {
				return true
			}
		}
		return false
	})
	idle := time.Now()
	closed := func() bool {
		n, err := s.Stat(t.Context(), "main", "cluster.one.upstream_cx_active")
		return err == nil && n == 0
	}
	eventually(t, "Envoy closes the idle connection", 10*time.Second, closed)
	if took := time.Since(idle); took > 5*time.Second {
		t.Errorf("it was closed after %v: uvicorn closes after 5 s", took)
	}
}

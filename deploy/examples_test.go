package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"weir/deploy/stage"
	"weir/fleet"
)

// sort is one sort of request that clients of an example send, and where its README
// says that they go.
type sort struct {
	name     string
	frontEnd fleet.FrontEndID
	model    string
	header   string // "name: value"
	padding  int    // bytes
	class    fleet.ClassID
	want     map[fleet.PoolID]float64 // shares
}

// The examples route on a real Envoy as they say, by the engines' own journals and
// the gateways' own count.
func TestExamples(t *testing.T) {
	t.Parallel()
	for name, sorts := range map[string][]sort{
		"two-regions": {
			{name: "bound", frontEnd: "paris", model: "llama-3.3-70b", header: "x-residency: eu", class: "chat-eu", want: map[fleet.PoolID]float64{"eu-h100": 1}},
			{name: "bound abroad", frontEnd: "virginia", model: "llama-3.3-70b", header: "x-residency: eu", class: "chat-eu", want: map[fleet.PoolID]float64{"eu-h100": 1}},
			{name: "at home", frontEnd: "paris", model: "llama-3.3-70b", class: "chat", want: map[fleet.PoolID]float64{"eu-h100": 1}},
			{name: "roaming", frontEnd: "virginia", model: "llama-3.3-70b", class: "chat", want: map[fleet.PoolID]float64{"us-h100": 0.75, "eu-h100": 0.25}},
		},
		"mixed-gpus": {
			{name: "batch", frontEnd: "oregon", model: "qwen3-32b", header: "x-batch: 1", class: "batch", want: map[fleet.PoolID]float64{"l40s": 1}},
			{name: "long", frontEnd: "oregon", model: "qwen3-32b", padding: 40_000, class: "long", want: map[fleet.PoolID]float64{"h100": 1}},
			{name: "short", frontEnd: "oregon", model: "qwen3-32b", class: "chat", want: map[fleet.PoolID]float64{"h100": 0.8967, "l40s": 0.1033}},
		},
		"gateways": {
			{name: "all", frontEnd: "edge", model: "llama-3.3-70b", class: "chat", want: map[fleet.PoolID]float64{"site-a": 0.5333, "site-b": 0.4667}},
		},
		"canary": {
			{name: "tester", frontEnd: "main", model: "assistant", header: "x-tester: 1", class: "testers", want: map[fleet.PoolID]float64{"next": 1}},
			{name: "everybody", frontEnd: "main", model: "assistant", class: "chat", want: map[fleet.PoolID]float64{"stable": 0.95, "next": 0.05}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startExample(t, name)
			for _, s := range sorts {
				e.planned(s)
				e.send(s, ofEach)
			}
			where := e.pools()
			for _, s := range sorts {
				e.judge(s, where)
			}
		})
	}
}

// What one gateway refuses is asked of the other by the other's own name.
func TestRetriesAskByTheOthersName(t *testing.T) {
	t.Parallel()
	e := startExample(t, "gateways")
	e.mu.Lock()
	e.refusing = "site-a"
	e.mu.Unlock()
	e.send(sort{name: "retried", frontEnd: "edge", model: "llama-3.3-70b"}, 40)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refused < 5 {
		t.Errorf("%d of 40 were refused by site-a: want some", e.refused)
	}
	for mark, pool := range e.gates {
		if pool != "site-b" {
			t.Errorf("%s was answered by %s", mark, pool)
		}
	}
	if len(e.gates) != 40 {
		t.Errorf("%d of 40 were answered", len(e.gates))
	}
}

// The examples are all of them in the table above, and right without a doubt.
func TestExamplesAreRight(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("examples/*/fleet.yaml")
	check(t, err)
	if len(files) != 4 {
		t.Errorf("%d examples, of which four are tried", len(files))
	}
	for _, file := range files {
		if out := string(weir(t, "check", file)); strings.Contains(out, "doubtful") {
			t.Error(out)
		}
	}
}

// example is one that runs here, its engines as fast as may be: what is held is where
// requests go, at plans for the declared demand.
type example struct {
	t     *testing.T
	stage *stage.Stage

	mu       sync.Mutex // guards what follows
	gates    map[string]fleet.PoolID
	refusing fleet.PoolID // its gateway answers 503
	refused  int
}

// ofEach is how many conversations of each sort begin: where 5 % are said, 2 % or 9 %
// would be seen.
const ofEach = 600

var elsewhere = regexp.MustCompile(`\b(10\.\d+\.\d+\.\d+|0\.0\.0\.0):\d+\b`)

// startExample brings an example's addresses to this machine. Where its pools are
// behind gateways, these are the test's own.
func startExample(t *testing.T, name string) *example {
	t.Helper()
	e := &example{t: t, gates: map[string]fleet.PoolID{}}
	text, err := os.ReadFile("examples/" + name + "/fleet.yaml")
	check(t, err)
	port := 40000
	moved := elsewhere.ReplaceAllStringFunc(string(text), func(string) string {
		port++
		return fmt.Sprintf("127.0.0.1:%d", port)
	})
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	check(t, os.WriteFile(file, []byte(moved), 0o644))
	e.stage = start(t, stage.Options{
		FleetFile: file,
		Edit:      func(text string) string { return declared(e.behindGateways(text)) },
		EngineFlags: func(fleet.PoolID) []string {
			return []string{"--capacity", "10000", "--ttft", "1ms", "--ttft-full", "1ms"}
		},
	})
	return e
}

var behindGateway = regexp.MustCompile(`(?s)- name: (\S+)\n    region: .*?engines: \["(\S+?)"\][^\n]*\n    tls: \{sni: (\S+), ca: (\S+)\}`)

// behindGateways starts a gateway for each pool with TLS.
func (e *example) behindGateways(text string) string {
	a := newAuthority(e.t)
	return behindGateway.ReplaceAllStringFunc(text, func(pool string) string {
		m := behindGateway.FindStringSubmatch(pool)
		address := e.gateway(a, fleet.PoolID(m[1]), m[3])
		return strings.NewReplacer(m[2], address, m[4], a.path("ca.pem")).Replace(pool)
	})
}

// gateway answers over TLS by its name, and notes who came.
func (e *example) gateway(a *authority, pool fleet.PoolID, sni string) string {
	a.issue(sni, &x509.Certificate{DNSNames: []string{sni}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pair, err := tls.LoadX509KeyPair(a.path(sni+".pem"), a.path(sni+".key"))
	check(e.t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != sni || r.TLS.ServerName != sni {
			http.Error(w, "another name", http.StatusMisdirectedRequest)
			return
		}
		if mark := r.Header.Get("x-test-id"); mark != "" && r.URL.Path == "/v1/chat/completions" {
			e.came(w, mark, pool)
		} else if r.URL.Path != "/healthz" {
			http.NotFound(w, r)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // weir-extproc measures how far it is by handshakes of TCP alone
	server.StartTLS()
	e.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// came notes a request, or refuses it.
func (e *example) came(w http.ResponseWriter, mark string, pool fleet.PoolID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if pool == e.refusing {
		e.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	e.gates[mark] = pool
}

// planned holds that the plan is what the README says.
func (e *example) planned(s sort) {
	e.t.Helper()
	got, err := snapshotOf(e.stage, s.frontEnd)
	check(e.t, err)
	for _, c := range got.Classes {
		if c.Class != s.class {
			continue
		}
		for _, p := range c.Pools {
			if math.Abs(p.Share-s.want[p.Pool]) > 1e-4 {
				e.t.Errorf("%s at %s: %v of it is planned for %s, want %v", s.class, s.frontEnd, p.Share, p.Pool, s.want[p.Pool])
			}
		}
	}
}

func (s *sort) mark(i int) string { return fmt.Sprintf("%s/%d", s.name, i) }

// send begins conversations.
func (e *example) send(s sort, n int) {
	e.t.Helper()
	client := stage.NewClient()
	defer client.CloseIdleConnections()
	var senders sync.WaitGroup
	var failed sync.Once
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		senders.Go(func() {
			defer func() { <-slots }()
			c := stage.Call{
				URL: e.stage.URL(s.frontEnd), Body: stage.Chat(s.model, s.mark(i), false, s.padding),
				Headers: map[string]string{"x-test-id": s.mark(i)},
			}
			if name, value, ok := strings.Cut(s.header, ": "); ok {
				c.Headers[name] = value
			}
			if r := stage.Do(e.t.Context(), client, c); !r.OK() {
				failed.Do(func() { e.t.Errorf("%s: %v, and perhaps others", s.mark(i), &r) })
			}
		})
	}
	senders.Wait()
}

// pools says to which pool each request came.
func (e *example) pools() map[string]fleet.PoolID {
	where := map[string]fleet.PoolID{}
	for _, a := range arrivals(e.t, e.stage) {
		where[a.Headers["x-test-id"]] = a.Pool
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for mark, pool := range e.gates {
		where[mark] = pool
	}
	return where
}

// judge holds what came to each pool against what the README says.
func (e *example) judge(s sort, where map[string]fleet.PoolID) {
	e.t.Helper()
	got := map[fleet.PoolID]int{}
	for i := range ofEach {
		got[where[s.mark(i)]]++
	}
	for _, p := range e.stage.Fleet.Pools {
		z := zScore(float64(got[p.ID]), ofEach, s.want[p.ID])
		e.t.Logf("%-12s at %-8s → %-8s %3d of %d, want %.1f %%, z = %+.2f", s.name, s.frontEnd, p.ID, got[p.ID], ofEach, 100*s.want[p.ID], z)
		if math.Abs(z) > 4 {
			e.t.Errorf("%s at %s: %d of %d came to %s, want %v of them: z = %.1f is no chance", s.name, s.frontEnd, got[p.ID], ofEach, p.ID, s.want[p.ID], z)
		}
	}
	if got[""] > 0 {
		e.t.Errorf("%s: %d came nowhere", s.name, got[""])
	}
}

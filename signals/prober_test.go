package signals

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"weir/fleet"
)

// run runs a prober of a fleet until the test ends.
func run(t *testing.T, log *zap.Logger, f *fleet.Fleet) (*Prober, <-chan Probe) {
	t.Helper()
	probes := make(chan Probe, 100)
	p := NewProber(log, f, func(pr Probe) {
		select {
		case probes <- pr:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return p, probes
}

// next waits for a probe.
func next(t *testing.T, probes <-chan Probe) Probe {
	t.Helper()
	select {
	case p := <-probes:
		return p
	case <-time.After(10 * time.Second):
		t.Fatal("no probe within 10 s")
		return Probe{}
	}
}

func onePool(engine string, tls *fleet.TLS) *fleet.Fleet {
	return &fleet.Fleet{
		Pools:   []fleet.Pool{{ID: "p", Engines: []fleet.EngineID{fleet.EngineID(engine)}, TLS: tls}},
		Options: fleet.Options{HealthPath: "/health"},
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   string // part of the reason; empty: ready
	}{
		{"ready", func(http.ResponseWriter, *http.Request) {}, ""},
		{"asked at its path", func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/health" {
				w.WriteHeader(http.StatusNotFound)
			}
		}, ""},
		{"busy", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "answered 503"},
		{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "answered 204"},
		{"redirect to one that is ready", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
			}
		}, "answered 302"},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within 1s"},
		{"hangs after its headers", func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "no answer within 1s"},
		{"endless body", func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
					return
				}
			}
		}, ""},
		{"cut short", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.answer)
			t.Cleanup(server.Close)
			engine := strings.TrimPrefix(server.URL, "http://")
			_, probes := run(t, zap.NewNop(), onePool(engine, nil))
			got := next(t, probes)
			if got.Pool != "p" || got.Engine != fleet.EngineID(engine) {
				t.Errorf("probe of %s at %s, want p at %s", got.Pool, got.Engine, engine)
			}
			switch {
			case c.want == "" && got.Err != nil:
				t.Errorf("not ready: %v", got.Err)
			case c.want != "" && (got.Err == nil || !strings.Contains(got.Err.Error(), c.want)):
				t.Errorf("reason %v, want one with %q", got.Err, c.want)
			}
			if silent := c.name == "hangs" || c.name == "cut short"; got.Answered == silent {
				t.Errorf("answered: %v, want %v", got.Answered, !silent)
			}
		})
	}
}

func TestProbeOfADeadEngine(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	engine := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	_, probes := run(t, zap.NewNop(), onePool(engine, nil))
	got := next(t, probes)
	if got.Err == nil || !strings.Contains(got.Err.Error(), "refused") || strings.Contains(got.Err.Error(), "Get") {
		t.Errorf("reason %v, want the bare connection refused", got.Err)
	}
	if got.Answered {
		t.Error("counted as an answer")
	}
}

func TestProbesRepeatOnOneConnection(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	_, probes := run(t, zap.NewNop(), onePool(strings.TrimPrefix(server.URL, "http://"), nil))
	for range 3 {
		if got := next(t, probes); got.Err != nil {
			t.Fatal(got.Err)
		}
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("%d connections for three probes, want 1", got)
	}
}

func TestSetFleetEndsTheOldProbes(t *testing.T) {
	t.Parallel()
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hang.Close)
	ready := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(ready.Close)
	old, fresh := strings.TrimPrefix(hang.URL, "http://"), strings.TrimPrefix(ready.URL, "http://")
	p, probes := run(t, zap.NewNop(), onePool(old, nil))
	next(t, probes)
	for range 3 { // the latest wins, and nothing blocks
		p.SetFleet(onePool(old, nil))
		p.SetFleet(onePool(fresh, nil))
	}
	for next(t, probes).Engine != fleet.EngineID(fresh) {
	}
	for range 2 {
		if got := next(t, probes); got.Engine != fleet.EngineID(fresh) {
			t.Fatalf("probe of %s after it left the fleet", got.Engine)
		}
	}
}

func TestProbeOverTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if name := r.TLS.ServerName; name != "" && r.Host != name {
			t.Errorf("asked for %s by the name of %s", r.Host, name)
		}
	}))
	server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		tls  fleet.TLS
		want string
	}{
		{"by CA and name", fleet.TLS{CAFile: ca, SNI: "example.com"}, ""},
		{"by CA alone", fleet.TLS{CAFile: ca}, ""},
		{"another name", fleet.TLS{CAFile: ca, SNI: "engines.example.net"}, "certificate is valid for"},
		{"the machine's roots", fleet.TLS{SNI: "example.com"}, "unknown authority"},
		{"the machine's roots, no name", fleet.TLS{}, "unknown authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, probes := run(t, zap.NewNop(), onePool(strings.TrimPrefix(server.URL, "https://"), &c.tls))
			got := next(t, probes)
			switch {
			case c.want == "" && got.Err != nil:
				t.Errorf("not ready: %v", got.Err)
			case c.want != "" && (got.Err == nil || !strings.Contains(got.Err.Error(), c.want)):
				t.Errorf("reason %v, want one with %q", got.Err, c.want)
			}
		})
	}
}

func TestPoolWhoseFilesAreMissingStaysUnknown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tls := range map[string]fleet.TLS{
		"no CA file":      {CAFile: filepath.Join(dir, "none.pem")},
		"empty CA file":   {CAFile: empty},
		"no certificate":  {CertFile: filepath.Join(dir, "none.pem"), KeyFile: empty},
		"bad certificate": {CertFile: empty, KeyFile: empty},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			ready := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			t.Cleanup(ready.Close)
			f := onePool("127.0.0.1:9", &tls)
			f.Pools = append(f.Pools, fleet.Pool{ID: "q", Engines: []fleet.EngineID{
				fleet.EngineID(strings.TrimPrefix(ready.URL, "http://")),
			}})
			_, probes := run(t, zap.New(core), f)
			for range 2 { // the other pool's engine is probed twice, this one never
				if got := next(t, probes); got.Pool != "q" {
					t.Errorf("probe of pool %s: %v", got.Pool, got.Err)
				}
			}
			if got := logs.FilterField(zap.String("pool", "p")).Len(); got != 1 {
				t.Errorf("%d warnings, want 1: %v", got, logs.All())
			}
		})
	}
}

func TestProberLogsChangesOnly(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(server.Close)
	status.Store(200)
	core, logs := observer.New(zap.InfoLevel)
	_, probes := run(t, zap.New(core), onePool(strings.TrimPrefix(server.URL, "http://"), nil))
	probed := func(status string) {
		t.Helper()
		for range 2 {
			for !strings.Contains(fmt.Sprint(next(t, probes).Err), status) {
			}
		}
	}
	probed("nil")
	status.Store(500)
	probed("500")
	status.Store(503)
	probed("503")
	status.Store(200)
	probed("nil")
	var got []string
	for _, l := range logs.All() {
		got = append(got, fmt.Sprint(l.Level, " ", l.Message, " ", l.ContextMap()["reason"]))
	}
	want := []string{
		"info engine ready <nil>",
		"warn engine unready health check answered 500, want 200",
		"info engine ready <nil>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}

// What changes elsewhere does not disturb the probes of an engine that stays: one that
// hangs would else never be found out while others come and go.
func TestAnEngineThatStaysIsProbedOnUndisturbed(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	stays := strings.TrimPrefix(server.URL, "http://")
	p, probes := run(t, zap.NewNop(), onePool(stays, nil))
	<-asked
	for i := range 20 {
		f := onePool(stays, nil)
		f.Pools[0].Engines = append(f.Pools[0].Engines, fleet.EngineID(fmt.Sprintf("127.0.0.1:%d", 1+i)))
		p.SetFleet(f)
	}
	p.SetFleet(onePool(stays, nil))
	for {
		if got := next(t, probes); got.Engine == fleet.EngineID(stays) {
			if !errors.Is(got.Err, context.DeadlineExceeded) {
				t.Errorf("the probe ended with %v, want that there was no answer in time", got.Err)
			}
			break
		}
	}
	if n := len(asked); n > 0 {
		t.Errorf("the engine was asked %d times more before its probe was over", n)
	}
}

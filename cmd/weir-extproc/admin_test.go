package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"weir/admin"
	"weir/envoy"
	"weir/extproc"
	"weir/fleet"
	"weir/xds"
)

// The process is alive at once, and ready when it has a table to decide by.
func TestAdmin(t *testing.T) {
	conn, err := xds.Dial("127.0.0.1:1", nil) // nobody
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l, err := admin.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	parts := newParts(options{slowAfter: time.Minute}, zap.NewNop())
	node := envoy.Node("eu", "eu-1", fleet.RoleExtProc)
	client := xds.NewClient(conn, node, parts.swap, zap.NewNop())
	reporter := xds.NewReporter(conn, node, parts.take, zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveAdmin(ctx, l, parts, client, reporter, zap.NewNop()) }()

	ask := func(path string, status int, says string) {
		t.Helper()
		code, body := get(t, "http://"+l.Addr().String()+path)
		if code != status || !strings.Contains(body, says) {
			t.Errorf("%s: %d %.200s; want %d and %q", path, code, body, status, says)
		}
	}
	ask("/healthz", 200, "alive")
	ask("/readyz", 503, "nothing was heard of the control plane")
	o := options{admin: l.Addr().String()}
	if err := askReady(t.Context(), o); err == nil || !strings.Contains(err.Error(), "nothing was heard of the control plane") {
		t.Errorf("asked whether it is ready: %v", err)
	}
	ask("/metrics", 200, "weir_extproc_serving 0")
	ask("/status", 404, "/healthz, /readyz, /metrics")
	parts.server.Swap(extproc.NewTable(&fleet.View{}))
	ask("/readyz", 200, "ready")
	if err := askReady(t.Context(), o); err != nil {
		t.Errorf("asked whether it is ready: %v", err)
	}
	ask("/metrics", 200, "weir_extproc_serving 1")

	cancel()
	if err := <-done; err != nil {
		t.Errorf("served until %v", err)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestNoAdmin(t *testing.T) {
	if err := serveAdmin(t.Context(), nil, &parts{}, nil, nil, zap.NewNop()); err != nil {
		t.Errorf("without an address: %v", err)
	}
}

// Levels reach the server without a new view, which is made of other resources alone.
func TestLevelsMakeNoTable(t *testing.T) {
	v := &fleet.View{
		FrontEnd: "eu", Listen: "127.0.0.1:1", BodyLimit: 1 << 20,
		Routes: []fleet.ViewRoute{{Class: "chat", Rule: fleet.Rule{Path: "/"}}},
		Classes: []fleet.ViewClass{{ID: "chat", Admitted: 1, Pools: []fleet.ViewPool{{
			ID: "a", Weight: fleet.WeightScale, Engines: []fleet.ViewEngine{{ID: "10.0.0.1:80"}, {ID: "10.0.0.2:80"}, {ID: "10.0.0.3:80"}},
		}}}},
	}
	plan, err := envoy.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	p := newParts(options{slowAfter: time.Minute}, zap.NewNop())
	registry := admin.NewRegistry()
	if err := p.server.RegisterMetrics(registry); err != nil {
		t.Fatal(err)
	}
	tell := func(round int64, queued float64) {
		t.Helper()
		pool := fleet.PoolLevels{ID: "a", Print: fleet.FingerprintOf([]fleet.EngineID{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"})}
		pool.Engines = []fleet.EngineLevels{{Queued: fleet.Known(queued)}, {Queued: fleet.Known(0)}, {Queued: fleet.Known(0)}}
		layers, err := envoy.EncodeLevels(&fleet.Levels{Round: round, Tick: time.Second, Pools: []fleet.PoolLevels{pool}})
		if err != nil {
			t.Fatal(err)
		}
		all := *plan
		all.Runtimes = append(layers, plan.Runtimes...)
		if err := p.swap(&all); err != nil {
			t.Fatal(err)
		}
	}
	full := func() float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "weir_extproc_engines_full" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	tell(1, 20)
	first := p.taken
	if got := full(); got != 1 {
		t.Errorf("%v engines are full, want the one with a queue", got)
	}
	tell(2, 0)
	if got := full(); got != 0 || p.taken != first {
		t.Errorf("%v engines are full, want none; the view is made anew: %v", got, p.taken != first)
	}
	if plan, err = envoy.Encode(v); err != nil {
		t.Fatal(err)
	}
	if tell(3, 0); p.taken == first {
		t.Error("no new view of new resources")
	}
}

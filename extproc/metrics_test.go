package extproc

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"weir/extproc/wire"
)

// registered returns a registry with the server's metrics, which must be clean.
func registered(t *testing.T, s *Server) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := s.RegisterMetrics(r); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	return r
}

func compare(t *testing.T, r *prometheus.Registry, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, twoPools())
	r := registered(t, s)
	const inFlight = "# HELP weir_extproc_requests_in_flight Admitted requests that are open.\n# TYPE weir_extproc_requests_in_flight gauge\n"
	compare(t, r, inFlight+"weir_extproc_requests_in_flight{class=\"chat\"} 0\n", "weir_extproc_requests_in_flight")
	ask(t, open(t, conn), `{"model":"small"}`)
	ask(t, open(t, conn), `{"model":"nobody's"}`)
	ask(t, open(t, conn), `{`)
	compare(t, r, inFlight+"weir_extproc_requests_in_flight{class=\"chat\"} 1\n", "weir_extproc_requests_in_flight")
	compare(t, r, `
# HELP weir_extproc_requests_total Requests, by what became of them.
# TYPE weir_extproc_requests_total counter
weir_extproc_requests_total{outcome="admitted"} 1
weir_extproc_requests_total{outcome="busy"} 0
weir_extproc_requests_total{outcome="no_engine"} 0
weir_extproc_requests_total{outcome="no_table"} 0
weir_extproc_requests_total{outcome="passed_through"} 0
weir_extproc_requests_total{outcome="shed"} 0
weir_extproc_requests_total{outcome="too_long"} 0
weir_extproc_requests_total{outcome="undecided"} 0
weir_extproc_requests_total{outcome="unknown_model"} 1
weir_extproc_requests_total{outcome="unreadable"} 1
# HELP weir_extproc_serving 1 once the control plane was heard: there is a table to decide by.
# TYPE weir_extproc_serving gauge
weir_extproc_serving 1
`, "weir_extproc_requests_total", "weir_extproc_serving")
}

// Of many decisions some are timed; that a body is asked for is no decision.
func TestDecisionsAreTimed(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, twoPools())
	r := registered(t, s)
	const requests = 400
	for range requests {
		x := exchange{table: s.table.Load()}
		s.timed(t.Context(), &x, headersOf(post("/v1/chat/completions")))
	}
	if n := decisions(t, r); n != 0 {
		t.Fatalf("%d decisions timed before any", n)
	}
	for range requests {
		x := exchange{table: s.table.Load()}
		s.timed(t.Context(), &x, headersOf(request("GET", "/v1/models")))
		s.timed(t.Context(), &x, headersOf(request("GET", "/v1/models")))
	}
	if n := decisions(t, r); n == 0 || n >= requests {
		t.Errorf("%d of %d decisions timed, want some", n, requests)
	}
}

func decisions(t *testing.T, r *prometheus.Registry) uint64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "weir_extproc_deciding_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return 0
}

// A request whose client leaves before its body is whole was not decided about.
func TestUndecided(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, twoPools())
	c := open(t, conn)
	c.headers(post("/v1/chat/completions"))
	c.cancel()
	eventually(t, "the request is counted", func() bool { return s.Counters().Undecided.Load() == 1 })
}

// BenchmarkTiming is what timing adds to a message that decides nothing.
func BenchmarkTiming(b *testing.B) {
	s := New(zap.NewNop())
	m := &wire.Request{Kind: wire.ResponseTrailers}
	for name, answer := range map[string]func(context.Context, *exchange, *wire.Request) any{
		"timed": s.timed, "bare": s.answer,
	} {
		b.Run(name, func(b *testing.B) {
			var x exchange
			for b.Loop() {
				answer(b.Context(), &x, m)
			}
		})
	}
}

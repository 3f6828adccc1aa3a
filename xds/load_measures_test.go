package xds

import (
	"math"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"weir/envoy"
	"weir/fleet"
)

// measured is a report with everything that weir-extproc measures.
var measured = fleet.LoadReport{
	Classes: []fleet.ClassLoad{{
		Class: "chat", Arrivals: 7, Shed: 1,
		Tokens: fleet.TokenLoad{Requests: 6, Estimated: 2, Prompt: 600, Output: 60.5, Cached: 17},
		Pools: []fleet.PoolLoad{{Pool: "a", Issued: 3, Engines: []fleet.EngineLoad{
			{
				Engine:   "10.0.0.1:80",
				Outcomes: fleet.Outcomes{fleet.Answered: 5, fleet.Busy: 1, fleet.Aborted: 2},
				TTFT:     bucketsOf(0.2, 0.21, 3, 90),
				TBT:      bucketsOf(0.02, 0.02),
				Whole:    1,
			},
			{Engine: "[fd00::1]:8000", Outcomes: fleet.Outcomes{fleet.Slow: 1}, TTFT: bucketsOf(30)},
		}}},
	}},
	RoundTrips: []fleet.RoundTrip{{Pool: "a", Count: 2, Seconds: 0.004}, {Pool: "b", Count: 1, Seconds: 0.08}},
	Open: []fleet.EngineOpen{
		{Pool: "a", Engine: "10.0.0.1:80", Open: 12}, {Pool: "b", Engine: "10.0.0.2:80", Open: 1}, {Pool: "a", Engine: "[fd00::1]:8000", Open: 3},
	},
	Penalties: []fleet.Penalty{
		{Pool: "a", Engine: "10.0.0.1:80", Value: 0.05, Fault: "server_error", AgeSeconds: 3.5, ClearsSeconds: 20},
		{Pool: "b", Engine: "10.0.0.3:80", Value: 0.5, Fault: fleet.FaultFirstTokens, AgeSeconds: 600, ClearsSeconds: 0.25},
	},
}

func bucketsOf(seconds ...float64) (b fleet.Buckets) {
	for _, s := range seconds {
		b.Observe(s)
	}
	return b
}

// overTheWire is what a control plane reads of a report.
func overTheWire(t rapid.TB, r fleet.LoadReport) (fleet.LoadReport, uint64) {
	t.Helper()
	wire, err := proto.Marshal(&loadv3.LoadStatsRequest{ClusterStats: encodeLoad(r, time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	var req loadv3.LoadStatsRequest
	if err := proto.Unmarshal(wire, &req); err != nil {
		t.Fatal(err)
	}
	for _, s := range req.ClusterStats {
		if err := s.ValidateAll(); err != nil {
			t.Fatalf("not a valid report: %v", err)
		}
	}
	return decodeLoad(fleet.RoleExtProc, req.ClusterStats)
}

func TestMeasuresReadBackAsWritten(t *testing.T) {
	t.Parallel()
	got, refused := overTheWire(t, measured)
	if diff := cmp.Diff(measured, got); diff != "" || refused != 0 {
		t.Errorf("%d measures refused; report (-want +got):\n%s", refused, diff)
	}
}

func TestAnyTimesReadBackAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var e fleet.EngineLoad
		e.Engine = "10.0.0.1:80"
		for _, s := range rapid.SliceOf(rapid.Float64Range(0, 5000)).Draw(t, "TTFT") {
			e.TTFT.Observe(s)
		}
		for o := range e.Outcomes {
			e.Outcomes[o] = rapid.Uint64Max(maxMeasured).Draw(t, "outcome")
		}
		want := fleet.LoadReport{Classes: []fleet.ClassLoad{{Class: "chat", Pools: []fleet.PoolLoad{{Pool: "a", Engines: []fleet.EngineLoad{e}}}}}}
		got, refused := overTheWire(t, want)
		if diff := cmp.Diff(want, got); diff != "" || refused != 0 {
			t.Errorf("%d measures refused; report (-want +got):\n%s", refused, diff)
		}
	})
}

// What stands twice is added up: weir-extproc sends a class's demand and its
// outcomes apart.
func TestMeasuresAddUp(t *testing.T) {
	t.Parallel()
	twice := fleet.LoadReport{
		Classes:    append(measured.Classes, measured.Classes...),
		RoundTrips: append(measured.RoundTrips, measured.RoundTrips...),
		Open:       append(measured.Open, measured.Open...),
	}
	got, _ := overTheWire(t, twice)
	c, e := got.Classes[0], got.Classes[0].Pools[0].Engines[0]
	want := fleet.TokenLoad{Requests: 12, Estimated: 4, Prompt: 1200, Output: 121, Cached: 34}
	if diff := cmp.Diff(want, c.Tokens, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	if e.Outcomes[fleet.Answered] != 10 || e.TTFT.Count() != 8 || e.Whole != 2 || got.RoundTrips[0].Count != 4 || got.Open[0].Open != 24 {
		t.Errorf("twice the same report reads %+v", got)
	}
}

func TestMeasuresThatCannotBeTrueAreRefused(t *testing.T) {
	t.Parallel()
	class := func(pool string, l *endpointv3.UpstreamLocalityStats) *endpointv3.ClusterStats {
		l.Locality = &corev3.Locality{Zone: pool}
		return &endpointv3.ClusterStats{ClusterName: "chat", UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{l}}
	}
	engine := func(address string, metrics ...*endpointv3.EndpointLoadMetricStats) *endpointv3.ClusterStats {
		return class("a", &endpointv3.UpstreamLocalityStats{UpstreamEndpointStats: []*endpointv3.UpstreamEndpointStats{{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
			}}},
			LoadMetricStats: metrics,
		}}})
	}
	tokens := func(metrics ...*endpointv3.EndpointLoadMetricStats) *endpointv3.ClusterStats {
		return class("", &endpointv3.UpstreamLocalityStats{LoadMetricStats: metrics})
	}
	trip := func(count uint64, total float64) *endpointv3.ClusterStats {
		s := class("a", &endpointv3.UpstreamLocalityStats{LoadMetricStats: []*endpointv3.EndpointLoadMetricStats{metric(roundTrip, count, total)}})
		s.ClusterName = envoy.ExtProc
		return s
	}
	open := func(pool, address string, n uint64) *endpointv3.ClusterStats {
		s := engine(address)
		s.ClusterName = envoy.ExtProc
		s.UpstreamLocalityStats[0].Locality.Zone = pool
		s.UpstreamLocalityStats[0].UpstreamEndpointStats[0].TotalRequestsInProgress = n
		return s
	}
	penalised := func(pool, address string, metrics ...*endpointv3.EndpointLoadMetricStats) *endpointv3.ClusterStats {
		s := open(pool, address, 0)
		s.UpstreamLocalityStats[0].UpstreamEndpointStats[0].LoadMetricStats = metrics
		return s
	}
	tests := map[string]*endpointv3.ClusterStats{
		"a penalty of nobody":  penalised("a", "engine-1", metric("penalty.reset", 1, 0.5)),
		"a penalty nowhere":    penalised("", "10.0.0.1", metric("penalty.reset", 1, 0.5)),
		"a penalty of nothing": penalised("a", "10.0.0.1", metric("penalty.reset", 1, 0)),
		"a penalty of all":     penalised("a", "10.0.0.1", metric("penalty.reset", 1, 1)),
		"a penalty for what":   penalised("a", "10.0.0.1", metric("penalty.looks", 1, 0.5)),
		"a penalty from when":  penalised("a", "10.0.0.1", metric("penalty.reset", 1, 0.5), metric("penalty.age", 1, -1)),
		"an endless penalty":   penalised("a", "10.0.0.1", metric("penalty.reset", 1, 0.5), metric("penalty.clears", 1, math.Inf(1))),
		"no address":           engine("engine-1", metric("outcome.busy", 1, 0)),
		"too many":             engine("10.0.0.1", metric("outcome.busy", math.MaxUint64, 0)),
		"a sum without bins":   engine("10.0.0.1", metric("ttft", 1, 3)),
		"no bin":               engine("10.0.0.1", metric("ttft", 1, 3), metric("ttft.x", 1, 0)),
		"a bin beyond all":     engine("10.0.0.1", metric("tbt", 1, 3), metric("tbt.1000", 1, 0)),
		"no number":            engine("10.0.0.1", metric("ttft", 1, math.NaN()), metric("ttft.70", 1, 0)),
		"negative tokens":      tokens(metric(promptMetric, 1, -1)),
		"tokens of nobody":     tokens(metric(outputMetric, 0, 10)),
		"endless tokens":       tokens(metric(promptMetric, 1, math.Inf(1))),
		"more guesses than it": tokens(metric(promptMetric, 1, 1), metric(guessedMetric, 2, 0)),
		"a round trip of days": trip(1, 1e6),
		"round trips of none":  trip(0, 1),
		"a negative way":       trip(1, -1),
		"open at no address":   open("a", "engine-1", 1),
		"open in no pool":      open("", "10.0.0.1", 1),
		"too many open":        open("a", "10.0.0.1", math.MaxUint64),
	}
	for name, stats := range tests {
		t.Run(name, func(t *testing.T) {
			got, refused := decodeLoad(fleet.RoleExtProc, []*endpointv3.ClusterStats{stats})
			if refused != 1 {
				t.Errorf("%d measures refused, want 1", refused)
			}
			credible(t, &got)
			if got.Open != nil || got.Penalties != nil {
				t.Errorf("open requests %v, penalties %v are believed", got.Open, got.Penalties)
			}
			for _, c := range got.Classes {
				for _, p := range c.Pools {
					if len(p.Engines) > 0 {
						t.Errorf("engines %+v are believed", p.Engines)
					}
				}
			}
		})
	}
}

func TestEnvoysMeasureNoEngines(t *testing.T) {
	t.Parallel()
	got, refused := decodeLoad(fleet.RoleEnvoy, encodeLoad(measured, time.Second))
	want := []fleet.ClassLoad{{Class: "chat", Pools: []fleet.PoolLoad{{Pool: "a", Issued: 3}}}}
	if diff := cmp.Diff(want, got.Classes); diff != "" || refused != 0 || got.RoundTrips != nil || got.Open != nil || got.Penalties != nil {
		t.Errorf("%d refused, round trips %v; classes (-want +got):\n%s", refused, got.RoundTrips, diff)
	}
}

// credible holds that what was read can be true.
func credible(t *testing.T, r *fleet.LoadReport) {
	t.Helper()
	for _, c := range r.Classes {
		if k := c.Tokens; !(k.Prompt >= 0 && k.Output >= 0 && k.Cached >= 0) || math.IsInf(k.Prompt+k.Output+k.Cached, 0) || k.Estimated > k.Requests {
			t.Errorf("class %q: tokens %+v", c.Class, k)
		}
		for _, p := range c.Pools {
			for i := range p.Engines {
				e := &p.Engines[i]
				if err := e.TTFT.Check(); err != nil && e.TTFT.Count() < maxMeasured {
					t.Errorf("engine %q: TTFT: %v", e.Engine, err)
				}
				if err := e.TBT.Check(); err != nil && e.TBT.Count() < maxMeasured {
					t.Errorf("engine %q: TBT: %v", e.Engine, err)
				}
			}
		}
	}
	for _, trip := range r.RoundTrips {
		if trip.Count == 0 || !(trip.Seconds >= 0 && trip.Seconds <= maxRoundTrip*float64(trip.Count)) {
			t.Errorf("round trip %+v", trip)
		}
	}
}

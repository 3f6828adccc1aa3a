package xds

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/envoy"
	"weir/fleet"
)

// metered is what counts.
type metered interface {
	RegisterMetrics(prometheus.Registerer) error
}

// values reads all series as "name label label", less the room's prefix. They
// must be clean.
func values(t *testing.T, m metered) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := m.RegisterMetrics(r); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "weir_xds_")
			for _, l := range s.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = s.GetCounter().GetValue() + s.GetGauge().GetValue()
		}
	}
	return all
}

func hold(t *testing.T, m metered, want map[string]float64) {
	t.Helper()
	got := values(t, m)
	for name, w := range want {
		if g, ok := got[name]; !ok || g != w {
			t.Errorf("%s = %v (there: %v), want %v", name, g, ok, w)
		}
	}
}

func TestServerMetrics(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east", "west")
	s.publish(t, "east", first)
	f := s.follow(t, "east", "n1", fleet.RoleExtProc)
	f.await(t, "chat=10 chat 1")
	s.follow(t, "atlantis", "n1", fleet.RoleEnvoy)
	eventually(t, "the stranger is seen and all is taken", func() bool {
		c := s.Clients()
		return len(c) == 2 && !c[0].Known && c[1].UpToDate()
	})
	hold(t, s.Server, map[string]float64{
		"clients east extproc":        1,
		"clients east envoy":          0,
		"clients west envoy":          0, // nobody there is not nothing to say
		"clients_behind east extproc": 0,
		"lag_seconds east extproc":    0,
		"clients_unknown":             1,
		"load_streams":                0,
		"pushes_total":                3,
		"nacks_total":                 0,
		"reports_dropped_total":       0,
	})
	for name := range values(t, s.Server) {
		if strings.Contains(name, "atlantis") {
			t.Errorf("%s: a client chose this label", name)
		}
	}
	f.setRefuse(errTest)
	s.publish(t, "east", plan{weights: map[string]uint32{"chat": 11}, budget: 1, listen: 1})
	eventually(t, "the refusal is known", func() bool { return s.Counts().Nacks == 1 })
	hold(t, s.Server, map[string]float64{
		"clients_refusing east extproc": 1,
		"clients_behind east extproc":   1,
		"nacks_total":                   1,
	})
	if lag := values(t, s.Server)["lag_seconds east extproc"]; lag <= 0 {
		t.Errorf("the refusing client lags %v s, want some", lag)
	}
}

// Load reports that are not passed on are counted, each for its reason.
func TestReportsThatAreNotPassedOn(t *testing.T) {
	t.Parallel()
	s := New(Options{Reports: make(chan fleet.LoadReport, 1)}, zap.NewNop())
	s.SetFrontEnds([]fleet.FrontEndID{"east"})
	take := func(id fleet.FrontEndID, batch string) {
		node := envoy.Node(id, "n1", fleet.RoleExtProc)
		node.Metadata.Fields[batchKey] = structpb.NewStringValue(batch)
		s.take(identity{id, "n1", fleet.RoleExtProc}, &loadv3.LoadStatsRequest{Node: node}, time.Second)
	}
	take("east", "a")
	take("east", "a")
	take("east", "b")
	take("atlantis", "a")
	hold(t, s, map[string]float64{
		"reports_total":          2,
		"reports_repeated_total": 1,
		"reports_dropped_total":  1,
		"reports_unknown_total":  1,
	})
}

func TestClientMetrics(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publish(t, "east", first)
	var refuse atomic.Bool
	c := NewClient(s.dial(t), envoy.Node("east", "n1", fleet.RoleExtProc), func(*envoy.Resources) error {
		if refuse.Load() {
			return errTest
		}
		return nil
	}, zap.NewNop())
	hold(t, c, map[string]float64{"client_connected": 0, "client_streams_total": 0})
	run(t, c.Run)
	eventually(t, "all is taken", func() bool { return c.Counters.Updates.Load() == 3 })
	hold(t, c, map[string]float64{"client_connected": 1, "client_streams_total": 1, "client_refused_total": 0})
	s.stop()
	eventually(t, "the outage is noticed", func() bool { return !c.Counters.Connected.Load() && c.Counters.Streams.Load() > 1 })

	refuse.Store(true)
	again := serveAt(t, s.address, Options{}, zap.NewNop(), "east")
	again.publish(t, "east", plan{weights: map[string]uint32{"chat": 11}, budget: 1, listen: 1})
	eventually(t, "a refusal is counted", func() bool { return c.Counters.Refused.Load() > 0 })
	hold(t, c, map[string]float64{"client_connected": 1})
}

func TestReporterMetrics(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{LoadInterval: 10 * time.Millisecond, Reports: make(chan fleet.LoadReport, 1)}, "east")
	r := NewReporter(s.dial(t), envoy.Node("east", "n1", fleet.RoleExtProc), func() fleet.LoadReport { return fleet.LoadReport{} }, zap.NewNop())
	run(t, r.Run)
	eventually(t, "reports are answered", func() bool { return r.Counters.Answered.Load() > 1 })
	hold(t, r, map[string]float64{"reporter_streams_total": 1, "reporter_repeated_total": 0})
	r2 := NewReporter(nil, envoy.Node("east", "n2", fleet.RoleExtProc), func() fleet.LoadReport { return fleet.LoadReport{} }, zap.NewNop())
	r2.fill(time.Now())
	r2.fill(time.Now()) // no answer came
	hold(t, r2, map[string]float64{"reporter_repeated_total": 1, "reporter_answered_total": 0})
}

// A client that answers nothing costs no more than so many responses remembered.
func TestForgottenResponsesAreTold(t *testing.T) {
	t.Parallel()
	d := newDelivery(nil, false)
	for i := range maxPending {
		if d.pushed(&discoveryv3.DeltaDiscoveryResponse{Nonce: strconv.Itoa(i)}, time.Now()) {
			t.Fatalf("response %d is forgotten below the bound", i)
		}
	}
	if !d.pushed(&discoveryv3.DeltaDiscoveryResponse{Nonce: "one more"}, time.Now()) {
		t.Error("nothing is forgotten above the bound")
	}
}

package xds

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"

	"weir/envoy"
	"weir/fleet"
)

// askAll is a client that asks for everything, by wildcard, as its role may.
func (s *served) askAll(t *testing.T, node *corev3.Node) *probe {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(s.dial(t)).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{t: t, stream: stream, held: map[string]map[string]string{}}
	for _, typeURL := range servedTypes(envoy.RoleOf(node)) {
		p.subscribe(node, typeURL, "*")
	}
	return p
}

func (s *served) publishLevels(t *testing.T, round int64, inFlight map[fleet.PoolID]float64) {
	t.Helper()
	l := &fleet.Levels{Round: round, Tick: time.Second}
	for pool, n := range inFlight {
		l.Pools = append(l.Pools, fleet.PoolLevels{ID: pool, Engines: []fleet.EngineLevels{{InFlight: fleet.Known(n)}}})
	}
	layers, err := envoy.EncodeLevels(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PublishLevels(layers, nil); err != nil {
		t.Fatal(err)
	}
}

// Levels go to weir-extprocs alone, and only what has changed of them: an Envoy that
// asks for every runtime layer gets none, and its own is not sent again.
func TestLevelsReachExtProcsAlone(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publish(t, "east", first)
	s.publishLevels(t, 1, map[fleet.PoolID]float64{"a": 1, "b": 1})
	ext := s.askAll(t, envoy.Node("east", "n1", fleet.RoleExtProc))
	env := s.askAll(t, envoyNode("n2"))
	runtimes := func(p *probe) []string {
		return slices.DeleteFunc(slices.Clone(p.log), func(line string) bool { return !strings.HasPrefix(line, "Runtime") })
	}
	ext.until("Runtime +weir +weir-load +weir-load.a +weir-load.b")
	env.until("Runtime +weir")

	s.publishLevels(t, 2, map[fleet.PoolID]float64{"a": 1, "b": 2})
	ext.until("Runtime +weir-load +weir-load.b")
	s.publish(t, "east", first)
	s.publishLevels(t, 2, map[fleet.PoolID]float64{"a": 1, "b": 2}) // nothing new
	s.publishLevels(t, 3, map[fleet.PoolID]float64{"b": 2})
	ext.until("Runtime +weir-load -weir-load.a")
	ext.fence(s, first)
	env.until("Runtime +weir")
	wants := []string{
		"Runtime +weir +weir-load +weir-load.a +weir-load.b",
		"Runtime +weir-load +weir-load.b", "Runtime +weir-load -weir-load.a", "Runtime +weir",
	}
	if diff := cmp.Diff(wants, runtimes(ext)); diff != "" {
		t.Errorf("weir-extproc (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Runtime +weir", "Runtime +weir"}, runtimes(env)); diff != "" {
		t.Errorf("Envoy (-want +got):\n%s", diff)
	}
}

// A weir-extproc of a front-end that is published later has the levels, too.
func TestLevelsWaitForAFrontEnd(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publishLevels(t, 1, map[fleet.PoolID]float64{"a": 1})
	ext := s.askAll(t, envoy.Node("east", "n1", fleet.RoleExtProc))
	eventually(t, "it is connected", func() bool { return len(s.Clients()) == 1 })
	s.publish(t, "east", first)
	ext.until("Runtime +weir +weir-load +weir-load.a")
}

package xds

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weir/envoy"
	"weir/fleet"
)

func envoyNode(id string) *corev3.Node { return envoy.Node("east", id, fleet.RoleEnvoy) }

var first = plan{weights: map[string]uint32{"chat": 10}, budget: 1, listen: 1}

// The end of a change is seen by a later change of the runtime: one stream keeps
// the order, so all that was sent in between has arrived.
func (p *probe) fence(s *served, last plan) {
	p.t.Helper()
	last.budget++
	s.publish(p.t, "east", last)
	p.until("Runtime +weir")
}

// What refers to other resources comes after them, in whatever order a client has
// asked.
func TestTypesComeInOrder(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(s.dial(t)).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{t: t, stream: stream, held: map[string]map[string]string{}}
	order := servedTypes(fleet.RoleEnvoy)
	for i := len(order) - 1; i >= 0; i-- {
		p.subscribe(envoyNode("n1"), order[i], "*")
	}
	eventually(t, "all is asked for", func() bool { c := s.Clients(); return len(c) == 1 && len(c[0].Types) == len(order) })
	s.publish(t, "east", first)
	for range order {
		p.next()
	}
	want := []string{
		"Cluster +chat", "ClusterLoadAssignment +chat", "Listener +weir", "RouteConfiguration +weir", "Runtime +weir",
	}
	if diff := cmp.Diff(want, p.log); diff != "" {
		t.Errorf("responses (-want +got):\n%s", diff)
	}
}

// settled is a probe that has taken the first plan.
func settled(t *testing.T, s *served) *probe {
	t.Helper()
	s.publish(t, "east", first)
	p := s.probe(t, envoyNode("n1"), nil)
	for range 5 {
		p.next()
	}
	eventually(t, "the client is up to date", func() bool { c := s.Clients(); return len(c) == 1 && c[0].UpToDate() })
	return p
}

func TestChanges(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		plans []plan // after the first
		want  []string
	}{
		{
			name:  "nothing changed, nothing sent",
			plans: []plan{first},
			want:  nil,
		},
		{
			name:  "weights alone",
			plans: []plan{{weights: map[string]uint32{"chat": 11}, budget: 1, listen: 1}},
			want:  []string{"ClusterLoadAssignment +chat"},
		},
		{
			name:  "a cluster alone: its endpoints come again, which it waits for",
			plans: []plan{{weights: map[string]uint32{"chat": 10}, budget: 1, listen: 1, connectTimeout: time.Second}},
			want:  []string{"Cluster +chat", "ClusterLoadAssignment +chat"},
		},
		{
			name:  "a listener alone",
			plans: []plan{{weights: map[string]uint32{"chat": 10}, budget: 1, listen: 2}},
			want:  []string{"Listener +weir"},
		},
		{
			name:  "a new class: clusters and endpoints before the routes that use them",
			plans: []plan{{weights: map[string]uint32{"chat": 10, "code": 5}, budget: 1, listen: 1}},
			want:  []string{"Cluster +code", "ClusterLoadAssignment +code", "RouteConfiguration +weir"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, Options{}, "east")
			p := settled(t, s)
			last := first
			for _, next := range test.plans {
				s.publish(t, "east", next)
				last = next
			}
			for range test.want {
				p.next()
			}
			p.fence(s, last)
			got := p.since(5)
			if diff := cmp.Diff(test.want, got[:len(got)-1], emptyIsNil); diff != "" {
				t.Errorf("responses (-want +got):\n%s", diff)
			}
		})
	}
}

var emptyIsNil = cmp.Transformer("empty", func(s []string) []string {
	if len(s) == 0 {
		return nil
	}
	return s
})

func TestRemovedClassLeavesRoutesFirst(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	both := plan{weights: map[string]uint32{"chat": 10, "code": 5}, budget: 1, listen: 1}
	p := settled(t, s)
	s.publish(t, "east", both)
	p.until("RouteConfiguration +weir")
	mark := len(p.log)
	s.publish(t, "east", first)
	p.until("Cluster -code")
	if diff := cmp.Diff([]string{"RouteConfiguration +weir", "Cluster -code"}, p.since(mark)); diff != "" {
		t.Errorf("responses (-want +got):\n%s", diff)
	}
	s.publish(t, "east", both)
	p.until("RouteConfiguration +weir")
	if !slices.Contains(p.since(mark+2), "ClusterLoadAssignment +code") {
		t.Errorf("the class came back without its endpoints: %q", p.since(mark+2))
	}
}

func TestReconnectSendsNothingAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	p.cancel()
	eventually(t, "the stream is forgotten", func() bool { return len(s.Clients()) == 0 })
	again := s.probe(t, envoyNode("n1"), p.held)
	again.fence(s, first)
	want := []string{"Cluster", "Listener", "Runtime +weir"} // a wildcard is answered, if only by nothing
	if diff := cmp.Diff(want, again.log); diff != "" {
		t.Errorf("responses (-want +got):\n%s", diff)
	}
}

func TestRestartedServerSendsNothingAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	s.stop()
	restarted := serve(t, Options{}, "east")
	again := restarted.probe(t, envoyNode("n1"), p.held)
	restarted.publish(t, "east", first)
	again.fence(restarted, first)
	want := []string{"Cluster", "Listener", "Runtime +weir"}
	if diff := cmp.Diff(want, again.log); diff != "" {
		t.Errorf("responses (-want +got):\n%s", diff)
	}
}

func TestRestartedServerSendsWhatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	s.stop()
	restarted := serve(t, Options{}, "east")
	changed := plan{weights: map[string]uint32{"chat": 77}, budget: 1, listen: 1}
	restarted.publish(t, "east", changed)
	again := restarted.probe(t, envoyNode("n1"), p.held)
	again.until("ClusterLoadAssignment +chat")
	again.fence(restarted, changed)
	for _, line := range []string{"Cluster +chat", "Listener +weir", "RouteConfiguration +weir"} {
		if slices.Contains(again.log, line) {
			t.Errorf("%q was sent again", line)
		}
	}
}

func TestNackIsNotSentAgain(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	s := serveAt(t, "127.0.0.1:0", Options{}, zap.New(core), "east")
	p := settled(t, s)
	p.refuse = func(resp *discoveryv3.DeltaDiscoveryResponse) error {
		if resp.GetTypeUrl() == resource.EndpointType {
			return errTest
		}
		return nil
	}
	bad := plan{weights: map[string]uint32{"chat": 66}, budget: 1, listen: 1}
	s.publish(t, "east", bad)
	p.until("ClusterLoadAssignment +chat")
	eventually(t, "the refusal is known", func() bool { return s.Counts().Nacks == 1 })
	s.publish(t, "east", bad)
	p.fence(s, bad)
	if diff := cmp.Diff([]string{"ClusterLoadAssignment +chat", "Runtime +weir"}, p.since(5)); diff != "" {
		t.Errorf("responses (-want +got):\n%s", diff)
	}
	endpoints := deliveryOf(t, s, "ClusterLoadAssignment")
	if endpoints.Error != errTest.Error() || endpoints.Behind != 1 || endpoints.LagSeconds <= 0 || endpoints.Nacks != 1 {
		t.Errorf("delivery is %+v, want one resource behind and the reason", endpoints)
	}
	if warned := logs.FilterField(zap.String("reason", errTest.Error())).Len(); warned != 1 {
		t.Errorf("%d warnings with the reason, want 1: %v", warned, logs.All())
	}

	p.refuse = nil
	good := plan{weights: map[string]uint32{"chat": 67}, budget: 2, listen: 1}
	s.publish(t, "east", good)
	p.until("ClusterLoadAssignment +chat")
	eventually(t, "the client is up to date", func() bool { return s.Clients()[0].UpToDate() })
	if got := deliveryOf(t, s, "ClusterLoadAssignment"); got.Error != "" || got.Acked != got.Sent {
		t.Errorf("delivery is %+v, want all taken", got)
	}
}

func deliveryOf(t *testing.T, s *served, name string) fleet.Delivery {
	t.Helper()
	for _, d := range s.Clients()[0].Types {
		if d.Type == name {
			return d
		}
	}
	t.Fatalf("no delivery of %s in %+v", name, s.Clients())
	return fleet.Delivery{}
}

func TestRefusedClusterHoldsItsRoutes(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	p.refuse = func(resp *discoveryv3.DeltaDiscoveryResponse) error {
		if resp.GetTypeUrl() == resource.ClusterType {
			return errTest
		}
		return nil
	}
	bad := plan{weights: map[string]uint32{"chat": 10, "code": 5}, budget: 1, listen: 1}
	s.publish(t, "east", bad)
	p.until("Cluster +code")
	eventually(t, "the refusal is known", func() bool { return s.Counts().Nacks == 1 })
	s.endHolds(time.Now().Add(time.Hour)) // a refusal is an answer: no wait ends
	p.fence(s, bad)
	if slices.Contains(p.since(5), "RouteConfiguration +weir") {
		t.Errorf("routes to a refused cluster were sent: %q", p.since(5))
	}
	if !s.Clients()[0].Held {
		t.Error("the client is not shown as held")
	}
}

func TestSilentClientGetsRoutesInTheEnd(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{HoldFor: 1}, "east")
	p := settled(t, s)
	p.silent = "Cluster"
	s.publish(t, "east", plan{weights: map[string]uint32{"chat": 10, "code": 5}, budget: 1, listen: 1})
	p.until("RouteConfiguration +weir")
	if got := s.Counts().Forced; got != 1 {
		t.Errorf("forced = %d, want 1", got)
	}
}

func TestExtProcUsesRoutesAfterItsEnvoy(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	ext := s.follow(t, "east", "n1", fleet.RoleExtProc)
	ext.await(t, "chat=10 chat 1")
	other := s.follow(t, "east", "n2", fleet.RoleExtProc) // its Envoy is not connected: it waits for nobody
	other.await(t, "chat=10 chat 1")

	next := plan{weights: map[string]uint32{"chat": 10, "code": 5}, budget: 2, listen: 1}
	s.publish(t, "east", next)
	other.await(t, "chat=10 code=5 chat code 2")
	ext.await(t, "chat=10 code=5 chat 2") // endpoints and runtime are not held
	p.until("RouteConfiguration +weir")
	ext.await(t, "chat=10 code=5 chat code 2")
}

func TestExtProcGivesUpAClassBeforeItsEnvoy(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	ext := s.follow(t, "east", "n1", fleet.RoleExtProc)
	s.publish(t, "east", plan{weights: map[string]uint32{"chat": 10, "code": 5}, budget: 1, listen: 1})
	p.until("RouteConfiguration +weir")
	ext.await(t, "chat=10 code=5 chat code 1")
	s.publish(t, "east", first)
	ext.await(t, "chat=10 chat 1") // the Envoy has not been asked to read on yet
	p.until("RouteConfiguration +weir")
	p.until("Cluster -code")
}

func TestExtProcWaitsNoLongerForAnEnvoyThatLeft(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	ext := s.follow(t, "east", "n1", fleet.RoleExtProc)
	ext.await(t, "chat=10 chat 1")
	s.publish(t, "east", plan{weights: map[string]uint32{"chat": 10, "code": 5}, budget: 2, listen: 1})
	ext.await(t, "chat=10 code=5 chat 2")
	p.cancel()
	ext.await(t, "chat=10 code=5 chat code 2")
}

func TestFrontEndsHaveTheirOwnPlans(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east", "west")
	s.publish(t, "east", plan{weights: map[string]uint32{"chat": 1}, budget: 1})
	s.publish(t, "west", plan{weights: map[string]uint32{"code": 2}, budget: 2})
	east := s.follow(t, "east", "n1", fleet.RoleEnvoy)
	west := s.follow(t, "west", "n1", fleet.RoleEnvoy) // the same id elsewhere is another node
	east.await(t, "chat=1 chat 1")
	west.await(t, "code=2 code 2")
	s.publish(t, "west", plan{weights: map[string]uint32{"code": 3}, budget: 3})
	west.await(t, "code=3 code 3")
	if got := east.table(); got != "chat=1 chat 1" {
		t.Errorf("the east has %q after a change in the west", got)
	}
}

func TestNothingBeforeTheFirstPublish(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	f := s.follow(t, "east", "n1", fleet.RoleExtProc)
	eventually(t, "the client asks for three types", func() bool { c := s.Clients(); return len(c) == 1 && len(c[0].Types) == 3 })
	if got := s.Counts().Pushes; got != 0 {
		t.Errorf("%d responses before the first publish, want none", got)
	}
	s.publish(t, "east", first)
	f.await(t, "chat=10 chat 1")
}

func TestUnknownFrontEnd(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	s := serveAt(t, "127.0.0.1:0", Options{}, zap.New(core), "east")
	s.publish(t, "east", first)
	for range 2 { // it connects twice and is named once
		stray := s.follow(t, "atlantis", "n1", fleet.RoleExtProc)
		eventually(t, "the client is seen", func() bool { c := s.Clients(); return len(c) == 1 && len(c[0].Types) == 3 })
		if c := s.Clients()[0]; c.Known || c.FrontEnd != "atlantis" || c.UpToDate() {
			t.Errorf("client is %+v, want unknown", c)
		}
		stray.stop()
		eventually(t, "the client is forgotten", func() bool { return len(s.Clients()) == 0 })
	}
	if got := s.Counts().Pushes; got != 0 {
		t.Errorf("%d responses to an unknown front-end, want none", got)
	}
	if got := logs.FilterField(zap.String("frontEnd", "atlantis")).Len(); got != 1 {
		t.Errorf("%d warnings, want 1", got)
	}

	found := s.follow(t, "atlantis", "n1", fleet.RoleExtProc)
	s.SetFrontEnds([]fleet.FrontEndID{"east", "atlantis"})
	s.publish(t, "atlantis", first)
	found.await(t, "chat=10 chat 1")
}

func TestRemovedFrontEndKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east", "west")
	s.publish(t, "east", first)
	f := s.follow(t, "east", "n1", fleet.RoleExtProc)
	f.await(t, "chat=10 chat 1")
	pushes := s.Counts().Pushes
	s.SetFrontEnds([]fleet.FrontEndID{"west"})
	if err := s.Publish("east", first.resources()); err == nil || !strings.Contains(err.Error(), `"east" is not known`) {
		t.Errorf("publish for a removed front-end: %v", err)
	}
	if got := s.Counts().Pushes; got != pushes || f.table() != "chat=10 chat 1" {
		t.Errorf("%d more responses, table %q", got-pushes, f.table())
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		node    *corev3.Node
		typeURL string
		want    codes.Code
		message string
	}{
		{"no node", nil, resource.ClusterType, codes.InvalidArgument, "set node.id"},
		{"no id", envoy.Node("east", "", fleet.RoleEnvoy), resource.ClusterType, codes.InvalidArgument, "set node.id"},
		{"no cluster", envoy.Node("", "n1", fleet.RoleEnvoy), resource.ClusterType, codes.InvalidArgument, "set node.cluster"},
		{"long id", envoy.Node("east", strings.Repeat("n", 300), fleet.RoleEnvoy), resource.ClusterType, codes.InvalidArgument, "256 bytes"},
		{"no type", envoyNode("n1"), "", codes.InvalidArgument, "not served"},
		{"odd type", envoyNode("n1"), "type.googleapis.com/odd", codes.InvalidArgument, "not served"},
		{"one too many", envoyNode("n2"), resource.ClusterType, codes.ResourceExhausted, "raise the limit"},
	}
	s := serve(t, Options{MaxClients: 1}, "east")
	s.follow(t, "east", "n1", fleet.RoleExtProc)
	eventually(t, "the first client is there", func() bool { return len(s.Clients()) == 1 })
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(s.dial(t))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			stream, err := client.DeltaAggregatedResources(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: test.node, TypeUrl: test.typeURL}); err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			if status.Code(err) != test.want || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v, want %s with %q", err, test.want, test.message)
			}
		})
	}
	if got := len(s.Clients()); got != 1 {
		t.Errorf("%d clients, want the first alone", got)
	}
	if got := s.Counts().Refused; got != uint64(len(tests)) {
		t.Errorf("refused = %d, want %d", got, len(tests))
	}
}

func TestStateOfTheWorldIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(s.dial(t)).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "DELTA_GRPC") {
		t.Errorf("got %v, want the remedy", err)
	}
}

func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*envoy.Resources)
		want   string
	}{
		{"empty endpoints", func(r *envoy.Resources) { r.Endpoints[0].Endpoints[0].LbEndpoints = nil }, `endpoints of cluster "chat" are empty`},
		{"no localities", func(r *envoy.Resources) { r.Endpoints[0].Endpoints = nil }, `endpoints of cluster "chat" are empty`},
		{"cluster without endpoints", func(r *envoy.Resources) { r.Endpoints = nil }, `Cluster refers to ClusterLoadAssignment "chat"`},
		{"listener without routes", func(r *envoy.Resources) { r.Routes = nil }, `Listener refers to RouteConfiguration "weir"`},
		{"one name twice", func(r *envoy.Resources) { r.Clusters = append(r.Clusters, r.Clusters[0]) }, `Cluster "chat": every resource needs a name of its own`},
		{"no name", func(r *envoy.Resources) { r.Runtimes[0].Name = "" }, `Runtime ""`},
		{"bad text", func(r *envoy.Resources) { r.Listeners[0].Name = "\xff" }, "UTF-8"},
	}
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := first.resources()
			test.change(r)
			err := s.Publish("east", r)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `front-end "east"`) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	p.fence(s, first)
	if diff := cmp.Diff([]string{"Runtime +weir"}, p.since(5)); diff != "" {
		t.Errorf("refused resources were sent (-want +got):\n%s", diff)
	}
}

func TestOneNodeTwoRoles(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publish(t, "east", first)
	whole := s.follow(t, "east", "n1", fleet.RoleEnvoy)
	part := s.follow(t, "east", "n1", fleet.RoleExtProc)
	whole.await(t, "chat=10 chat 1")
	part.await(t, "chat=10 chat 1")
	if len(whole.last.Clusters) != 1 || len(whole.last.Listeners) != 1 {
		t.Errorf("the Envoy lacks clusters or listeners: %v", whole.last)
	}
	if len(part.last.Clusters) != 0 || len(part.last.Listeners) != 0 {
		t.Errorf("the ext_proc has clusters or listeners: %v", part.last)
	}
	var roles []fleet.Role
	for _, c := range s.Clients() {
		roles = append(roles, c.Role)
	}
	if diff := cmp.Diff([]fleet.Role{fleet.RoleEnvoy, fleet.RoleExtProc}, roles); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}
	part.stop()
	eventually(t, "one client is left", func() bool { return len(s.Clients()) == 1 })
	s.publish(t, "east", plan{weights: map[string]uint32{"chat": 11}, budget: 1})
	whole.await(t, "chat=11 chat 1")
}

// Two streams of one identity are two Envoys with one id, or one that reconnects
// before its old stream is known to be dead: both are served.
func TestTwoStreamsOfOneNode(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publish(t, "east", first)
	one := s.follow(t, "east", "n1", fleet.RoleExtProc)
	one.await(t, "chat=10 chat 1")
	two := s.follow(t, "east", "n1", fleet.RoleExtProc)
	two.await(t, "chat=10 chat 1")
	one.stop()
	eventually(t, "one stream is left", func() bool { return len(s.Clients()) == 1 })
	s.publish(t, "east", plan{weights: map[string]uint32{"chat": 12}, budget: 1})
	two.await(t, "chat=12 chat 1")
}

func TestWildcardFollowsNames(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publish(t, "east", first)
	f := s.follow(t, "east", "n1", fleet.RoleEnvoy)
	f.await(t, "chat=10 chat 1")
	for _, step := range []struct {
		weights map[string]uint32
		want    string
	}{
		{map[string]uint32{"chat": 10, "code": 1}, "chat=10 code=1 chat code 1"},
		{map[string]uint32{"code": 1}, "code=1 code 1"},
		{map[string]uint32{"code": 2}, "code=2 code 1"},
		{map[string]uint32{"chat": 3}, "chat=3 chat 1"},
		{map[string]uint32{"chat": 3, "code": 2}, "chat=3 code=2 chat code 1"},
	} {
		s.publish(t, "east", plan{weights: step.weights, budget: 1, listen: 1})
		f.await(t, step.want)
	}
}

func TestRunNamesTheListenerThatFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	err = New(Options{}, zap.NewNop()).Run(t.Context(), l)
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("got %v, want an error that names %s", err, l.Addr())
	}
}

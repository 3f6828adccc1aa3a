package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/envoy"
	"weir/fleet"
)

const patience = 10 * time.Second

// plan is what a test publishes: the weight of each class's one engine.
type plan struct {
	weights map[string]uint32
	budget  float64 // a runtime value
	listen  uint32  // the listener's port

	connectTimeout time.Duration // of every cluster
	changed        string        // a cluster unlike what it is in other plans
}

func (p plan) resources() *envoy.Resources {
	r := &envoy.Resources{
		Listeners: []*listenerv3.Listener{listener(p.listen)},
		Routes:    []*routev3.RouteConfiguration{{Name: envoy.RouteName}},
		Runtimes: []*runtimev3.Runtime{{Name: envoy.RuntimeName, Layer: &structpb.Struct{
			Fields: map[string]*structpb.Value{"budget": structpb.NewNumberValue(p.budget)},
		}}},
	}
	host := &routev3.VirtualHost{Name: "all", Domains: []string{"*"}}
	r.Routes[0].VirtualHosts = []*routev3.VirtualHost{host}
	for class, weight := range p.weights {
		c := cluster(class)
		c.ConnectTimeout = durationpb.New(p.connectTimeout)
		c.IgnoreHealthOnHostRemoval = class == p.changed
		r.Clusters = append(r.Clusters, c)
		r.Endpoints = append(r.Endpoints, assignment(class, weight))
		host.Routes = append(host.Routes, route(class))
	}
	slices.SortFunc(host.Routes, func(a, b *routev3.Route) int { return strings.Compare(a.Name, b.Name) })
	return r
}

func cluster(class string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 class,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
	}
}

func assignment(class string, weight uint32) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: class, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		Locality: &corev3.Locality{Zone: "pool"},
		LbEndpoints: []*endpointv3.LbEndpoint{{
			LoadBalancingWeight: wrapperspb.UInt32(weight),
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: address(9),
			}},
		}},
	}}}
}

func address(port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func route(class string) *routev3.Route {
	return &routev3.Route{
		Name:  class,
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + class}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: class},
		}},
	}
}

func listener(port uint32) *listenerv3.Listener {
	manager := wrap(&hcmv3.HttpConnectionManager{
		StatPrefix: "in",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: envoy.RouteName,
			ConfigSource: &corev3.ConfigSource{
				ResourceApiVersion:    corev3.ApiVersion_V3,
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			},
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: wrap(&routerv3.Router{})},
		}},
	})
	return &listenerv3.Listener{
		Name:    envoy.ListenerName,
		Address: address(port),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager},
		}}}},
	}
}

func wrap(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// served is a running server.
type served struct {
	*Server
	address string
	stop    func() // ends it and waits
}

func serve(t *testing.T, o Options, frontEnds ...fleet.FrontEndID) *served {
	t.Helper()
	return serveAt(t, "127.0.0.1:0", o, zap.NewNop(), frontEnds...)
}

func serveAt(t *testing.T, address string, o Options, log *zap.Logger, frontEnds ...fleet.FrontEndID) *served {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := New(o, log)
	s.SetFrontEnds(frontEnds)
	return &served{s, l.Addr().String(), run(t, func(ctx context.Context) error { return s.Run(ctx, l) })}
}

// run runs something until the test ends or stop is called, which waits for it.
func run(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not end with its context")
		}
	})
	t.Cleanup(stop)
	return stop
}

func (s *served) publish(t *testing.T, id fleet.FrontEndID, p plan) {
	t.Helper()
	if err := s.Publish(id, p.resources()); err != nil {
		t.Fatal(err)
	}
}

func (s *served) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := Dial(s.address, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		case <-look.C:
		}
	}
}

// probe speaks the delta protocol by hand and notes every response. It behaves as
// Envoy does: clusters and listeners by wildcard, the rest by name.
type probe struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc
	held   map[string]map[string]string // by type, then resource: the version
	log    []string                     // one line a response
	refuse func(*discoveryv3.DeltaDiscoveryResponse) error
	silent string // a type that is not answered
	routes string // the names of the routes that were taken last

	// bad names resources that are refused, as "Cluster chat". As Envoy does, the
	// probe takes the other ones of the response.
	bad map[string]bool
}

func (s *served) probe(t *testing.T, node *corev3.Node, held map[string]map[string]string) *probe {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(s.dial(t)).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if held == nil {
		held = map[string]map[string]string{}
	}
	p := &probe{t: t, stream: stream, cancel: cancel, held: held}
	p.subscribe(node, resource.ClusterType)
	p.subscribe(nil, resource.EndpointType, p.names(resource.ClusterType)...)
	p.subscribe(nil, resource.ListenerType)
	p.subscribe(nil, resource.RouteType, envoy.RouteName)
	p.subscribe(nil, resource.RuntimeType, envoy.RuntimeName)
	return p
}

func (p *probe) names(typeURL string) []string {
	var names []string
	for name := range p.held[typeURL] {
		names = append(names, name)
	}
	return names
}

func (p *probe) subscribe(node *corev3.Node, typeURL string, names ...string) {
	p.t.Helper()
	if typeURL == resource.EndpointType && len(names) == 0 {
		return // Envoy asks when it has a cluster
	}
	p.send(&discoveryv3.DeltaDiscoveryRequest{
		Node: node, TypeUrl: typeURL, ResourceNamesSubscribe: names, InitialResourceVersions: p.held[typeURL],
	})
}

func (p *probe) send(req *discoveryv3.DeltaDiscoveryRequest) {
	p.t.Helper()
	if err := p.stream.Send(req); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

// next takes the next response, answers it and returns its line: the type, then
// +name for what it brings and -name for what it takes.
func (p *probe) next() string {
	p.t.Helper()
	resp, err := p.stream.Recv()
	if err != nil {
		p.t.Fatalf("receive: %v after %q", err, p.log)
	}
	line := describe(resp)
	p.log = append(p.log, line)
	if shortName(resp.GetTypeUrl()) == p.silent {
		return line
	}
	ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
	if p.refuse != nil {
		if err := p.refuse(resp); err != nil {
			ack.ErrorDetail = status.New(codes.InvalidArgument, err.Error()).Proto()
			p.send(ack)
			return line
		}
	}
	good := proto.CloneOf(resp)
	good.Resources = slices.DeleteFunc(good.Resources, func(r *discoveryv3.Resource) bool {
		return p.bad[shortName(resp.GetTypeUrl())+" "+r.GetName()]
	})
	if len(good.Resources) < len(resp.Resources) {
		ack.ErrorDetail = status.New(codes.InvalidArgument, errTest.Error()).Proto()
	}
	p.keep(good)
	p.send(ack)
	return line
}

func (p *probe) keep(resp *discoveryv3.DeltaDiscoveryResponse) {
	held := p.held[resp.GetTypeUrl()]
	if held == nil {
		held = map[string]string{}
		p.held[resp.GetTypeUrl()] = held
	}
	for _, name := range resp.GetRemovedResources() {
		delete(held, name)
		if resp.GetTypeUrl() == resource.ClusterType {
			delete(p.held[resource.EndpointType], name)
			p.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesUnsubscribe: []string{name}})
		}
	}
	for _, r := range resp.GetResources() {
		_, known := held[r.GetName()]
		held[r.GetName()] = r.GetVersion()
		if resp.GetTypeUrl() == resource.RouteType {
			p.routes = routesIn(p.t, r)
		}
		if resp.GetTypeUrl() == resource.ClusterType && !known {
			p.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{r.GetName()}})
		}
	}
}

func routesIn(t *testing.T, r *discoveryv3.Resource) string {
	t.Helper()
	var c routev3.RouteConfiguration
	if err := r.GetResource().UnmarshalTo(&c); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range c.VirtualHosts[0].Routes {
		names = append(names, r.Name)
	}
	return strings.Join(names, " ")
}

// until takes responses up to the one that reads like this.
func (p *probe) until(line string) {
	p.t.Helper()
	for p.next() != line {
	}
}

// since returns the lines after the first n.
func (p *probe) since(n int) []string { return slices.Clone(p.log[n:]) }

func describe(resp *discoveryv3.DeltaDiscoveryResponse) string {
	line := shortName(resp.GetTypeUrl())
	var names []string
	for _, r := range resp.GetResources() {
		names = append(names, " +"+r.GetName())
	}
	for _, name := range resp.GetRemovedResources() {
		names = append(names, " -"+name)
	}
	slices.Sort(names)
	for _, name := range names {
		line += name
	}
	return line
}

// follower is a [Client] and what it was given last.
type follower struct {
	stop func()

	mu      sync.Mutex // guards the rest
	last    *envoy.Resources
	updates int
	refuse  error
}

func (s *served) follow(t *testing.T, id fleet.FrontEndID, name string, role fleet.Role) *follower {
	t.Helper()
	f := &follower{}
	c := NewClient(s.dial(t), envoy.Node(id, name, role), f.update, zap.NewNop())
	f.stop = run(t, c.Run)
	return f
}

func (f *follower) update(r *envoy.Resources) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	f.last = r
	f.updates++
	return nil
}

func (f *follower) setRefuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.updates
}

// weights is the follower's table: the weight of each class that a route and its
// endpoints name, and the runtime value.
func (f *follower) table() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return ""
	}
	out := ""
	for _, a := range f.last.Endpoints {
		out += fmt.Sprintf("%s=%d ", a.ClusterName, a.Endpoints[0].LbEndpoints[0].LoadBalancingWeight.Value)
	}
	for _, r := range f.last.Routes[0].VirtualHosts[0].Routes {
		out += r.Name + " "
	}
	return out + fmt.Sprint(f.last.Runtimes[0].Layer.Fields["budget"].GetNumberValue())
}

func (f *follower) await(t *testing.T, table string) {
	t.Helper()
	eventually(t, "the table is "+table, func() bool { return f.table() == table })
}

var errTest = errors.New("not to my taste")

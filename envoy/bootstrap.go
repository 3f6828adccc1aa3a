package envoy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"weir/fleet"
)

// Local is what one Envoy does not learn over xDS: who and where it is.
type Local struct {
	FrontEnd fleet.FrontEndID
	NodeID   string
	XDS      string // "host:port" of the control plane; not needed by [StaticBootstrap]
	ExtProc  string // "ip:port", or the path of a Unix socket
	Admin    string // "ip:port" of Envoy's admin interface

	MaxHeapBytes   uint64 // that this Envoy may use; 0: DefaultMaxHeapBytes
	MaxConnections uint32 // of clients, at once; 0: DefaultMaxConnections
}

// Bootstrap writes Envoy's bootstrap as JSON, which is YAML too. It holds only
// what is local to one Envoy; everything else comes over xDS.
func Bootstrap(l Local) ([]byte, error) {
	b, err := bootstrap(l)
	if err != nil {
		return nil, err
	}
	xds, err := xdsCluster(l.XDS)
	if err != nil {
		return nil, fmt.Errorf("xds: %w", err)
	}
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, xds)
	b.DynamicResources = &bootstrapv3.Bootstrap_DynamicResources{
		LdsConfig: ads(), CdsConfig: ads(), AdsConfig: stream(corev3.ApiConfigSource_DELTA_GRPC),
	}
	b.ClusterManager = &bootstrapv3.ClusterManager{LoadStatsConfig: stream(corev3.ApiConfigSource_GRPC)}
	b.LayeredRuntime = runtimeLayers(&bootstrapv3.RuntimeLayer{
		LayerSpecifier: &bootstrapv3.RuntimeLayer_RtdsLayer_{RtdsLayer: &bootstrapv3.RuntimeLayer_RtdsLayer{Name: RuntimeName, RtdsConfig: ads()}},
	})
	return writeBootstrap(b)
}

func writeBootstrap(b *bootstrapv3.Bootstrap) ([]byte, error) {
	if err := b.ValidateAll(); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	compact, err := protojson.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	var out bytes.Buffer // protojson's own white space is random by design
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// bootstrap is what an Envoy has with a control plane or without.
func bootstrap(l Local) (*bootstrapv3.Bootstrap, error) {
	admin, err := socketAddress(l.Admin)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	extproc, err := extProcCluster(l.ExtProc)
	if err != nil {
		return nil, fmt.Errorf("extproc: %w", err)
	}
	return &bootstrapv3.Bootstrap{
		Node:            Node(l.FrontEnd, l.NodeID, fleet.RoleEnvoy),
		Admin:           &bootstrapv3.Admin{Address: admin},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{extproc}},
		OverloadManager: overloadManager(cmp.Or(l.MaxHeapBytes, DefaultMaxHeapBytes), cmp.Or(l.MaxConnections, DefaultMaxConnections)),
	}, nil
}

func stream(api corev3.ApiConfigSource_ApiType) *corev3.ApiConfigSource {
	return &corev3.ApiConfigSource{
		ApiType:             api,
		TransportApiVersion: corev3.ApiVersion_V3,
		GrpcServices:        []*corev3.GrpcService{grpcService(XDSCluster)},
	}
}

// runtimeLayers: what the plan says, and above it what an operator sets by hand on
// the admin interface.
func runtimeLayers(plan *bootstrapv3.RuntimeLayer) *bootstrapv3.LayeredRuntime {
	plan.Name = RuntimeName
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{
		plan,
		{Name: "admin", LayerSpecifier: &bootstrapv3.RuntimeLayer_AdminLayer_{AdminLayer: &bootstrapv3.RuntimeLayer_AdminLayer{}}},
	}}
}

// xdsCluster notices a dead control plane in seconds, by HTTP/2 pings; until it
// is back Envoy keeps what it has.
func xdsCluster(hostPort string) (*clusterv3.Cluster, error) {
	address, kind, err := hostAddress(hostPort)
	if err != nil {
		return nil, err
	}
	c := grpcCluster(XDSCluster, kind, address)
	c.TypedExtensionProtocolOptions[httpOptions] = pack(http2(&corev3.Http2ProtocolOptions{
		ConnectionKeepalive: &corev3.KeepaliveSettings{Interval: seconds(5), Timeout: seconds(2)},
	}))
	return c, nil
}

// extProcCluster fails open at once: no panic, so that a process known to be dead
// is not asked at all. It is slow to trust a returning one, whose table may still
// be empty, and lets any number of requests stay open.
func extProcCluster(where string) (*clusterv3.Cluster, error) {
	address, err := extProcAddress(where)
	if err != nil {
		return nil, err
	}
	c := grpcCluster(ExtProc, clusterv3.Cluster_STATIC, address)
	c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: 0}}
	c.CircuitBreakers = openBreakers()
	c.HealthChecks = []*corev3.HealthCheck{{
		Timeout:            seconds(0.5),
		Interval:           seconds(0.5),
		NoTrafficInterval:  seconds(0.5),
		UnhealthyThreshold: u32(2),
		HealthyThreshold:   u32(5),
		HealthChecker:      &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{}},
	}}
	return c, nil
}

func grpcCluster(name string, kind clusterv3.Cluster_DiscoveryType, address *corev3.Address) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: kind},
		ConnectTimeout:                seconds(connectSeconds),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: pack(http2(&corev3.Http2ProtocolOptions{}))},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
			}}}},
		},
	}
}

func http2(options *corev3.Http2ProtocolOptions) *upstreamv3.HttpProtocolOptions {
	return &upstreamv3.HttpProtocolOptions{UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: options},
		},
	}}
}

func extProcAddress(where string) (*corev3.Address, error) {
	path := strings.TrimPrefix(where, "unix://")
	if !strings.HasPrefix(path, "/") {
		address, err := socketAddress(where)
		if err != nil {
			return nil, fmt.Errorf("address %q: want ip:port or the absolute path of a Unix socket", where)
		}
		return address, nil
	}
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}, nil
}

// CheckControlPlane says what is wrong with the address of a control plane.
func CheckControlPlane(hostPort string) error {
	_, _, err := hostAddress(hostPort)
	return err
}

// hostAddress takes a name where socketAddress wants an IP; Envoy then asks DNS.
func hostAddress(hostPort string) (*corev3.Address, clusterv3.Cluster_DiscoveryType, error) {
	if _, err := netip.ParseAddrPort(hostPort); err == nil {
		address, err := socketAddress(hostPort)
		return address, clusterv3.Cluster_STATIC, err
	}
	host, portText, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, 0, fmt.Errorf("address %q: want host:port: %w", hostPort, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || host == "" || port == 0 {
		return nil, 0, fmt.Errorf("address %q: want host:port", hostPort)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}, clusterv3.Cluster_STRICT_DNS, nil
}

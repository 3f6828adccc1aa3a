package envoy

import (
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"weir/fleet"
)

// StaticBootstrap writes one complete Envoy file: everything that the control
// plane would serve stands in it, for the day when an Envoy must start while every
// control plane is dead. It changes nothing by itself any more.
func StaticBootstrap(l Local, v *fleet.View) ([]byte, error) {
	r, err := Encode(v)
	if err != nil {
		return nil, err
	}
	b, err := bootstrap(l)
	if err != nil {
		return nil, err
	}
	b.LayeredRuntime = runtimeLayers(&bootstrapv3.RuntimeLayer{
		LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: r.Runtimes[0].Layer},
	})
	for _, c := range r.Clusters {
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, staticCluster(c, endpointsOf(r.Endpoints, fleet.ClassID(c.Name))))
	}
	for _, listener := range r.Listeners {
		static, err := staticListener(listener, r)
		if err != nil {
			return nil, err
		}
		b.StaticResources.Listeners = append(b.StaticResources.Listeners, static)
	}
	return writeBootstrap(b)
}

func staticCluster(c *clusterv3.Cluster, endpoints *endpointv3.ClusterLoadAssignment) *clusterv3.Cluster {
	static := proto.Clone(c).(*clusterv3.Cluster)
	static.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	static.EdsClusterConfig, static.LrsServer = nil, nil
	static.LoadAssignment = endpoints
	return static
}

// staticListener has its routes inside.
func staticListener(l *listenerv3.Listener, r *Resources) (*listenerv3.Listener, error) {
	static := proto.Clone(l).(*listenerv3.Listener)
	filter := static.FilterChains[0].Filters[0]
	manager := &hcmv3.HttpConnectionManager{}
	if err := filter.GetTypedConfig().UnmarshalTo(manager); err != nil {
		return nil, fmt.Errorf("listener %q: %w", l.Name, err)
	}
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: r.Routes[0]}
	filter.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: pack(manager)}
	return static, nil
}

// Package envoy turns a [fleet.View] into Envoy's resources and back: one codec
// both ways, so that Envoy and weir-extproc, which read the same resources,
// cannot disagree. It also writes Envoy's bootstrap, and holds the names that
// both sides share. It is pure: no I/O and no clock; every message passes Envoy's
// own validation rules.
package envoy

import (
	"fmt"
	"net/netip"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/fleet"
)

// Headers between weir-extproc and Envoy. Clients cannot set them (they are
// stripped on entry) and engines never see them.
const (
	HeaderPrefix   = "x-weir-"
	HeaderModel    = "x-weir-model"    // the model named in the body
	HeaderAdmitted = "x-weir-admitted" // present: a live weir-extproc let the request in
	HeaderPick     = "x-weir-pick"     // base64 of "ip:port": the first choice
	HeaderAffinity = "x-weir-affinity" // the hashed affinity key, Maglev's input
	HeaderFeatures = "x-weir-features" // what the body asks for: FeatureTools, FeatureVision
	HeaderContext  = "x-weir-context"  // tokens of the prompt, estimated
	// HeaderDecision tells a client how its request was decided, where the fleet file
	// has it told.
	HeaderDecision = "x-weir-decision"
	// HeaderAttempts tells a client how many engines were asked; 0: Weir answered by
	// itself.
	HeaderAttempts = "x-weir-attempts"
	// HeaderShedReason tells a client why it is asked to come again: ShedByPlan,
	// ShedByLimit, ShedInBurst, ShedByBreaker.
	HeaderShedReason = "x-weir-shed-reason"
	// HeaderGateway is the routing header of another protocol, stripped as well.
	HeaderGateway = "x-gateway-destination-endpoint"
)

// ResponsesPath ends the path of OpenAI's Responses API.
const ResponsesPath = "/responses"

// ResponseIDPrefix begins the IDs of its responses.
const ResponseIDPrefix = "resp"

// Words of [HeaderFeatures]. None is part of another.
const (
	FeatureTools  = "tools"
	FeatureVision = "vision"
)

// Words of [HeaderShedReason].
const (
	ShedByPlan  = "plan"  // demand exceeds what engines can serve
	ShedByLimit = "limit" // an operator has limited the class
	ShedInBurst = "burst" // so it does, for so short a time that no plan knows of it
	// ShedByBreaker: an Envoy has as many requests open as it may.
	ShedByBreaker = "breaker"
)

// Names of resources, metadata and runtime keys.
const (
	Namespace    = "weir"     // of dynamic, route and endpoint metadata
	NextKey      = "next"     // dynamic metadata: "ip:port,ip:port", one alternative per further attempt
	DecisionKey  = "decision" // dynamic metadata: the value of HeaderDecision
	FollowKey    = "key"      // dynamic metadata: the hashed affinity key in hex, of requests whose answers may be followed
	ListenerName = "weir"
	RouteName    = "weir" // of the one RouteConfiguration
	RuntimeName  = "weir" // of the RTDS layer
	XDSCluster   = "xds"
	ExtProc      = "weir_ext_proc" // static cluster of weir-extproc
)

// roleKey is node metadata: "envoy" or "extproc".
const roleKey = "weir.role"

// Resources are what one xDS client is served.
type Resources struct {
	Listeners []*listenerv3.Listener
	Routes    []*routev3.RouteConfiguration
	Clusters  []*clusterv3.Cluster
	Endpoints []*endpointv3.ClusterLoadAssignment
	Runtimes  []*runtimev3.Runtime
}

// Node names an xDS client: Envoy and its weir-extproc share the id and differ in
// the role.
func Node(frontEnd fleet.FrontEndID, id string, role fleet.Role) *corev3.Node {
	return &corev3.Node{
		Id:      id,
		Cluster: string(frontEnd),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			roleKey: structpb.NewStringValue(string(role)),
		}},
	}
}

// RoleOf reads a node's role; one that says none, or another, is an Envoy.
func RoleOf(n *corev3.Node) fleet.Role {
	if fleet.Role(n.GetMetadata().GetFields()[roleKey].GetStringValue()) == fleet.RoleExtProc {
		return fleet.RoleExtProc
	}
	return fleet.RoleEnvoy
}

func socketAddress(hostPort string) (*corev3.Address, error) {
	ap, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return nil, fmt.Errorf("address %q: want ip:port: %w", hostPort, err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       ap.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(ap.Port())},
	}}}, nil
}

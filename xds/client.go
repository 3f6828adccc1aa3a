package xds

import (
	"context"
	"fmt"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weir/envoy"
)

// Client follows all resources of its node's role over delta ADS: routes,
// endpoints and runtime for a weir-extproc, everything for an Envoy.
type Client struct {
	Counters ClientCounters

	conn     *grpc.ClientConn
	node     *corev3.Node
	onUpdate func(*envoy.Resources) error
	log      *zap.Logger
	types    []string
	mirror   mirror
}

// ClientCounters count what a client met. Any goroutine may read them.
type ClientCounters struct {
	Connected atomic.Bool   // the control plane answers
	Streams   atomic.Uint64 // attempts to follow it; more than one: it was away
	Updates   atomic.Uint64 // responses taken
	Refused   atomic.Uint64 // responses refused; the last good resources stay
}

// NewClient returns a client for a node of [envoy.Node] on a connection of [Dial].
//
// onUpdate is called from Run with all resources, after each response once every
// type has arrived. It must not change them. Its error refuses the response: the
// control plane is told the reason, and the next update is tried again on the
// whole.
func NewClient(conn *grpc.ClientConn, node *corev3.Node, onUpdate func(*envoy.Resources) error, log *zap.Logger) *Client {
	types := servedTypes(envoy.RoleOf(node))
	return &Client{conn: conn, node: node, onUpdate: onUpdate, log: log, types: types, mirror: newMirror(types)}
}

// Run follows the control plane until the context ends, through its outages: what
// arrived last stays, and a new stream carries only what has changed since. It is
// called once and returns nil.
func (c *Client) Run(ctx context.Context) error { return forever(ctx, c.log, c.follow) }

// follow reads one stream to its end.
func (c *Client) follow(ctx context.Context) (reached bool, err error) {
	c.Counters.Streams.Add(1)
	defer c.Counters.Connected.Store(false)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	c.mirror.forgetRefused()
	for _, t := range c.types {
		_ = stream.Send(c.subscription(t)) // should it fail, Recv says why
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return reached, err
		}
		if !reached {
			c.log.Info("control plane reached")
			reached = true
			c.Counters.Connected.Store(true)
		}
		answer, err := c.answer(resp)
		if err != nil {
			return reached, err
		}
		_ = stream.Send(answer)
	}
}

// subscription asks for all resources of a type, less what is here already.
func (c *Client) subscription(typeURL string) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{
		Node:                    c.node,
		TypeUrl:                 typeURL,
		ResourceNamesSubscribe:  []string{"*"},
		InitialResourceVersions: c.mirror[typeURL].versions,
	}
}

// answer takes in a response and returns its ACK or NACK.
func (c *Client) answer(resp *discoveryv3.DeltaDiscoveryResponse) (*discoveryv3.DeltaDiscoveryRequest, error) {
	m := c.mirror[resp.GetTypeUrl()]
	if m == nil {
		return nil, fmt.Errorf("control plane sent resources of type %q, which were not asked for", resp.GetTypeUrl())
	}
	err := m.apply(resp)
	if err == nil && c.mirror.complete() {
		err = c.onUpdate(c.mirror.content())
	}
	m.refused = err != nil
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
	if err == nil {
		c.Counters.Updates.Add(1)
	} else {
		c.Counters.Refused.Add(1)
		c.log.Warn("resources refused, the last good ones stay", zap.String("type", shortName(resp.GetTypeUrl())), zap.Error(err))
		answer.ErrorDetail = status.New(codes.InvalidArgument, shorten(err.Error(), maxRefusal)).Proto()
	}
	return answer, nil
}

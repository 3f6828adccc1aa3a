package xds

import (
	"context"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weir/fleet"
)

// node is one identity and what it is served, over however many streams: for a
// moment there are two when a client reconnects.
type node struct {
	id        identity
	streams   map[int64]*stream
	served    snapshot  // nil: nothing yet
	heldSince time.Time // when its routes began to wait; zero: they do not
}

// stream is one connected client.
type stream struct {
	node       *node
	connected  time.Time
	deliveries map[string]*delivery // by type URL
}

// callbacks tells the server of each step of the delta protocol. The delta server
// calls them on the stream's own goroutine.
type callbacks struct{ server *Server }

// OnDeltaStreamOpen does nothing: who the client is stands in its first request.
func (callbacks) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnStreamDeltaRequest comes before the cache answers.
func (c callbacks) OnStreamDeltaRequest(id int64, req *discoveryv3.DeltaDiscoveryRequest) error {
	return c.server.request(id, req)
}

// OnStreamDeltaResponse comes before a response is sent.
func (c callbacks) OnStreamDeltaResponse(id int64, req *discoveryv3.DeltaDiscoveryRequest, resp *discoveryv3.DeltaDiscoveryResponse) {
	c.server.response(id, req, resp)
}

// OnDeltaStreamClosed comes last, also for a client that was refused.
func (c callbacks) OnDeltaStreamClosed(id int64, _ *corev3.Node) { c.server.closed(id) }

// request takes in each request before the cache answers it.
func (s *Server) request(streamID int64, req *discoveryv3.DeltaDiscoveryRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The cache's channel to a stream has room for the types that it knows.
	if cache.GetResponseType(req.GetTypeUrl()) == types.UnknownType {
		s.counts.Refused++
		return status.Errorf(codes.InvalidArgument, "resources of type %.200q are not served here", req.GetTypeUrl())
	}
	st, err := s.attached(streamID, req.GetNode())
	if err != nil {
		s.counts.Refused++
		s.log.Warn("xDS client refused", zap.Error(err))
		return err
	}
	req.Node = st.node.id.slim() // who a stream is stands in its first request
	d := st.deliveries[req.GetTypeUrl()]
	if d == nil {
		d = newDelivery(req.GetInitialResourceVersions())
		st.deliveries[req.GetTypeUrl()] = d
	}
	if d.answered(req) {
		s.counts.Nacks++
		s.log.Warn("xDS client refused resources and keeps its last good ones", append(st.node.id.fields(),
			zap.String("type", shortName(req.GetTypeUrl())), zap.String("reason", d.refusal))...)
	}
	s.advanceNode(st.node.id, time.Now())
	return nil
}

// attached returns a known stream, or takes in a new one.
func (s *Server) attached(streamID int64, from *corev3.Node) (*stream, error) {
	if st := s.streams[streamID]; st != nil {
		return st, nil
	}
	id, err := identify(from)
	if err != nil {
		return nil, err
	}
	if len(s.streams) >= s.options.MaxClients {
		return nil, status.Errorf(codes.ResourceExhausted, "%d xDS clients are connected already: raise the limit or add a control plane", len(s.streams))
	}
	n := s.nodes[id]
	if n == nil {
		n = &node{id: id, streams: map[int64]*stream{}}
		s.nodes[id] = n
	}
	st := &stream{node: n, connected: time.Now(), deliveries: map[string]*delivery{}}
	n.streams[streamID], s.streams[streamID] = st, st
	s.greet(id)
	return st, nil
}

func (s *Server) greet(id identity) {
	if s.frontEnds[id.frontEnd] {
		s.log.Info("xDS client connected", id.fields()...)
		return
	}
	if s.warned[id] {
		return
	}
	if len(s.warned) >= s.options.MaxClients {
		clear(s.warned)
	}
	s.warned[id] = true
	s.log.Warn("xDS client of an unknown front-end gets nothing: add the front-end to the fleet file or correct node.cluster", id.fields()...)
}

// response notes what is about to be sent.
func (s *Server) response(streamID int64, req *discoveryv3.DeltaDiscoveryRequest, resp *discoveryv3.DeltaDiscoveryResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Pushes++
	s.streams[streamID].deliveries[req.GetTypeUrl()].pushed(resp, time.Now())
}

// closed forgets a stream, and its node with the last one.
func (s *Server) closed(streamID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[streamID]
	if st == nil {
		return // it was refused
	}
	n := st.node
	delete(s.streams, streamID)
	delete(n.streams, streamID)
	if len(n.streams) == 0 {
		delete(s.nodes, n.id)
		s.cache.ClearSnapshot(n.id.key())
		s.log.Info("xDS client left", n.id.fields()...)
	}
	s.advanceNode(n.id, time.Now())
}

// advanceNode takes both clients of a node as far as they may go.
func (s *Server) advanceNode(id identity, now time.Time) {
	for _, id := range []identity{id, id.sibling()} {
		if n := s.nodes[id]; n != nil {
			s.advance(n, now)
		}
	}
}

// advance serves a client the next step of its way, if there is one.
func (s *Server) advance(n *node, now time.Time) {
	current := s.current[n.id.frontEnd]
	if current == nil {
		return
	}
	want := current.restrictedTo(n.id.role)
	next := step(n.served, want, s.progress(n, want))
	if next.equal(want) {
		n.heldSince = time.Time{}
	} else if n.heldSince.IsZero() {
		n.heldSince = now
	} else if now.Sub(n.heldSince) >= s.options.HoldFor && !s.refusing(n) {
		s.counts.Forced++
		s.log.Warn("xDS client is silent about its clusters: routes are sent without its word", n.id.fields()...)
		next, n.heldSince = want, time.Time{}
	}
	s.serve(n, next)
}

func (s *Server) serve(n *node, next snapshot) {
	if n.served != nil && n.served.equal(next) {
		return
	}
	n.served = next
	if err := s.cache.SetSnapshot(context.Background(), n.id.key(), next); err != nil {
		s.log.Error("snapshot not set", append(n.id.fields(), zap.Error(err))...)
	}
}

// progress says how far a client has come. Routes reach a weir-extproc after its
// Envoy took them: what it decides, the Envoy must be able to do.
func (s *Server) progress(n *node, want snapshot) progress {
	warm := n.has(want, resource.ClusterType) && n.has(want, resource.EndpointType)
	if envoy := s.nodes[n.id.sibling()]; n.id.role == fleet.RoleExtProc && envoy != nil {
		warm = warm && envoy.has(want, resource.RouteType)
	}
	return progress{warm: warm, routed: n.has(want, resource.ListenerType) && n.has(want, resource.RouteType)}
}

// has says whether all streams of a client took all of a type, if they ask for it.
func (n *node) has(want snapshot, typeURL string) bool {
	for _, st := range n.streams {
		if d := st.deliveries[typeURL]; d != nil && !d.has(want.GetVersionMap(typeURL)) {
			return false
		}
	}
	return true
}

// refusing says whether either client of a node has refused resources: then its
// last good ones stay.
func (s *Server) refusing(n *node) bool {
	for _, id := range []identity{n.id, n.id.sibling()} {
		if n := s.nodes[id]; n != nil && n.refuses() {
			return true
		}
	}
	return false
}

func (n *node) refuses() bool {
	for _, st := range n.streams {
		for _, d := range st.deliveries {
			if d.refusal != "" {
				return true
			}
		}
	}
	return false
}

// watchHolds ends the waits of silent clients.
func (s *Server) watchHolds(ctx context.Context) error {
	ticker := time.NewTicker(min(time.Second, s.options.HoldFor))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			s.endHolds(now)
		}
	}
}

func (s *Server) endHolds(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if !n.heldSince.IsZero() {
			s.advance(n, now)
		}
	}
}

func (id identity) fields() []zap.Field {
	return []zap.Field{
		zap.String("frontEnd", string(id.frontEnd)), zap.String("node", id.node), zap.String("role", string(id.role)),
	}
}

package xds

import (
	"context"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
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
	served    snapshot          // nil: nothing yet
	classes   map[string]string // the keys: the classes when last it was served all that it is to have
	heldSince time.Time         // when its routes began to wait for an answer; zero: they do not
	heldBy    string            // which NACK some of its routes wait behind; empty: none
	filter    filter            // makes the routes that do not wait
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
		d = newDelivery(req.GetInitialResourceVersions(), st.node.id.role == fleet.RoleExtProc)
		st.deliveries[req.GetTypeUrl()] = d
	}
	nack, again := d.answered(req)
	if nack != nil {
		s.refused(st, req.GetTypeUrl(), nack)
	}
	// To subscribe again is how the protocol asks for what was sent before.
	req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, again...)
	s.advanceNode(st.node.id, time.Now())
	return nil
}

// refused tells of a NACK, once a version.
func (s *Server) refused(st *stream, typeURL string, p *push) {
	s.counts.Nacks++
	level := zap.WarnLevel
	if p.repeats {
		level = zap.DebugLevel
	}
	s.log.Log(level, "xDS client refused resources and keeps its last good ones", append(st.node.id.fields(),
		zap.String("type", shortName(typeURL)), zap.String("reason", st.deliveries[typeURL].refusal))...)
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
	if s.streams[streamID].deliveries[req.GetTypeUrl()].pushed(resp, time.Now()) {
		s.counts.Unanswered++
	}
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

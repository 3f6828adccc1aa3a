package xds

import (
	"context"
	"maps"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.uber.org/zap"

	"weir/fleet"
)

// progress is how far a client has come towards what it is to have.
type progress struct {
	warm   bool // it has all clusters and endpoints, so that routes may use them
	routed bool // it has the listeners and routes, so that nothing uses the old clusters
}

// step returns what to serve a client next, on its way from what it is served to
// what it is to have: clusters and endpoints are made before routes use them, and
// kept until no route does. Changes of weights alone are never held back, and a
// client that is served nothing yet gets all at once.
func step(served, want snapshot, p progress) snapshot {
	if served == nil {
		return want
	}
	next := maps.Clone(want)
	for t := range want {
		switch t {
		case resource.ClusterType, resource.EndpointType:
			if !p.warm || !p.routed {
				next[t] = want[t].keeping(served[t])
			}
		case resource.ListenerType, resource.RouteType:
			if !p.warm {
				next[t] = served[t]
			}
		}
	}
	return next
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
		s.counts.NotSet++
		s.log.Error("snapshot not set", append(n.id.fields(), zap.Error(err))...)
	}
}

// progress says how far a client has come. New routes reach a weir-extproc after
// its Envoy took them: what it decides, the Envoy must be able to do. Where classes
// only leave it is the other way round: nothing is decided that the Envoy cannot do
// any more.
func (s *Server) progress(n *node, want snapshot) progress {
	warm := n.has(want, resource.ClusterType) && n.has(want, resource.EndpointType)
	first := fleet.RoleEnvoy
	if n.served.loses(want) {
		first = fleet.RoleExtProc
	}
	if sibling := s.nodes[n.id.sibling()]; sibling != nil && n.id.role != first {
		warm = warm && sibling.has(want, resource.RouteType)
	}
	return progress{warm: warm, routed: n.has(want, resource.ListenerType) && n.has(want, resource.RouteType)}
}

// loses says whether classes leave, and none comes, on the way to another snapshot.
func (s snapshot) loses(want snapshot) bool {
	had, has := s.GetVersionMap(resource.EndpointType), want.GetVersionMap(resource.EndpointType)
	for class := range has {
		if _, ok := had[class]; !ok {
			return false
		}
	}
	return len(has) < len(had)
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

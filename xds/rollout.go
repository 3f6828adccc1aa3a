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

// advance serves a client the next step of its way, if there is one. No wait is
// longer than HoldFor, save that for an Envoy which refused its routes: what it
// still uses stays.
func (s *Server) advance(n *node, now time.Time) {
	current := s.current[n.id.frontEnd]
	if current == nil {
		return
	}
	withheld := s.withheld(n.id, current)
	want := current.restrictedTo(n.id.role)
	if n.id.role == fleet.RoleExtProc {
		want[resource.RuntimeType] = s.withLevels(n.id.frontEnd, want[resource.RuntimeType])
	}
	var err error
	if want[resource.RouteType], err = n.filter.without(withheld, want[resource.RouteType]); err != nil {
		s.notSet(n, err)
		return
	}
	next := step(n.served, want, s.progress(n, want))
	refused := false
	switch {
	case next.equal(want):
		n.heldSince = time.Time{}
	case s.refusesRoutes(n, want):
		refused = true
	case n.heldSince.IsZero():
		n.heldSince = now
	case now.Sub(n.heldSince) >= s.options.HoldFor:
		s.counts.Forced++
		s.log.Warn("xDS client is silent about its clusters: routes are sent without its word", n.id.fields()...)
		next, n.heldSince = want, time.Time{}
	}
	if next.equal(want) {
		n.classes = want.GetVersionMap(resource.EndpointType)
	}
	s.tellHold(n, describeHold(withheld, refused))
	s.serve(n, next)
}

func (s *Server) serve(n *node, next snapshot) {
	if n.served != nil && n.served.equal(next) {
		return
	}
	n.served = next
	if err := s.cache.SetSnapshot(context.Background(), n.id.key(), next); err != nil {
		s.notSet(n, err)
	}
}

func (s *Server) notSet(n *node, err error) {
	s.counts.NotSet++
	s.log.Error("snapshot not set", append(n.id.fields(), zap.Error(err))...)
}

// progress says how far a client has come. New routes reach a weir-extproc after
// its Envoy took them: what it decides, the Envoy must be able to do. Where classes
// only leave it is the other way round: nothing is decided that the Envoy cannot do
// any more.
func (s *Server) progress(n *node, want snapshot) progress {
	warm := n.warm(want)
	first := fleet.RoleEnvoy
	if loses(n.classes, want.GetVersionMap(resource.EndpointType)) {
		first = fleet.RoleExtProc
	}
	if sibling := s.nodes[n.id.sibling()]; sibling != nil && n.id.role != first {
		warm = warm && sibling.has(want, resource.RouteType)
	}
	return progress{warm: warm, routed: n.has(want, resource.ListenerType) && n.has(want, resource.RouteType)}
}

// loses says whether classes leave, and none comes, on the way from the ones to the
// others.
func loses(had, has map[string]string) bool {
	for class := range has {
		if _, ok := had[class]; !ok {
			return false
		}
	}
	return len(has) < len(had)
}

// warm says whether every stream of a client took or refused each cluster and its
// endpoints. Nobody asks for the endpoints of a cluster that was refused.
func (n *node) warm(want snapshot) bool {
	for _, st := range n.streams {
		clusters, endpoints := st.deliveries[resource.ClusterType], st.deliveries[resource.EndpointType]
		for name, version := range want.GetVersionMap(resource.ClusterType) {
			if clusters != nil && !clusters.settled(name, version) {
				return false
			}
		}
		for name, version := range want.GetVersionMap(resource.EndpointType) {
			asked := endpoints != nil && (clusters == nil || clusters.acked[name] != "")
			if asked && !endpoints.settled(name, version) {
				return false
			}
		}
	}
	return true
}

// has says whether a client took all of a type, if it asks for it. Of two that share
// a node id, one that refuses does not speak for the other.
func (n *node) has(want snapshot, typeURL string) bool {
	taken, refused := false, false
	for _, st := range n.streams {
		d, versions := st.deliveries[typeURL], want.GetVersionMap(typeURL)
		switch {
		case d == nil:
		case d.has(versions):
			taken = true
		case d.refuses(versions):
			refused = true
		default:
			return false
		}
	}
	return taken || !refused
}

package xds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"weir/fleet"
)

// withheld lists the clusters that a node's Envoy refused, they or their endpoints,
// and has in no earlier form either. Neither client of the node gets routes to them.
func (s *Server) withheld(id identity, current snapshot) []string {
	if id.role == fleet.RoleExtProc {
		id = id.sibling()
	}
	n := s.nodes[id]
	if n == nil {
		return nil
	}
	var names []string
	for _, st := range n.streams {
		for _, t := range []string{resource.ClusterType, resource.EndpointType} {
			d := st.deliveries[t]
			if d == nil {
				continue
			}
			for name, version := range d.refused {
				if current[t].versions[name] == version && !n.inForce(name) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// inForce says whether a stream of an Envoy took a cluster and endpoints for it, of
// whatever version.
func (n *node) inForce(cluster string) bool {
	for _, st := range n.streams {
		clusters, endpoints := st.deliveries[resource.ClusterType], st.deliveries[resource.EndpointType]
		if clusters != nil && endpoints != nil && clusters.acked[cluster] != "" && endpoints.acked[cluster] != "" {
			return true
		}
	}
	return false
}

// filter takes routes out of a collection, and remembers the last result.
type filter struct {
	from, routes *collection
	clusters     []string
}

// without returns the collection without the routes to some clusters.
func (f *filter) without(clusters []string, routes *collection) (*collection, error) {
	if len(clusters) == 0 {
		return routes, nil
	}
	if f.from == routes && slices.Equal(f.clusters, clusters) {
		return f.routes, nil
	}
	var kept []*routev3.RouteConfiguration
	for _, r := range routes.resources {
		r := proto.CloneOf(r.(*routev3.RouteConfiguration))
		for _, host := range r.VirtualHosts {
			host.Routes = slices.DeleteFunc(host.Routes, func(r *routev3.Route) bool {
				return slices.Contains(clusters, r.GetRoute().GetCluster())
			})
		}
		kept = append(kept, r)
	}
	filtered, err := newCollection(kept, routes)
	if err != nil {
		return nil, err
	}
	*f = filter{routes, filtered, clusters}
	return filtered, nil
}

// refusesRoutes says whether the client or the other one of its node has refused
// the listeners or routes that it is to have.
func (s *Server) refusesRoutes(n *node, want snapshot) bool {
	for _, id := range []identity{n.id, n.id.sibling()} {
		if n := s.nodes[id]; n != nil && (n.refuses(want, resource.ListenerType) || n.refuses(want, resource.RouteType)) {
			return true
		}
	}
	return false
}

// refuses says whether every stream of a client that asks for a type refuses it.
func (n *node) refuses(want snapshot, typeURL string) bool {
	refused := false
	for _, st := range n.streams {
		if d := st.deliveries[typeURL]; d != nil {
			if !d.refuses(want.GetVersionMap(typeURL)) {
				return false
			}
			refused = true
		}
	}
	return refused
}

// maxNamed bounds the clusters that the reason of a hold names.
const maxNamed = 10

func describeHold(withheld []string, routesRefused bool) string {
	switch n := len(withheld); {
	case routesRefused:
		return "a NACK of routes or listeners"
	case n == 0:
		return ""
	case n > maxNamed:
		return fmt.Sprintf("a NACK of cluster %s and %d more", strings.Join(withheld[:maxNamed], ", "), n-maxNamed)
	default:
		return "a NACK of cluster " + strings.Join(withheld, ", ")
	}
}

// tellHold keeps the reason of a hold and tells each once.
func (s *Server) tellHold(n *node, by string) {
	switch {
	case by == n.heldBy:
		return
	case by == "":
		s.log.Info("routes of an xDS client wait no longer", n.id.fields()...)
	default:
		s.counts.Held++
		s.log.Warn("routes of an xDS client wait for what was refused to be corrected", append(n.id.fields(), zap.String("heldBy", by))...)
	}
	n.heldBy = by
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

// renewing is the cache with what the delta protocol asks of a server and the cache
// leaves out: who subscribes again to a resource is sent it again.
type renewing struct{ cache.SnapshotCache }

// CreateDeltaWatch answers a request, now or when there is something to say.
func (c renewing) CreateDeltaWatch(req *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	returned := sub.ReturnedResources()
	for _, name := range req.GetResourceNamesSubscribe() {
		_, there := returned[name]
		if _, stated := req.GetInitialResourceVersions()[name]; there && !stated {
			returned[name] = "" // neither sent nor gone, in the cache's books
		}
	}
	return c.SnapshotCache.CreateDeltaWatch(req, sub, out)
}

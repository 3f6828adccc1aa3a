package xds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/envoy"
	"weir/fleet"
)

// clusterMetadata is the namespace of locality metadata that names the version of
// the cluster.
const clusterMetadata = "weir.cluster"

// servedTypes lists the resource types of a role, in the order in which they are
// pushed: what a resource refers to comes before it.
func servedTypes(role fleet.Role) []string {
	if role == fleet.RoleExtProc {
		return []string{resource.EndpointType, resource.RouteType, resource.RuntimeType}
	}
	return []string{
		resource.ClusterType, resource.EndpointType, resource.ListenerType,
		resource.RouteType, resource.RuntimeType,
	}
}

// shortName is the last part of a type URL, as people know it: "Cluster".
func shortName(typeURL string) string {
	return typeURL[strings.LastIndexByte(typeURL, '.')+1:]
}

// collection is all resources of one type, each marshalled and hashed once. It is
// never changed, so that clients can share it.
type collection struct {
	version   string // hash of all versions
	resources map[string]types.Resource
	versions  map[string]string // by name: the hash of the resource's bytes
}

// newCollection hashes resources; it returns old when nothing has changed.
func newCollection[M types.Resource](resources []M, old *collection) (*collection, error) {
	c := &collection{
		resources: make(map[string]types.Resource, len(resources)),
		versions:  make(map[string]string, len(resources)),
	}
	for _, r := range resources {
		name := cache.GetResourceName(r)
		if _, repeated := c.resources[name]; repeated || name == "" {
			return nil, fmt.Errorf("%s %q: every resource needs a name of its own", r.ProtoReflect().Descriptor().Name(), name)
		}
		bytes, err := cache.MarshalResource(r)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", r.ProtoReflect().Descriptor().Name(), name, err)
		}
		// The delta server states exactly this hash with each resource that it
		// sends: any other version would make every reconnect a full push.
		c.resources[name], c.versions[name] = r, cache.HashResource(bytes)
	}
	c.version = hashVersions(c.versions)
	if old != nil && old.version == c.version {
		return old, nil
	}
	return c, nil
}

func hashVersions(versions map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		fmt.Fprintf(&b, "%q %s\n", name, versions[name])
	}
	return cache.HashResource([]byte(b.String()))[:16]
}

// keeping returns c together with what only old has.
func (c *collection) keeping(old *collection) *collection {
	merged := &collection{
		resources: maps.Clone(old.resources),
		versions:  maps.Clone(old.versions),
	}
	maps.Copy(merged.resources, c.resources)
	maps.Copy(merged.versions, c.versions)
	if len(merged.versions) == len(c.versions) {
		return c
	}
	merged.version = hashVersions(merged.versions)
	return merged
}

// snapshot is what one client is served, by type URL: a [cache.ResourceSnapshot]
// in which each resource has its own version.
type snapshot map[string]*collection

// newSnapshot hashes a front-end's resources; types that are as in old share its
// collections.
func newSnapshot(r *envoy.Resources, old snapshot) (snapshot, error) {
	if err := checkEndpoints(r.Endpoints); err != nil {
		return nil, err
	}
	clusters, err := newCollection(r.Clusters, old[resource.ClusterType])
	if err != nil {
		return nil, err
	}
	endpoints, err1 := newCollection(followClusters(r.Endpoints, clusters.versions), old[resource.EndpointType])
	listeners, err2 := newCollection(r.Listeners, old[resource.ListenerType])
	routes, err3 := newCollection(r.Routes, old[resource.RouteType])
	runtimes, err4 := newCollection(r.Runtimes, old[resource.RuntimeType])
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	s := snapshot{
		resource.ClusterType:  clusters,
		resource.EndpointType: endpoints,
		resource.ListenerType: listeners,
		resource.RouteType:    routes,
		resource.RuntimeType:  runtimes,
	}
	return s, s.checkReferences()
}

// checkEndpoints refuses clusters without an endpoint: an Envoy that believes
// them drops every engine that it has.
func checkEndpoints(assignments []*endpointv3.ClusterLoadAssignment) error {
	var errs []error
	for _, a := range assignments {
		n := 0
		for _, l := range a.GetEndpoints() {
			n += len(l.GetLbEndpoints())
		}
		if n == 0 {
			errs = append(errs, fmt.Errorf("endpoints of cluster %q are empty: list its engines as unhealthy, or leave the cluster out", a.GetClusterName()))
		}
	}
	return errors.Join(errs...)
}

// followClusters notes in the endpoints of each cluster which version of it they
// belong to, so that they are sent again whenever the cluster is. An Envoy does not
// ask again for the endpoints of a cluster that has changed, and until they come it
// neither uses the new form of the cluster nor takes any other, for 15 s by default.
func followClusters(assignments []*endpointv3.ClusterLoadAssignment, clusters map[string]string) []*endpointv3.ClusterLoadAssignment {
	out := make([]*endpointv3.ClusterLoadAssignment, len(assignments))
	for i, a := range assignments {
		out[i] = proto.CloneOf(a)
		first := out[i].Endpoints[0]
		if first.Metadata == nil {
			first.Metadata = &corev3.Metadata{}
		}
		if first.Metadata.FilterMetadata == nil {
			first.Metadata.FilterMetadata = map[string]*structpb.Struct{}
		}
		first.Metadata.FilterMetadata[clusterMetadata] = &structpb.Struct{Fields: map[string]*structpb.Value{
			"version": structpb.NewStringValue(clusters[a.GetClusterName()]),
		}}
	}
	return out
}

// checkReferences refuses clusters and listeners whose endpoints or routes are
// not in the snapshot: an Envoy would wait for them.
func (s snapshot) checkReferences() error {
	var errs []error
	for _, from := range []string{resource.ClusterType, resource.ListenerType} {
		for to, names := range cache.GetResourceReferences(s.GetResourcesAndTTL(from)) {
			for name := range names {
				if _, ok := s[to].resources[name]; !ok {
					errs = append(errs, fmt.Errorf("a %s refers to %s %q, which is missing", shortName(from), shortName(to), name))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// restrictedTo returns what of s a role is served.
func (s snapshot) restrictedTo(role fleet.Role) snapshot {
	part := snapshot{}
	for _, t := range servedTypes(role) {
		part[t] = s[t]
	}
	return part
}

func (s snapshot) equal(other snapshot) bool {
	return maps.EqualFunc(s, other, func(a, b *collection) bool { return a.version == b.version })
}

// GetVersion returns the version of a type.
func (s snapshot) GetVersion(typeURL string) string {
	if c := s[typeURL]; c != nil {
		return c.version
	}
	return ""
}

// GetResources returns the resources of a type.
func (s snapshot) GetResources(typeURL string) map[string]types.Resource {
	if c := s[typeURL]; c != nil {
		return c.resources
	}
	return nil
}

// GetResourcesAndTTL returns the resources of a type; none of them expires.
func (s snapshot) GetResourcesAndTTL(typeURL string) map[string]types.ResourceWithTTL {
	out := make(map[string]types.ResourceWithTTL)
	for name, r := range s.GetResources(typeURL) {
		out[name] = types.ResourceWithTTL{Resource: r}
	}
	return out
}

// ConstructVersionMap does nothing: publishing has hashed everything.
func (s snapshot) ConstructVersionMap() error { return nil }

// GetVersionMap returns the version of each resource of a type.
func (s snapshot) GetVersionMap(typeURL string) map[string]string {
	if c := s[typeURL]; c != nil {
		return c.versions
	}
	return nil
}

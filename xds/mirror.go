package xds

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"

	"weir/envoy"
)

// mirror is a client's copy of what the server sent, by type URL. Deltas speak of
// what was sent before, so the copy follows every response that can be read, also
// where the consumer refused the whole that it made.
type mirror map[string]*mirrored

type mirrored struct {
	resources map[string]proto.Message
	versions  map[string]string
	arrived   bool // a response came: empty may be the truth
	refused   bool // the last response was refused
}

func newMirror(typeURLs []string) mirror {
	m := mirror{}
	for _, t := range typeURLs {
		m[t] = newMirrored()
	}
	return m
}

func newMirrored() *mirrored {
	return &mirrored{resources: map[string]proto.Message{}, versions: map[string]string{}}
}

// forgetRefused drops the types whose last response was refused, so that a new
// stream gets them whole and the refusal stays visible.
func (m mirror) forgetRefused() {
	for t, c := range m {
		if c.refused {
			m[t] = newMirrored()
		}
	}
}

func (m mirror) complete() bool {
	for _, c := range m {
		if !c.arrived {
			return false
		}
	}
	return true
}

// apply takes in a response. Resources that cannot be read are left as they were
// and named in the error.
func (m *mirrored) apply(resp *discoveryv3.DeltaDiscoveryResponse) error {
	var errs []error
	for _, name := range resp.GetRemovedResources() {
		delete(m.resources, name)
		delete(m.versions, name)
	}
	for _, r := range resp.GetResources() {
		message, err := read(r, resp.GetTypeUrl())
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", shortName(resp.GetTypeUrl()), r.GetName(), err))
			continue
		}
		m.resources[r.GetName()], m.versions[r.GetName()] = message, r.GetVersion()
	}
	m.arrived = true
	return errors.Join(errs...)
}

func read(r *discoveryv3.Resource, typeURL string) (proto.Message, error) {
	if got := r.GetResource().GetTypeUrl(); got != typeURL {
		return nil, fmt.Errorf("is of type %q", got)
	}
	message, err := r.GetResource().UnmarshalNew()
	if err != nil {
		return nil, err
	}
	if got := cache.GetResourceName(message); got != r.GetName() {
		return nil, fmt.Errorf("calls itself %q", got)
	}
	return message, nil
}

// content lists all resources by name; types that are not subscribed to are empty.
func (m mirror) content() *envoy.Resources {
	r := &envoy.Resources{}
	list(m[resource.ListenerType], &r.Listeners)
	list(m[resource.RouteType], &r.Routes)
	list(m[resource.ClusterType], &r.Clusters)
	list(m[resource.EndpointType], &r.Endpoints)
	list(m[resource.RuntimeType], &r.Runtimes)
	return r
}

func list[M proto.Message](m *mirrored, to *[]M) {
	if m == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.resources)) {
		*to = append(*to, m.resources[name].(M)) // read has checked the type
	}
}

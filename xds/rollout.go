package xds

import (
	"maps"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
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

package xds

import (
	"time"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"

	"weir/fleet"
)

// PublishLevels sets the layers of [envoy.EncodeLevels] that every weir-extproc is
// served beside the resources of its front-end. No Envoy gets them, and a layer that is
// as before is not sent again. They must not be changed afterwards.
func (s *Server) PublishLevels(layers []*runtimev3.Runtime) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	levels, err := newCollection(layers, s.levels)
	if err != nil {
		return err
	}
	s.levels = levels
	now := time.Now()
	for _, n := range s.nodes {
		if n.id.role == fleet.RoleExtProc {
			s.advance(n, now)
		}
	}
	return nil
}

// levelled is a front-end's runtime with the levels, made once for all its clients.
type levelled struct{ runtime, levels, both *collection }

// withLevels adds the levels to a front-end's runtime.
func (s *Server) withLevels(id fleet.FrontEndID, runtime *collection) *collection {
	if s.levels == nil {
		return runtime
	}
	last := s.levelled[id]
	if last.runtime != runtime || last.levels != s.levels {
		last = levelled{runtime, s.levels, runtime.keeping(s.levels)}
		s.levelled[id] = last
	}
	return last.both
}

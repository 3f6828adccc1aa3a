package xds

import (
	"time"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"

	"weir/fleet"
)

// PublishLevels sets the layers that every weir-extproc is served beside the resources of
// its front-end: those of [envoy.EncodeLevels], and its front-end's own one, of
// [envoy.EncodeAdmissions]. No Envoy gets them, and a layer that is as before is not sent
// again. They must not be changed afterwards.
func (s *Server) PublishLevels(layers []*runtimev3.Runtime, own map[fleet.FrontEndID]*runtimev3.Runtime) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	levels, err := newCollection(layers, s.levels)
	if err != nil {
		return err
	}
	for id, layer := range own {
		c, err := newCollection([]*runtimev3.Runtime{layer}, s.own[id])
		if err != nil {
			return err
		}
		s.own[id] = c
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
type levelled struct{ runtime, levels, own, all *collection }

// withLevels adds the levels to a front-end's runtime.
func (s *Server) withLevels(id fleet.FrontEndID, runtime *collection) *collection {
	if s.levels == nil {
		return runtime
	}
	last, own := s.levelled[id], s.own[id]
	if last.runtime != runtime || last.levels != s.levels || last.own != own {
		last = levelled{runtime, s.levels, own, runtime.keeping(s.levels)}
		if own != nil {
			last.all = last.all.keeping(own)
		}
		s.levelled[id] = last
	}
	return last.all
}

package envoy

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/fleet"
)

// Encode writes a view as the resources of one front-end. Every message passes
// Envoy's validation rules; a view that cannot be written is an error that names
// the place.
func Encode(v *fleet.View) (*Resources, error) {
	r := &Resources{}
	listener, err := encodeListener(v)
	if err != nil {
		return nil, fmt.Errorf("front-end %q: %w", v.FrontEnd, err)
	}
	r.Listeners = append(r.Listeners, listener)
	r.Routes = append(r.Routes, encodeRoutes(v))
	r.Runtimes = append(r.Runtimes, encodeRuntime(v))
	for i := range v.Classes {
		c := &v.Classes[i]
		if len(c.Pools) == 0 {
			continue // its routes answer by themselves
		}
		endpoints, err := encodeEndpoints(c)
		if err != nil {
			return nil, fmt.Errorf("class %q: %w", c.ID, err)
		}
		r.Endpoints = append(r.Endpoints, endpoints)
		r.Clusters = append(r.Clusters, encodeCluster(c))
	}
	return r, r.validate()
}

func (r *Resources) validate() error {
	for _, m := range r.messages() {
		if err := m.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
			return fmt.Errorf("%s: %w", m.ProtoReflect().Descriptor().Name(), err)
		}
	}
	return nil
}

func (r *Resources) messages() []proto.Message {
	var all []proto.Message
	all = appendMessages(all, r.Listeners)
	all = appendMessages(all, r.Routes)
	all = appendMessages(all, r.Clusters)
	all = appendMessages(all, r.Endpoints)
	return appendMessages(all, r.Runtimes)
}

func appendMessages[M proto.Message](all []proto.Message, some []M) []proto.Message {
	for _, m := range some {
		all = append(all, m)
	}
	return all
}

// pack wraps a message of ours. It panics on what cannot be marshalled: a nil
// message or invalid UTF-8, neither of which a validated view contains.
func pack(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(fmt.Sprintf("envoy: marshal %s: %v", m.ProtoReflect().Descriptor().FullName(), err))
	}
	return a
}

func seconds(s float64) *durationpb.Duration {
	return &durationpb.Duration{Seconds: int64(s), Nanos: int32((s - float64(int64(s))) * 1e9)}
}

func u32(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(n) }

// Version is a short hash of all resources: equal versions, equal content.
func (r *Resources) Version() string { return versionOf(r.messages()) }

// PlanVersion is a short hash of those that an Envoy and its weir-extproc are both
// served: routes, endpoints and what is shed and retried, but not how full engines are.
func (r *Resources) PlanVersion() string {
	plan := r.WithoutLevels()
	return versionOf((&Resources{Routes: plan.Routes, Endpoints: plan.Endpoints, Runtimes: plan.Runtimes}).messages())
}

func versionOf(all []proto.Message) string {
	hash := xxhash.New()
	for _, m := range all {
		_, _ = hash.Write(pack(m).GetValue()) // a hash takes everything
	}
	return fmt.Sprintf("%016x", hash.Sum64())
}

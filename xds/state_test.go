package xds

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"weir/envoy"
	"weir/fleet"
)

var protoEqual = protocmp.Transform()

func snapshotOf(t *testing.T, p plan, old snapshot) snapshot {
	t.Helper()
	s, err := newSnapshot(p.resources(), old)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVersionsAreThoseOfTheDeltaServer(t *testing.T) {
	t.Parallel()
	r := first.resources()
	s, err := newSnapshot(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := cache.MarshalResource(r.Listeners[0])
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{envoy.ListenerName: cache.HashResource(bytes)}
	if diff := cmp.Diff(want, s.GetVersionMap(resource.ListenerType)); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

func TestUnchangedTypesAreShared(t *testing.T) {
	t.Parallel()
	old := snapshotOf(t, first, nil)
	next := snapshotOf(t, plan{weights: map[string]uint32{"chat": 99}, budget: 1, listen: 1}, old)
	for typeURL := range old {
		if shared, want := old[typeURL] == next[typeURL], typeURL != resource.EndpointType; shared != want {
			t.Errorf("%s shared = %t, want %t", shortName(typeURL), shared, want)
		}
	}
	if old.equal(next) || !old.equal(snapshotOf(t, first, nil)) {
		t.Error("equal must compare content")
	}
}

func TestSnapshotOfARole(t *testing.T) {
	t.Parallel()
	part := snapshotOf(t, first, nil).restrictedTo(fleet.RoleExtProc)
	if len(part) != 3 || part.GetResources(resource.ListenerType) != nil || part.GetVersion(resource.ClusterType) != "" || part.GetVersionMap(resource.ClusterType) != nil {
		t.Errorf("the ext_proc's part has %d types, want routes, endpoints and runtime alone", len(part))
	}
	if got := part.GetResourcesAndTTL(resource.RouteType)[envoy.RouteName]; got.Resource == nil || got.TTL != nil {
		t.Errorf("routes are %v, want them without expiry", got)
	}
}

func TestStep(t *testing.T) {
	t.Parallel()
	chat := plan{weights: map[string]uint32{"chat": 1}, budget: 1}
	both := plan{weights: map[string]uint32{"chat": 2, "code": 1}, budget: 2}
	tests := []struct {
		name           string
		served, want   *plan
		p              progress
		clusters       []string
		routes, others *plan // whose routes and whose runtime are served
	}{
		{"all at once to a newcomer", nil, &both, progress{}, []string{"chat", "code"}, &both, &both},
		{"a class comes: clusters first", &chat, &both, progress{}, []string{"chat", "code"}, &chat, &both},
		{"a class comes: warm", &chat, &both, progress{warm: true}, []string{"chat", "code"}, &both, &both},
		{"a class goes: not warm", &both, &chat, progress{routed: true}, []string{"chat", "code"}, &both, &chat},
		{"a class goes: routes first", &both, &chat, progress{warm: true}, []string{"chat", "code"}, &chat, &chat},
		{"a class goes: routes taken", &both, &chat, progress{warm: true, routed: true}, []string{"chat"}, &chat, &chat},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var served snapshot
			if test.served != nil {
				served = snapshotOf(t, *test.served, nil)
			}
			got := step(served, snapshotOf(t, *test.want, nil), test.p)
			for _, typeURL := range []string{resource.ClusterType, resource.EndpointType} {
				if len(got[typeURL].resources) != len(test.clusters) {
					t.Errorf("%s: %v, want %q", shortName(typeURL), got[typeURL].versions, test.clusters)
				}
				for _, name := range test.clusters {
					if got[typeURL].resources[name] == nil {
						t.Errorf("%s %q is missing", shortName(typeURL), name)
					}
				}
			}
			if want := snapshotOf(t, *test.routes, nil)[resource.RouteType].version; got[resource.RouteType].version != want {
				t.Error("other routes than wanted")
			}
			if want := snapshotOf(t, *test.others, nil)[resource.RuntimeType].version; got[resource.RuntimeType].version != want {
				t.Error("the runtime must not wait")
			}
			if want := snapshotOf(t, *test.want, nil)[resource.EndpointType].versions["chat"]; got[resource.EndpointType].versions["chat"] != want {
				t.Error("weights must not wait")
			}
		})
	}
}

func pushOf(nonce string, versions map[string]string, removed ...string) *discoveryv3.DeltaDiscoveryResponse {
	resp := &discoveryv3.DeltaDiscoveryResponse{Nonce: nonce, SystemVersionInfo: "all at " + nonce, RemovedResources: removed}
	for name, version := range versions {
		resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: name, Version: version})
	}
	return resp
}

func ack(nonce string) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: nonce}
}

func nack(nonce, reason string) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: nonce, ErrorDetail: status.New(codes.InvalidArgument, reason).Proto()}
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	a1b1 := map[string]string{"a": "1", "b": "1"}
	tests := []struct {
		name    string
		initial map[string]string
		steps   func(d *delivery)
		want    fleet.Delivery
		has     map[string]string
		hasNot  map[string]string
	}{
		{
			name:    "what an earlier stream brought is taken",
			initial: a1b1, steps: func(*delivery) {},
			has: a1b1, hasNot: map[string]string{"a": "2"},
		},
		{
			name:   "sent is not taken",
			steps:  func(d *delivery) { d.pushed(pushOf("1", a1b1), time.Unix(10, 0)) },
			want:   fleet.Delivery{Sent: "all at 1", Behind: 2, LagSeconds: 90},
			hasNot: a1b1,
		},
		{
			name: "taken",
			steps: func(d *delivery) {
				d.pushed(pushOf("1", a1b1), time.Unix(10, 0))
				d.answered(ack("1"))
			},
			want: fleet.Delivery{Sent: "all at 1", Acked: "all at 1", Nonce: "1"},
			has:  a1b1,
		},
		{
			name: "an answer to an older response confirms that one alone",
			steps: func(d *delivery) {
				d.pushed(pushOf("1", map[string]string{"a": "1"}), time.Unix(10, 0))
				d.pushed(pushOf("2", map[string]string{"b": "1"}), time.Unix(20, 0))
				d.answered(ack("1"))
			},
			want: fleet.Delivery{Sent: "all at 2", Acked: "all at 1", Nonce: "1", Behind: 1, LagSeconds: 90},
			has:  map[string]string{"a": "1"}, hasNot: a1b1,
		},
		{
			name:    "a removal is behind until it is taken",
			initial: a1b1,
			steps:   func(d *delivery) { d.pushed(pushOf("1", nil, "b"), time.Unix(40, 0)) },
			want:    fleet.Delivery{Sent: "all at 1", Behind: 1, LagSeconds: 60},
			has:     map[string]string{"a": "1"}, hasNot: a1b1,
		},
		{
			name:    "a removal is taken",
			initial: a1b1,
			steps: func(d *delivery) {
				d.pushed(pushOf("1", nil, "b"), time.Unix(40, 0))
				d.answered(ack("1"))
			},
			want: fleet.Delivery{Sent: "all at 1", Acked: "all at 1", Nonce: "1"},
			has:  map[string]string{"a": "1"}, hasNot: map[string]string{"b": "1"},
		},
		{
			name:    "a refusal keeps the last good version",
			initial: a1b1,
			steps: func(d *delivery) {
				d.pushed(pushOf("1", map[string]string{"a": "2"}), time.Unix(50, 0))
				d.answered(nack("1", "no"))
			},
			want: fleet.Delivery{Sent: "all at 1", Behind: 1, LagSeconds: 50, Nacks: 1, Error: "no"},
			// The client holds a at 1, but was sent another since.
			has: map[string]string{"b": "1"}, hasNot: map[string]string{"a": "2"},
		},
		{
			name:    "a refusal stays while another resource is taken",
			initial: a1b1,
			steps: func(d *delivery) {
				d.pushed(pushOf("1", map[string]string{"a": "2"}), time.Unix(50, 0))
				d.answered(nack("1", "no"))
				d.pushed(pushOf("2", map[string]string{"b": "2"}), time.Unix(60, 0))
				d.answered(ack("2"))
			},
			want: fleet.Delivery{Sent: "all at 2", Acked: "all at 2", Nonce: "2", Behind: 1, LagSeconds: 50, Nacks: 1, Error: "no"},
		},
		{
			name:    "a refusal ends with the next good version",
			initial: a1b1,
			steps: func(d *delivery) {
				d.pushed(pushOf("1", map[string]string{"a": "2"}), time.Unix(50, 0))
				d.answered(nack("1", ""))
				d.pushed(pushOf("2", map[string]string{"a": "3"}), time.Unix(60, 0))
				d.answered(ack("2"))
			},
			want: fleet.Delivery{Sent: "all at 2", Acked: "all at 2", Nonce: "2", Nacks: 1},
			has:  map[string]string{"a": "3"},
		},
		{
			name:    "what is unsubscribed is forgotten",
			initial: a1b1,
			steps: func(d *delivery) {
				d.answered(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"b"}})
			},
			hasNot: map[string]string{"b": "1"},
		},
		{
			name: "a nonce of another stream means nothing",
			steps: func(d *delivery) {
				d.pushed(pushOf("1", a1b1), time.Unix(99, 0))
				d.answered(ack("7"))
				d.answered(nack("8", "no"))
			},
			want: fleet.Delivery{Sent: "all at 1", Behind: 2, LagSeconds: 1},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDelivery(test.initial, false)
			test.steps(d)
			test.want.Type = "T"
			if diff := cmp.Diff(test.want, d.report("T", time.Unix(100, 0))); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if !d.has(test.has) {
				t.Errorf("lacks %v", test.has)
			}
			if test.hasNot != nil && d.has(test.hasNot) {
				t.Errorf("has %v", test.hasNot)
			}
		})
	}
}

func TestUnansweredResponsesAreBounded(t *testing.T) {
	t.Parallel()
	d := newDelivery(nil, false)
	for range 10 * maxPending {
		d.pushed(pushOf("n", map[string]string{"a": "1"}), time.Unix(0, 0))
	}
	if len(d.pending) != maxPending {
		t.Errorf("%d responses are kept, want %d", len(d.pending), maxPending)
	}
}

func TestIdentitiesHaveTheirOwnKeys(t *testing.T) {
	t.Parallel()
	ids := []identity{
		{"east", "n1", fleet.RoleEnvoy},
		{"east", "n1", fleet.RoleExtProc},
		{"east", "n2", fleet.RoleEnvoy},
		{"west", "n1", fleet.RoleEnvoy},
		{`a" "b`, "c", fleet.RoleEnvoy},
		{"a", `b" "c`, fleet.RoleEnvoy},
	}
	seen := map[string]identity{}
	for _, id := range ids {
		key := byIdentity{}.ID(id.slim())
		if other, ok := seen[key]; ok {
			t.Errorf("%v and %v share the key %q", id, other, key)
		}
		seen[key] = id
		if got, err := identify(id.slim()); err != nil || got != id {
			t.Errorf("%v reads back as %v, %v", id, got, err)
		}
		if id.sibling() == id || id.sibling().sibling() != id {
			t.Errorf("%v has the sibling %v", id, id.sibling())
		}
	}
}

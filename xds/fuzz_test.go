package xds

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/fleet"
)

func structString(s string) *structpb.Value { return structpb.NewStringValue(s) }

// A client survives whatever a control plane sends, and its copy stays readable.
func FuzzMirror(f *testing.F) {
	r := first.resources()
	for _, seed := range []*discoveryv3.DeltaDiscoveryResponse{
		{TypeUrl: resource.ClusterType, Resources: []*discoveryv3.Resource{{Name: "chat", Version: "1", Resource: wrap(r.Clusters[0])}}},
		{TypeUrl: resource.EndpointType, Resources: []*discoveryv3.Resource{{Name: "chat", Resource: wrap(r.Endpoints[0])}}},
		{TypeUrl: resource.RouteType, Resources: []*discoveryv3.Resource{{Name: "chat", Resource: wrap(r.Clusters[0])}}, RemovedResources: []string{"weir"}},
	} {
		bytes, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		var resp discoveryv3.DeltaDiscoveryResponse
		if proto.Unmarshal(bytes, &resp) != nil {
			return
		}
		m := newMirror(servedTypes(fleet.RoleEnvoy))
		c := m[resp.GetTypeUrl()]
		if c == nil {
			return
		}
		err := c.apply(&resp)
		m.content()
		if len(c.resources) != len(c.versions) {
			t.Errorf("%d resources and %d versions", len(c.resources), len(c.versions))
		}
		if err == nil && len(c.resources) > len(resp.GetResources()) {
			t.Errorf("%d resources of %d sent", len(c.resources), len(resp.GetResources()))
		}
	})
}

// A server survives whatever a client reports, and each class stands once.
func FuzzDecodeLoad(f *testing.F) {
	seed, err := proto.Marshal(&loadv3.LoadStatsRequest{ClusterStats: encodeLoad(measured, 1)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, true)
	f.Fuzz(func(t *testing.T, bytes []byte, envoy bool) {
		var req loadv3.LoadStatsRequest
		if proto.Unmarshal(bytes, &req) != nil {
			return
		}
		role := fleet.RoleExtProc
		if envoy {
			role = fleet.RoleEnvoy
		}
		seen := map[fleet.ClassID]bool{}
		report, _ := decodeLoad(role, req.GetClusterStats())
		credible(t, &report)
		for _, c := range report.Classes {
			if seen[c.Class] || c.Class == "" {
				t.Errorf("class %q stands twice, or has no name", c.Class)
			}
			seen[c.Class] = true
			if envoy && (c.Arrivals != 0 || c.Shed != 0 || c.Tokens != (fleet.TokenLoad{}) || len(report.RoundTrips) > 0) {
				t.Errorf("an Envoy counted what only weir-extproc does: %+v", report)
			}
		}
		if statedInterval(req.GetClusterStats()) < 0 {
			t.Error("negative interval")
		}
	})
}

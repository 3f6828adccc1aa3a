package envoy_test

import (
	"math"
	"testing"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"weir/envoy"
	"weir/fleet"
)

func TestAdmissionSurvivesTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &fleet.Admission{}
		for _, node := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]`), 0, 3, rapid.ID).Draw(t, "nodes") {
			want.Nodes = append(want.Nodes, fleet.NodeShare{Node: node, Share: rapid.Float64Range(0, 1).Draw(t, "share")})
		}
		for _, class := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]`), 0, 3, rapid.ID).Draw(t, "classes") {
			want.Classes = append(want.Classes, fleet.ClassAdmission{
				Class: fleet.ClassID(class), CeilingRps: anyAmount(t), RetryAfterSeconds: rapid.Float64Range(0, 100).Draw(t, "retry after"),
				Limited: rapid.Bool().Draw(t, "limited"), Short: rapid.Bool().Draw(t, "short"),
				SpareRps: rapid.Float64Range(0, 100).Draw(t, "spare"), PlannedRps: anyAmount(t), Ahead: anyPrecedence(t),
			})
		}
		layers, err := envoy.EncodeAdmissions(map[fleet.FrontEndID]*fleet.Admission{"east": want})
		if err != nil {
			t.Fatal(err)
		}
		wire, err := proto.Marshal(layers["east"])
		if err != nil {
			t.Fatal(err)
		}
		r := &runtimev3.Runtime{}
		if err := proto.Unmarshal(wire, r); err != nil {
			t.Fatal(err)
		}
		got, _ := envoy.DecodeAdmission([]*runtimev3.Runtime{{Name: "weir"}, r})
		for _, n := range want.Nodes {
			if got.ShareOf(n.Node) != n.Share {
				t.Fatalf("share of %q: %v, want %v", n.Node, got.ShareOf(n.Node), n.Share)
			}
		}
		for _, c := range want.Classes {
			if diff := cmp.Diff(&c, got.Class(c.Class)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
		rest := (&envoy.Resources{Runtimes: []*runtimev3.Runtime{r}}).WithoutLevels()
		if len(rest.Runtimes) != 0 {
			t.Fatal("it counts as a part of the plan")
		}
	})
}

func anyPrecedence(t *rapid.T) (out []fleet.Precedence) {
	for _, class := range []fleet.ClassID{"a", "b"} {
		if rapid.Bool().Draw(t, "ahead "+string(class)) {
			out = append(out, fleet.Precedence{Class: class, Part: rapid.Float64Range(0, 1).Draw(t, "part")})
		}
	}
	return out
}

func TestAdmissionThatCannotBe(t *testing.T) {
	number := func(x float64) *structpb.Value { return structpb.NewNumberValue(x) }
	object := func(fields map[string]*structpb.Value) *structpb.Value {
		return structpb.NewStructValue(&structpb.Struct{Fields: fields})
	}
	for name, fields := range map[string]map[string]*structpb.Value{
		"share above 1":   {"nodes": object(map[string]*structpb.Value{"n": number(2)})},
		"share below 0":   {"nodes": object(map[string]*structpb.Value{"n": number(-1)})},
		"no number":       {"nodes": object(map[string]*structpb.Value{"n": number(math.NaN())})},
		"endless ceiling": {"classes": object(map[string]*structpb.Value{"c": object(map[string]*structpb.Value{"ceiling_rps": number(math.Inf(1))})})},
		"ceiling below 0": {"classes": object(map[string]*structpb.Value{"c": object(map[string]*structpb.Value{"ceiling_rps": number(-3)})})},
		"planned below 0": {"classes": object(map[string]*structpb.Value{"c": object(map[string]*structpb.Value{"planned_rps": number(-3)})})},
		"part below 0": {"classes": object(map[string]*structpb.Value{"c": object(map[string]*structpb.Value{
			"ahead": object(map[string]*structpb.Value{"b": number(-0.1)}),
		})})},
		"wait that is not": {"classes": object(map[string]*structpb.Value{"c": object(map[string]*structpb.Value{"retry_after": number(-1)})})},
	} {
		if got, ok := envoy.DecodeAdmission([]*runtimev3.Runtime{{Name: envoy.AdmissionName, Layer: &structpb.Struct{Fields: fields}}}); got != nil || ok {
			t.Errorf("%s: read as %+v, ok %v", name, got, ok)
		}
	}
	if got, ok := envoy.DecodeAdmission(nil); got != nil || !ok {
		t.Errorf("nothing is read as %+v, ok %v", got, ok)
	}
}

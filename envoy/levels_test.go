package envoy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"weir/envoy"
	"weir/fleet"
)

func anyAmount(t *rapid.T) fleet.Amount {
	if rapid.Bool().Draw(t, "known") {
		return fleet.Known(rapid.Float64Range(0, 1e9).Draw(t, "amount"))
	}
	return fleet.Amount{}
}

func anyLevels(t *rapid.T) *fleet.Levels {
	l := &fleet.Levels{Round: rapid.Int64Range(1, 1<<50).Draw(t, "round"), Tick: time.Duration(rapid.IntRange(1, 10).Draw(t, "tick")) * time.Second}
	for i := range rapid.IntRange(0, 4).Draw(t, "pools") {
		p := fleet.PoolLevels{ID: fleet.PoolID(fmt.Sprintf("p.%d", i)), Print: fleet.FingerprintOf([]fleet.EngineID{fleet.EngineID(rapid.String().Draw(t, "engine"))})}
		for range rapid.IntRange(0, 4).Draw(t, "engines") {
			p.Engines = append(p.Engines, fleet.EngineLevels{
				Queued: anyAmount(t), InFlight: anyAmount(t), Health: anyAmount(t), AgeSeconds: anyAmount(t),
			})
		}
		p.Engines = append(p.Engines, fleet.EngineLevels{Queued: fleet.Known(0)}) // something is known
		l.Pools = append(l.Pools, p)
	}
	return l
}

func TestLevelsSurviveTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyLevels(t)
		layers, err := envoy.EncodeLevels(want)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range layers { // over the wire, and in any order
			wire, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			layers[i] = &runtimev3.Runtime{}
			if err := proto.Unmarshal(wire, layers[i]); err != nil {
				t.Fatal(err)
			}
		}
		got, unread := envoy.DecodeLevels(rapid.Permutation(layers).Draw(t, "layers"))
		if unread != 0 {
			t.Fatalf("%d pools not read", unread)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("levels (-want +got):\n%s", diff)
		}
	})
}

// What cannot be true is left out, the rest is read.
func TestLevelsThatCannotBeTrue(t *testing.T) {
	numbers := func(values ...float64) *structpb.Value {
		list := &structpb.ListValue{}
		for _, v := range values {
			list.Values = append(list.Values, structpb.NewNumberValue(v))
		}
		return structpb.NewListValue(list)
	}
	text := structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue("1")}})
	layers := []*runtimev3.Runtime{
		{Name: "weir", Layer: &structpb.Struct{Fields: map[string]*structpb.Value{"round": structpb.NewNumberValue(9)}}},
		{Name: "weir-load", Layer: &structpb.Struct{Fields: map[string]*structpb.Value{"round": structpb.NewNumberValue(7), "tick": structpb.NewNumberValue(2)}}},
	}
	for i, fields := range []map[string]*structpb.Value{
		{},
		{"queued": text},
		{"queued": numbers()},
		{"queued": numbers(-2)},
		{"queued": numbers(math.NaN())},
		{"queued": numbers(math.Inf(1))},
		{"queued": numbers(1), "in_flight": numbers(1, 2)},
	} {
		layers = append(layers, &runtimev3.Runtime{Name: fmt.Sprint("weir-load.bad", i), Layer: &structpb.Struct{Fields: fields}})
	}
	bad := len(layers) - 2
	layers = append(layers, &runtimev3.Runtime{Name: "weir-load.good", Layer: &structpb.Struct{Fields: map[string]*structpb.Value{"in_flight": numbers(-1, 3)}}})
	got, unread := envoy.DecodeLevels(layers)
	want := &fleet.Levels{Round: 7, Tick: 2 * time.Second, Pools: []fleet.PoolLevels{
		{ID: "good", Engines: []fleet.EngineLevels{{}, {InFlight: fleet.Known(3)}}},
	}}
	if diff := cmp.Diff(want, got); diff != "" || unread != bad {
		t.Errorf("%d not read, want %d; levels (-want +got):\n%s", unread, bad, diff)
	}
	if got, _ := envoy.DecodeLevels(layers[:1]); got != nil {
		t.Errorf("levels %v from Envoy's own layer", got)
	}
}

// What Envoys are told is read alike with the levels beside it.
func TestLevelsDoNotDisturbAView(t *testing.T) {
	want := example()
	r, err := envoy.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	levels, err := envoy.EncodeLevels(&fleet.Levels{Round: 1, Pools: []fleet.PoolLevels{{ID: "p1", Engines: []fleet.EngineLevels{{Queued: fleet.Known(1)}}}}})
	if err != nil {
		t.Fatal(err)
	}
	r.Runtimes = append(r.Runtimes, levels...)
	got, err := envoy.Decode(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("decoded view differs (-got +want):\n%s", diff)
	}
}

// The levels of 2,000 engines are small.
func TestLevelsAreSmall(t *testing.T) {
	l := &fleet.Levels{Round: 1}
	for i := range 20 {
		p := fleet.PoolLevels{ID: fleet.PoolID(fmt.Sprintf("pool-%d", i)), Print: 1 << 51}
		for j := range 100 {
			p.Engines = append(p.Engines, fleet.EngineLevels{Queued: fleet.Known(float64(j)), InFlight: fleet.Known(float64(j))})
		}
		l.Pools = append(l.Pools, p)
	}
	layers, err := envoy.EncodeLevels(l)
	if err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for _, m := range layers {
		bytes += proto.Size(m)
	}
	if bytes > 2*2000*11+20*200 {
		t.Errorf("%d bytes", bytes)
	}
	t.Logf("%d bytes for 2,000 engines", bytes)
}

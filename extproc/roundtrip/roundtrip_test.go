package roundtrip

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

func view(engines map[fleet.PoolID][]fleet.ViewEngine) *fleet.View {
	c := fleet.ViewClass{ID: "chat"}
	for pool, list := range engines {
		c.Pools = append(c.Pools, fleet.ViewPool{ID: pool, Engines: list})
	}
	return &fleet.View{Classes: []fleet.ViewClass{c, c}} // two classes share the pools
}

// listen accepts and answers nothing, as an engine that is asked nothing does.
func listen(t *testing.T) fleet.EngineID {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return fleet.EngineID(l.Addr().String())
}

func closed(t *testing.T) fleet.EngineID {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fleet.EngineID(l.Addr().String())
}

func TestProberMeasuresEachPool(t *testing.T) {
	p := New()
	p.period = 20 * time.Millisecond
	p.Swap(view(map[fleet.PoolID][]fleet.ViewEngine{
		"near": {{ID: listen(t)}, {ID: closed(t), Readiness: fleet.Unready}},
		"far":  {{ID: listen(t)}},
		"dead": {{ID: closed(t)}},
		"sick": {{ID: closed(t), Readiness: fleet.Unready}},
	}))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	sums := map[fleet.PoolID]fleet.RoundTrip{}
	deadline := time.After(10 * time.Second)
	for sums["near"].Count < 3 || sums["far"].Count < 3 || p.failed.Load() == 0 {
		for _, r := range p.Take() {
			sum := sums[r.Pool]
			sums[r.Pool] = fleet.RoundTrip{Pool: r.Pool, Count: sum.Count + r.Count, Seconds: sum.Seconds + r.Seconds}
		}
		select {
		case <-deadline:
			t.Fatalf("measured %v, %d failed", sums, p.failed.Load())
		case <-time.After(time.Millisecond):
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	for _, pool := range []fleet.PoolID{"near", "far"} {
		if mean := sums[pool].Seconds / float64(sums[pool].Count); mean <= 0 || mean > 0.5 {
			t.Errorf("pool %q is %v s away on this machine", pool, mean)
		}
	}
	if len(sums) != 2 {
		t.Errorf("measured %v, want two pools: what fails is no measure", sums)
	}
}

func TestTargets(t *testing.T) {
	got := targetsOf(view(map[fleet.PoolID][]fleet.ViewEngine{
		"b": {{ID: "10.0.0.1:1"}, {ID: "10.0.0.2:1", Readiness: fleet.Unready}, {ID: "10.0.0.3:1", Readiness: fleet.Ready}},
		"a": {{ID: "10.0.1.1:1"}},
		"c": {{ID: "10.0.2.1:1", Readiness: fleet.Unready}},
	}))
	want := []target{{"a", []fleet.EngineID{"10.0.1.1:1"}}, {"b", []fleet.EngineID{"10.0.0.1:1", "10.0.0.3:1"}}}
	if diff := cmp.Diff(got, want, cmp.AllowUnexported(target{})); diff != "" {
		t.Errorf("targets (-got +want):\n%s", diff)
	}
}

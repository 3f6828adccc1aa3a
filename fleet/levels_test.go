package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Rounding stays within half of a count's noise, keeps the order, is done once and
// for all, and takes nothing for something or something for nothing.
func TestRounded(t *testing.T) {
	last := 0.0
	for n := range 100_000 {
		got := Rounded(float64(n))
		if n > 0 && math.Abs(got-float64(n)) > 0.5*math.Sqrt(float64(n))+0.5 {
			t.Fatalf("%d becomes %v", n, got)
		}
		if got < last || Rounded(got) != got || (got == 0) != (n == 0) {
			t.Fatalf("%d becomes %v after %v", n, got, last)
		}
		last = got
	}
	if got := Rounded(0.2); got != 1 {
		t.Errorf("a fifth of a request becomes %v: it is more than none", got)
	}
}

func TestFingerprintOf(t *testing.T) {
	prints := map[uint64]bool{}
	for _, engines := range [][]EngineID{nil, {""}, {"a"}, {"a", "b"}, {"b", "a"}, {"ab"}, {"a", "b", ""}} {
		p := FingerprintOf(engines)
		if prints[p] || uint64(float64(p)) != p {
			t.Errorf("%q: %x is another's, or no floating-point number", engines, p)
		}
		prints[p] = true
	}
}

func TestNewLevels(t *testing.T) {
	now := time.Unix(1_000, 0)
	pages := func(waiting float64, stale bool) EngineSignals {
		return EngineSignals{Queued: Reading{Value: waiting, At: now, Stale: stale}}
	}
	s := &State{
		Fleet: &Fleet{
			Options: Options{Tick: 2 * time.Second},
			Pools: []Pool{
				{ID: "dark", Engines: []EngineID{"d"}},
				{ID: "full", Engines: []EngineID{"a", "b", "c"}},
				{ID: "new", Engines: []EngineID{"e", "f", "g"}},
			},
		},
		Pools: map[PoolID]PoolState{
			"full": {
				Health: 0.5,
				Signals: PoolSignals{
					Engines: map[EngineID]EngineSignals{"a": pages(7, false), "b": pages(7, true)},
					Open:    map[EngineID]float64{"a": 30},
				},
			},
			"new": {ReadySince: map[EngineID]time.Time{
				"e": now.Add(-7900 * time.Millisecond), "f": now.Add(-time.Hour), "g": now.Add(time.Second),
			}},
		},
	}
	want := &Levels{Round: 1_000_000, Tick: 2 * time.Second, Pools: []PoolLevels{
		{ID: "full", Print: FingerprintOf([]EngineID{"a", "b", "c"}), Engines: []EngineLevels{
			{Queued: Known(6), InFlight: Known(30), Health: Known(0.5)},
			{InFlight: Known(0), Health: Known(0.5)},
			{InFlight: Known(0), Health: Known(0.5)},
		}},
		{ID: "new", Print: FingerprintOf([]EngineID{"e", "f", "g"}), Engines: []EngineLevels{{AgeSeconds: Known(7)}, {}, {}}},
	}}
	if diff := cmp.Diff(want, NewLevels(s, now)); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
}

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
	plan := &Plan{Policy: PolicyOptimal, Pools: []PoolPlan{{Pool: "full", Health: 0.5}, {Pool: "new", Health: 1}}}
	want := &Levels{Round: 1_000_000, Tick: 2 * time.Second, Pools: []PoolLevels{
		{ID: "full", Print: FingerprintOf([]EngineID{"a", "b", "c"}), Engines: []EngineLevels{
			{Queued: Known(6), InFlight: Known(30), Health: Known(0.5)},
			{InFlight: Known(0), Health: Known(0.5)},
			{InFlight: Known(0), Health: Known(0.5)},
		}},
		{ID: "new", Print: FingerprintOf([]EngineID{"e", "f", "g"}), Engines: []EngineLevels{{AgeSeconds: Known(7)}, {}, {}}},
	}}
	if diff := cmp.Diff(want, NewLevels(s, plan, now)); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
}

// A weir-extproc leaves to the plan what levels say that it has priced. So they say what
// the plan in force counts on, which is not what is believed now while it is held, and
// nothing of plans that take no pool's capacity into account.
func TestLevelsTellThePricedHealth(t *testing.T) {
	for name, c := range map[string]struct {
		plan Plan
		want Amount
	}{
		"priced":                {Plan{Policy: PolicyOptimal, Pools: []PoolPlan{{Pool: "p", Health: 0.5}}}, Known(0.5)},
		"held from better days": {Plan{Status: Held, Policy: PolicyOptimal, Pools: []PoolPlan{{Pool: "p", Health: 1}}}, Amount{}},
		"held from other days":  {Plan{Status: Held, Policy: PolicyWaterfall, Pools: []PoolPlan{{Pool: "p", Health: 0.8}}}, Known(0.8)},
		"each for itself":       {Plan{Policy: PolicyLocal, Pools: []PoolPlan{{Pool: "p", Health: 0.5}}}, Known(0.5)},
		"even":                  {Plan{Policy: PolicyEven, Pools: []PoolPlan{{Pool: "p", Health: 0.5}}}, Amount{}},
		"nearest":               {Plan{Policy: PolicyNearest, Pools: []PoolPlan{{Pool: "p", Health: 0.5}}}, Amount{}},
		"proportional":          {Plan{Policy: PolicyProportional, Pools: []PoolPlan{{Pool: "p", Health: 0.5}}}, Amount{}},
		"an older Weir's plan":  {Plan{Pools: []PoolPlan{{Pool: "p"}}}, Amount{}},
		"of before the pool":    {Plan{Policy: PolicyOptimal}, Amount{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &State{
				Fleet: &Fleet{Pools: []Pool{{ID: "p", Engines: []EngineID{"a"}}}},
				Pools: map[PoolID]PoolState{"p": {Health: 0.5, Signals: PoolSignals{Open: map[EngineID]float64{}}}},
			}
			if got := NewLevels(s, &c.plan, time.Unix(1, 0)).Pools[0].Engines[0].Health; got != c.want {
				t.Errorf("told %+v, want %+v", got, c.want)
			}
		})
	}
}

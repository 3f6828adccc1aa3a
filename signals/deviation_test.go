package signals

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/fleet"
)

func peersOf(values ...float64) []peer {
	var all []peer
	for i, v := range values {
		all = append(all, peer{engine: fleet.EngineID(fmt.Sprint(i)), value: v})
	}
	return all
}

func TestDeviations(t *testing.T) {
	uncertain := peersOf(0.2, 0.21, 0.19, 0.6)
	uncertain[3].chance = 0.2
	for _, c := range []struct {
		name     string
		floor    func(float64) float64
		peers    []peer
		median   float64
		z        float64 // of the last engine
		outliers int
	}{
		{"nobody", timeFloor, nil, 0, 0, 0},
		{"two cannot tell which of them is odd", timeFloor, peersOf(0.2, 9), 0, 0, 0},
		{"three alike", timeFloor, peersOf(0.2, 0.2, 0.2), 0.2, 0, 0},
		{"three nearly alike", timeFloor, peersOf(0.2, 0.2, 0.22), 0.2, 1, 0},
		// MAD 0.01 × 1.4826 × 3 / 2.2 = 0.0202.
		{"one of three is slow", timeFloor, peersOf(0.2, 0.21, 0.64), 0.21, 0.43 / 0.0210, 1},
		{"two that agree by luck are no measure of the third", timeFloor, peersOf(0.2, 0.2, 0.26), 0.2, 3, 0},
		{"one of four is fast", timeFloor, peersOf(0.2, 0.2, 0.2, 0.05), 0.2, -7.5, 0},
		{"by few requests", timeFloor, uncertain, 0.205, 0.395 / (0.2 * math.Sqrt(1+math.Pi/8)), 0},
		{"half of them are slow: nobody is odd", timeFloor, peersOf(0.2, 0.2, 0.8, 0.8), 0.5, 0.3 / (0.3 * 1.4826 * 4 / 3.2), 0},
		// MAD 0.1 × 1.4826 × 5 / 4.2 = 0.1765.
		{"a pool that varies", timeFloor, peersOf(0.2, 0.3, 0.4, 0.5, 1.28), 0.4, 0.88 / (0.1 * 1.4826 * 5 / 4.2), 1},
		{"no time at all", timeFloor, peersOf(0, 0, 0, 0.004), 0, 4, 1},
		{"one has a queue", numberFloor, peersOf(0, 0, 0, 8), 0, 8, 1},
		{"one has three waiting", numberFloor, peersOf(0, 0, 0, 3), 0, 3, 0},
		{"a few more of many", numberFloor, peersOf(25, 25, 25, 37), 25, 2, 0},
		{"twice as many of many", numberFloor, peersOf(25, 26, 25, 51), 25.5, 25.5 / (1 + math.Sqrt(25.5)), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := deviations(fleet.SignalTTFT, c.peers, c.floor)
			if len(c.peers) < fewestEngines {
				if all != nil {
					t.Fatalf("%+v, want nothing", all)
				}
				return
			}
			outliers := 0
			for i, d := range all {
				if d.Outlier() {
					outliers++
				}
				if d.Value != c.peers[i].value || math.Abs(d.Median-c.median) > 1e-9 || d.Signal != fleet.SignalTTFT {
					t.Errorf("engine %d: %+v, want its value and a median of %v", i, d, c.median)
				}
			}
			if got := all[len(all)-1].Z; math.Abs(got-c.z) > 1e-9 {
				t.Errorf("z = %v, want %v", got, c.z)
			}
			if outliers != c.outliers {
				t.Errorf("%d outliers, want %d: %+v", outliers, c.outliers, all)
			}
		})
	}
}

// compared feeds a pool's engines with a report a second, each engine with times about
// its own mean, and returns the state and when it was.
func compared(rng *rand.Rand, seconds int, rps float64, ttfts ...float64) (*Tracker, time.Time) {
	f := serviceFleet()
	f.Pools[0].Engines = nil
	for i := range ttfts {
		f.Pools[0].Engines = append(f.Pools[0].Engines, fleet.EngineID(fmt.Sprintf("10.0.1.%d:80", i)))
	}
	tracker, now := NewTracker(f), epoch
	for range seconds {
		now = now.Add(time.Second)
		load := fleet.PoolLoad{Pool: "big"}
		for i, m := range ttfts {
			e := fleet.EngineLoad{Engine: f.Pools[0].Engines[i]}
			for range int(poisson(rng, rps)) {
				e.TTFT.Observe(timed(rng, m))
			}
			load.Engines = append(load.Engines, e)
		}
		tracker.ObserveLoad(now, fleet.LoadReport{
			FrontEnd: "east", Node: "a", Role: fleet.RoleExtProc, Interval: time.Second,
			Classes: []fleet.ClassLoad{{Class: "chat", Pools: []fleet.PoolLoad{load}}},
		})
	}
	return tracker, now
}

// outliers names the engines that are outliers in a signal, by their last number.
func outliers(st fleet.PoolState, s fleet.Signal) (odd []fleet.EngineID) {
	for id, all := range st.Signals.Deviations {
		for _, d := range all {
			if d.Signal == s && d.Outlier() {
				odd = append(odd, id)
			}
		}
	}
	slices.Sort(odd)
	return odd
}

func TestASlowEngineIsNamed(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	tracker, now := compared(rng, 30, 4, 0.3, 0.3, 0.3, 1.2)
	st := tracker.State(now, nil).Pools["big"]
	if got := outliers(st, fleet.SignalTTFT); !slices.Equal(got, []fleet.EngineID{"10.0.1.3:80"}) {
		t.Errorf("outliers %v, want the slow engine: %+v", got, st.Signals.Deviations)
	}
	if d := st.Signals.Deviations["10.0.1.3:80"][0]; d.Value < 3*d.Median || d.Median > 0.45 {
		t.Errorf("the slow engine: %+v, want some four times the median", d)
	}
	// One that is out is not compared, and what is long ago tells nothing.
	tracker.ObserveProbe(now, Probe{Pool: "big", Engine: "10.0.1.3:80", Err: errRefused})
	if st := tracker.State(now, nil).Pools["big"]; len(st.Signals.Deviations) != 3 {
		t.Errorf("with one engine not ready: %+v, want the other three alone", st.Signals.Deviations)
	}
	if st := tracker.State(now.Add(2*seenFor), nil).Pools["big"]; len(st.Signals.Deviations) != 0 {
		t.Errorf("two minutes after the last request: %+v, want nothing", st.Signals.Deviations)
	}
}

func TestFewRequestsTellNothing(t *testing.T) {
	tracker, now := compared(rand.New(rand.NewPCG(6, 6)), 60, 0.2, 0.3, 0.3, 0.3)
	if st := tracker.State(now, nil).Pools["big"]; len(st.Signals.Deviations) != 0 {
		t.Errorf("at a request in five seconds: %+v, want nothing", st.Signals.Deviations)
	}
}

// Engines that are alike are seldom called odd, in small pools too.
func TestAlikeEnginesAreNotOdd(t *testing.T) {
	for _, engines := range []int{3, 5, 12} {
		const pools = 100
		odd, all := 0, 0
		for seed := range uint64(pools) {
			tracker, now := compared(rand.New(rand.NewPCG(seed, 7)), 30, 1, slices.Repeat([]float64{0.3}, engines)...)
			st := tracker.State(now, nil).Pools["big"]
			odd += len(outliers(st, fleet.SignalTTFT))
			all += len(st.Signals.Deviations)
		}
		if all < pools*engines/2 {
			t.Errorf("%d engines in %d pools: %d were compared, want most of them", engines, pools, all)
		}
		// P(Z > 3.5) is 1 in 4,300; as few, skewed times make a mean, 1 in 500 is borne.
		if odd > all/500 {
			t.Errorf("%d engines in %d pools: %d of %d were called odd", engines, pools, odd, all)
		}
	}
}

// Queues are compared by what engines tell, and a page that is stale is not.
func TestQueuesAreCompared(t *testing.T) {
	tracker, now := compared(rand.New(rand.NewPCG(8, 8)), 1, 1, 0.3, 0.3, 0.3, 0.3)
	for i, waiting := range []float64{0, 1, 0, 12} {
		s := page(now, waiting, 1)
		s.Engine = fleet.EngineID(fmt.Sprintf("10.0.1.%d:80", i))
		tracker.ObserveSample(s)
	}
	st := tracker.State(now, nil).Pools["big"]
	if got := outliers(st, fleet.SignalWaiting); !slices.Equal(got, []fleet.EngineID{"10.0.1.3:80"}) {
		t.Errorf("outliers %v, want the engine with a queue: %+v", got, st.Signals.Deviations)
	}
	if got := outliers(st, fleet.SignalRunning); got != nil {
		t.Errorf("outliers %v of engines that all run three", got)
	}
	s := page(now, 12, 1)
	s.Engine, s.Err, s.Values = "10.0.1.3:80", errRefused, s.Values.Stale()
	tracker.ObserveSample(s)
	if all := tracker.State(now, nil).Pools["big"].Signals.Deviations["10.0.1.3:80"]; len(all) != 0 {
		t.Errorf("an engine whose page cannot be had: %+v, want nothing", all)
	}
}

package signals

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Unix(1_000_000, 0)

// poisson draws a count of mean arrivals, by the times between them.
func poisson(rng *rand.Rand, mean float64) float64 {
	n := -1.0
	for t := 0.0; t < mean; n++ {
		t += rng.ExpFloat64()
	}
	return max(n, 0)
}

// simulated draws reports of a Poisson stream whose rate may change.
type simulated struct {
	rng    *rand.Rand
	window *window
	now    time.Time
}

func simulate(seed uint64, windows int) []*simulated {
	var out []*simulated
	for i := range windows {
		out = append(out, &simulated{rand.New(rand.NewPCG(seed, uint64(i))), &window{}, epoch})
	}
	return out
}

func (s *simulated) report(span time.Duration, rps float64) {
	s.now = s.now.Add(span)
	s.window.add(sample{s.now, span, poisson(s.rng, rps*span.Seconds())})
}

func windowsOf(clients []*simulated) []*window {
	var ws []*window
	for _, c := range clients {
		ws = append(ws, c.window)
	}
	return ws
}

// tick lets every client report for two seconds and estimates, as a round of the
// loop does.
func tick(clients []*simulated, rps float64) float64 {
	for _, c := range clients {
		c.report(time.Second, rps/float64(len(clients)))
		c.report(time.Second, rps/float64(len(clients)))
	}
	return level(windowsOf(clients))
}

func TestLevelOfSteadyTrafficIsWithinNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rps := rapid.Float64Range(0.1, 500).Draw(t, "rps")
		clients := simulate(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 5).Draw(t, "clients"))
		spans := rapid.SliceOfN(rapid.IntRange(200, 3000), 1, 20).Draw(t, "intervals, ms")
		for range 20 {
			for _, c := range clients {
				for _, ms := range spans {
					c.report(time.Duration(ms)*time.Millisecond, rps/float64(len(clients)))
				}
			}
		}
		got := level(windowsOf(clients))
		// The worst that a false alarm leaves is the noise of the fast window, of
		// which the last report may be a short one.
		seconds := 0.0
		for _, s := range *clients[0].window {
			if s.end.After(clients[0].now.Add(-fastWindow)) {
				seconds += s.span.Seconds()
			}
		}
		bound := 6*math.Sqrt(rps/seconds) + 6*float64(len(clients))/seconds
		if math.Abs(got-rps) > bound {
			t.Fatalf("level %.3g RPS, want %.3g ± %.3g", got, rps, bound)
		}
	})
}

func TestLevelOfEvenTrafficIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rps := float64(rapid.IntRange(0, 1000).Draw(t, "rps"))
		spans := rapid.SliceOfN(rapid.IntRange(1, 9000), 1, 100).Draw(t, "intervals, ms")
		w, now := &window{}, epoch
		for _, ms := range spans {
			span := time.Duration(ms) * time.Millisecond
			now = now.Add(span)
			w.add(sample{now, span, rps * span.Seconds()})
		}
		if got := level([]*window{w}); math.Abs(got-rps) > 1e-9*max(1, rps) {
			t.Fatalf("level %v RPS of uneven intervals, want %v", got, rps)
		}
		if len(*w) > maxSamples {
			t.Fatalf("window holds %d samples, want at most %d", len(*w), maxSamples)
		}
	})
}

// TestJumpIsFollowedWithinTwoTicks jumps at every phase of the reporting interval
// by judging two ticks after a jump that happened up to a tick earlier.
func TestJumpIsFollowedWithinTwoTicks(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to float64
		clients  int
	}{
		{"doubling", 90, 180, 1},
		{"doubling over many clients", 90, 180, 12},
		{"halving", 180, 90, 1},
		{"end of traffic", 50, 0, 3},
		{"start of traffic", 0, 50, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			const runs = 200
			var sum, squares float64
			for seed := range uint64(runs) {
				clients := simulate(seed, c.clients)
				for range 20 {
					tick(clients, c.from)
				}
				tick(clients, c.to)
				got := tick(clients, c.to)
				sum += got
				squares += (got - c.to) * (got - c.to)
			}
			// Unbiased, and no noisier than 1.5 × the fast window.
			if mean := sum / runs; math.Abs(mean-c.to) > 0.03*math.Abs(c.to-c.from) {
				t.Errorf("mean %.1f RPS two ticks after %v → %v", mean, c.from, c.to)
			}
			if rms, most := math.Sqrt(squares/runs), 1.5*math.Sqrt(c.to/2); rms > most {
				t.Errorf("error %.2f RPS (rms) two ticks after %v → %v, want at most %.2f", rms, c.from, c.to, most)
			}
		})
	}
}

func TestJumpInsideAFastWindowIsFollowed(t *testing.T) {
	const runs = 200
	missed := 0
	for seed := range uint64(runs) {
		clients := simulate(seed, 2)
		for range 10 {
			tick(clients, 100)
		}
		for _, c := range clients { // half a tick before, half after the jump
			c.report(time.Second, 50)
			c.report(time.Second, 100)
		}
		level(windowsOf(clients))
		if got := tick(clients, 200); got < 160 {
			missed++
		}
	}
	if missed > runs/100 {
		t.Errorf("%d of %d jumps were not followed by the next tick", missed, runs)
	}
}

func TestSteadyNoiseDoesNotShakeTheLevel(t *testing.T) {
	for _, rps := range []float64{2, 20, 200} {
		for _, clients := range []int{1, 12} {
			const ticks = 3000
			var sum, squares float64
			alarms := 0
			cs := simulate(uint64(rps), clients)
			for range 10 {
				tick(cs, rps)
			}
			for range ticks {
				got := tick(cs, rps)
				sum += got
				squares += got * got
				if len(*cs[0].window) <= 2 {
					alarms++
				}
			}
			mean := sum / ticks
			cv := math.Sqrt(squares/ticks-mean*mean) / mean
			// The slow window alone gives 1/√(10 r); false alarms add to it.
			if most := 1.3 / math.Sqrt(slowWindow.Seconds()*rps); cv > most {
				t.Errorf("%v RPS, %d clients: coefficient of variation %.4f, want at most %.4f", rps, clients, cv, most)
			}
			if z := math.Abs(mean-rps) / math.Sqrt(rps/(2*ticks)); z > 4 {
				t.Errorf("%v RPS, %d clients: mean %.3f RPS is biased, z = %.1f", rps, clients, mean, z)
			}
			if alarms > ticks/100 {
				t.Errorf("%v RPS, %d clients: %d false alarms in %d ticks", rps, clients, alarms, ticks)
			}
		}
	}
}

func TestLevelIsStableUntilTheNextReport(t *testing.T) {
	clients := simulate(7, 3)
	for range 10 {
		tick(clients, 40)
	}
	first := tick(clients, 400)
	if again := level(windowsOf(clients)); again != first {
		t.Errorf("level asked twice: %v, then %v", first, again)
	}
}

func TestWindowForgetsAfterSilence(t *testing.T) {
	w := &window{}
	w.add(sample{epoch, time.Second, 1000})
	w.add(sample{epoch.Add(time.Minute), time.Second, 10})
	if got := level([]*window{w}); got != 10 {
		t.Errorf("level %v RPS a minute later, want 10", got)
	}
}

// A rate measured for two seconds is too high by more than its doubt no more often
// than its noise says, and one measured for a full window is not doubted at all.
func TestDoubtFadesAsWindowsFill(t *testing.T) {
	const rps, trials = 50, 4000
	over := 0
	for seed := range uint64(trials) {
		clients := simulate(seed, 2)
		estimate := tick(clients, rps)
		// The doubt leaves out the noise of a full window, which the estimate has.
		full := doubtSigmas * math.Sqrt(rps/slowWindow.Seconds())
		if estimate-doubt(windowsOf(clients))-full > rps {
			over++
		}
	}
	// P(Z > 2) = 2.3 %; what the estimate of the doubt adds stays below 3.5 %.
	if p := float64(over) / trials; p < 0.01 || p > 0.035 {
		t.Errorf("the doubt was too small in %.1f %% of the trials, want about 2.3 %%", 100*p)
	}
	clients := simulate(1, 3)
	before := math.Inf(1)
	for range 6 {
		tick(clients, rps)
		now := doubt(windowsOf(clients))
		if now > before {
			t.Errorf("doubt rose from %v to %v while the window filled", before, now)
		}
		before = now
	}
	if before > 1e-9 {
		t.Errorf("a full window leaves a doubt of %v RPS, want none", before)
	}
}

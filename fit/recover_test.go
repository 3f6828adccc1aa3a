package fit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"weir/fleet"
)

// A truth is an engine whose profile is known.
type truth struct {
	capacityRps float64
	ttft, tbt   fleet.Curve // against utilisation
}

// someTruth draws an engine: TTFT is four times the unloaded one at the capacity,
// which it comes to by bends or along 1/(1 − load).
func someTruth(random *rand.Rand) truth {
	t := truth{capacityRps: math.Exp(random.Float64()*6 - 1)}
	unloaded := 0.02 * math.Exp(random.Float64()*4)
	if random.IntN(2) == 0 {
		t.ttft = bent(random, unloaded, DefaultTargetMultiple*unloaded)
	} else {
		t.ttft = queued(unloaded, 0.8+0.15*random.Float64())
	}
	decode := 0.005 * math.Exp(random.Float64()*2)
	t.tbt = bent(random, decode, decode*(1.2+2*random.Float64()))
	return t
}

// bent is a convex curve with two to four bends from low at no load to high at 1.
func bent(random *rand.Rand, low, high float64) fleet.Curve {
	loads := []float64{0}
	for range 2 + random.IntN(3) {
		loads = append(loads, 0.2+0.7*random.Float64())
	}
	loads = append(loads, 1, 1.3)
	slices.Sort(loads)
	slope := 0.1 + 0.3*random.Float64()
	c := fleet.Curve{{Seconds: 0}}
	for i := 1; i < len(loads); i++ {
		c = append(c, fleet.CurvePoint{Utilisation: loads[i], Seconds: c[i-1].Seconds + slope*(loads[i]-loads[i-1])})
		slope *= 1 + 2*random.Float64()
	}
	scale := (high - low) / c.At(1)
	for i := range c {
		c[i].Seconds = low + scale*c[i].Seconds
	}
	return c
}

// queued is TTFT at a server that saturates a little above its capacity.
func queued(unloaded, share float64) fleet.Curve {
	rise := (DefaultTargetMultiple - 1) * (1 - share) / share
	var c fleet.Curve
	for u := 0.0; u < 1.04; u += 0.005 {
		c = append(c, fleet.CurvePoint{Utilisation: u, Seconds: unloaded * (1 + rise*share*u/(1-share*u))})
	}
	return c
}

// campaign is what benchmarks of that engine show: sixteen loads, more of them
// where TTFT rises, so many runs each.
func (t truth) campaign(random *rand.Rand, runs int) []Measurement {
	var ms []Measurement
	for _, u := range []float64{0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.58, 0.66, 0.72, 0.78, 0.84, 0.88, 0.92, 0.96, 1, 1.04} {
		u *= 0.99 + 0.02*random.Float64()
		for range runs {
			ms = append(ms, t.run(random, u))
		}
	}
	return ms
}

// run is one: its requests' TTFTs scatter by half of their mean, and runs by 1 %
// more than chance.
func (t truth) run(random *rand.Rand, u float64) Measurement {
	n := math.Round(500 * math.Exp(random.Float64()*2))
	off := func(perRequest float64) float64 {
		return 1 + random.NormFloat64()*math.Sqrt(0.01*0.01+perRequest*perRequest/n)
	}
	return Measurement{
		OfferedRps: u * t.capacityRps, TTFTSeconds: t.ttft.At(u) * off(0.5), TBTSeconds: t.tbt.At(u) * off(0.1),
		Tokens: fleet.Tokens{Prompt: 1000, Output: 200}, Requests: n,
	}
}

// worst is how far the fitted curve is from the true one at most, relative, up to
// 90 % of the true capacity.
func (t truth) worst(r *Result, fitted, known fleet.Curve) float64 {
	worst := 0.0
	for u := 0.0; u <= 0.9; u += 0.01 {
		worst = max(worst, math.Abs(fitted.At(u*t.capacityRps/r.Profile.CapacityRps)/known.At(u)-1))
	}
	return worst
}

// TestRecover fits many engines whose profiles are known, one run of each met a
// cold engine. Errors are relative; a curve's is its largest up to 90 % load, at a
// sharp bend between two loads as a rule.
func TestRecover(t *testing.T) {
	const engines = 60
	random := rand.New(rand.NewPCG(1, 2))
	var capacity, ttft, tbt []float64
	covered := 0
	for range engines {
		known := someTruth(random)
		ms := known.campaign(random, 3)
		ms[random.IntN(len(ms)/2)].TTFTSeconds *= 3
		random.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		r, err := Fit(ms, Options{Resamples: 10})
		if err != nil {
			t.Fatal(err)
		}
		capacity = append(capacity, math.Abs(r.Profile.CapacityRps/known.capacityRps-1))
		ttft = append(ttft, known.worst(r, r.Profile.TTFT, known.ttft))
		tbt = append(tbt, known.worst(r, r.Profile.TBT, known.tbt))
		if r.CapacityRps.Low <= known.capacityRps && known.capacityRps <= r.CapacityRps.High {
			covered++
		}
	}
	for _, e := range []struct {
		name      string
		errors    []float64
		most      float64 // of 95 % of the engines
		mostOfAll float64
	}{{"capacity", capacity, 0.03, 0.05}, {"TTFT", ttft, 0.05, 0.1}, {"TBT", tbt, 0.05, 0.1}} {
		slices.Sort(e.errors)
		at := func(share float64) float64 { return e.errors[int(share*(engines-1))] }
		t.Logf("%s: median %.1f %%, 95 %% of engines within %.1f %%, all within %.1f %%", e.name, 100*at(0.5), 100*at(0.95), 100*at(1))
		if at(0.95) > e.most || at(1) > e.mostOfAll {
			t.Errorf("%s: 95 %% of the engines are within %.3f, want %.3f; all within %.3f, want %.3f", e.name, at(0.95), e.most, at(1), e.mostOfAll)
		}
	}
	// 90 % is promised; of 60 draws three standard deviations are 7.
	if t.Logf("capacity in its interval: %d of %d", covered, engines); covered < engines*9/10-7 {
		t.Errorf("the capacity lies in its interval for %d of %d engines, want about nine in ten", covered, engines)
	}
}

package fit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/fleet"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// profile is the truth as a fleet file says it.
func (t truth) profile() *fleet.Profile {
	return &fleet.Profile{CapacityRps: t.capacityRps, Reference: fleet.Tokens{Prompt: 1000, Output: 200}, OutputTokenCost: 4, TTFT: t.ttft, TBT: t.tbt}
}

// traffic is what a pool of such engines shows in a minute at a load: first tokens
// scatter by 0.8 of their mean, and minutes by 4 % more than chance, one like the
// one before it by half.
type traffic struct {
	truth
	random  *rand.Rand
	engines float64
	luck    float64
	at      time.Time
}

func newTraffic(t truth, seed uint64) *traffic {
	return &traffic{truth: t, random: rand.New(rand.NewPCG(seed, 1)), engines: 4, at: noon}
}

func (g *traffic) minute(u float64) fleet.Span {
	const seconds, scatter, wander = 60, 0.8, 0.04
	mean := u * g.capacityRps * g.engines * seconds
	n := max(20, math.Round(mean+math.Sqrt(mean)*g.random.NormFloat64()))
	u = n / (g.capacityRps * g.engines * seconds)
	g.luck = 0.5*g.luck + math.Sqrt(0.75)*wander*g.random.NormFloat64()
	chance := scatter / math.Sqrt(n)
	ttft := g.ttft.At(u) * math.Exp(g.luck+chance*g.random.NormFloat64())
	tbt := g.tbt.At(u) * math.Exp(g.luck/2+0.1/math.Sqrt(n)*g.random.NormFloat64())
	from := g.at
	g.at = g.at.Add(seconds * time.Second)
	return fleet.Span{
		From: from, To: g.at, EngineSeconds: g.engines * seconds, Issued: n, Ended: n, Tokens: fleet.Tokens{Prompt: 1000, Output: 200},
		TTFT: fleet.Timing{Items: n, Seconds: ttft, StdErr: fleet.StdErr{Value: ttft * chance, Known: true}},
		TBT:  fleet.Timing{Items: n, Seconds: tbt, StdErr: fleet.StdErr{Value: tbt * 0.1 / math.Sqrt(n), Known: true}},
	}
}

// day is the load at a minute of a day that goes from a fifth of the capacity to most.
func day(minute int) float64 { return 0.55 - 0.35*math.Cos(2*math.Pi*float64(minute)/1440) }

// slower is an engine that takes longer for all that it does, and so has less
// capacity: its TTFT at any work is that much longer.
func (t truth) slower(by float64) truth {
	scaled := func(c fleet.Curve) fleet.Curve {
		c = slices.Clone(c)
		for i := range c {
			c[i].Seconds *= by
		}
		return c
	}
	t.ttft, t.tbt = scaled(t.ttft), scaled(t.tbt)
	return t
}

func someEngine(seed uint64) truth {
	known := someTruth(rand.New(rand.NewPCG(seed, 7)))
	known.capacityRps = max(known.capacityRps, 1)
	return known
}

// TestNoFalseAlarms lets pools whose profiles are true, and such whose profiles are
// 5 % off, have days of traffic, and asks each minute.
func TestNoFalseAlarms(t *testing.T) {
	const pools = 20
	for _, off := range []float64{1, 1.05, 0.95} {
		asked, alarms := 0, 0
		for seed := range uint64(pools) {
			known := someEngine(seed)
			g := newTraffic(known.slower(off), seed)
			var h []fleet.Span
			named := false
			for m := range 1440 {
				h = append(h, g.minute(day(m)))
				h = h[max(0, len(h)-windowSpans):]
				c := Compare(known.profile(), h, g.at, time.Minute)
				asked++
				if len(c.Drifts) > 0 && !named {
					alarms++
				}
				named = len(c.Drifts) > 0
			}
		}
		t.Logf("profiles that are off by %.2f: %d alarms in %d days of pools, asked %d times", off, alarms, pools, asked)
		if alarms > 0 {
			t.Errorf("%d alarms, want none", alarms)
		}
	}
}

// TestDriftIsFound lets engines become slower by a fifth at some time of the day, and
// measures how long it takes until that is named, and by how much it is off.
func TestDriftIsFound(t *testing.T) {
	const pools = 60
	for _, by := range []float64{1.2, 1 / 1.2, 1.5} {
		var minutes, ratios, sinces []float64
		for seed := range uint64(pools) {
			known := someEngine(seed)
			random := rand.New(rand.NewPCG(seed, 2))
			begin := random.IntN(1200)
			g := newTraffic(known, seed)
			var h []fleet.Span
			for m := begin; m < begin+240; m++ {
				if m == begin+120 {
					g.truth = known.slower(by)
				}
				h = append(h, g.minute(day(m)))
				c := Compare(known.profile(), h, g.at, time.Minute)
				if len(c.Drifts) == 0 {
					continue
				}
				if m < begin+120 {
					t.Errorf("pool %d: %v is named before there is one", seed, c.Drifts)
				}
				minutes = append(minutes, float64(m-begin-119))
				for _, d := range c.Drifts {
					ratios = append(ratios, d.Ratio/by)
					sinces = append(sinces, math.Abs(d.Since.Sub(noon.Add(120*time.Minute)).Minutes()))
				}
				break
			}
		}
		for _, of := range [][]float64{minutes, ratios, sinces} {
			slices.Sort(of)
		}
		at := func(of []float64, part float64) float64 { return of[int(part*float64(len(of)-1))] }
		t.Logf("%.2f times: found in %d of %d; after %v minutes (median), %v (9 of 10), %v (all); named / true %.2f to %.2f; begin off by %v minutes (median), %v (9 of 10)", by,
			len(minutes), pools, at(minutes, 0.5), at(minutes, 0.9), at(minutes, 1), at(ratios, 0.05), at(ratios, 0.95), at(sinces, 0.5), at(sinces, 0.9))
		if len(minutes) < pools || at(minutes, 0.9) > 40 {
			t.Errorf("found in %d of %d, nine of ten within %v minutes; want all, within 40", len(minutes), pools, at(minutes, 0.9))
		}
	}
}

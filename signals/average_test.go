package signals

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/fleet"
)

// trial is one life of an average: what it said in the end, of what is truly mean.
type trial func(rng *rand.Rand) (said estimate, truth float64)

// timed draws a time of mean m that is spread as times to a first token are: by a
// factor of e^0.8 up or down.
func timed(rng *rand.Rand, m float64) float64 {
	const spread = 0.8
	return m * math.Exp(spread*rng.NormFloat64()-spread*spread/2)
}

// seconds feeds an average for some seconds, by what each adds, and asks it halfway
// between two reports.
func seconds(n int, tau time.Duration, each func(add func(n, sum float64))) estimate {
	var a average
	now := epoch
	for range n {
		now = now.Add(time.Second)
		each(func(n, sum float64) { a.add(now, tau, n, sum) })
	}
	return a.read(now.Add(500*time.Millisecond), tau)
}

// trials are the ways in which the tracker's averages are fed.
var trials = map[string]trial{
	"requests that are independent": func(rng *rand.Rand) (estimate, float64) {
		return seconds(40, 8*time.Second, func(add func(n, sum float64)) {
			n, sum := poisson(rng, 5), 0.0
			for range int(n) {
				sum += timed(rng, 0.3)
			}
			add(n, sum)
		}), 0.3
	},
	"requests that share the load of their second": func(rng *rand.Rand) (estimate, float64) {
		return seconds(40, 8*time.Second, func(add func(n, sum float64)) {
			load, sum := timed(rng, 0.3), 0.0
			for range 20 {
				sum += load * (1 + 0.2*rng.NormFloat64())
			}
			add(20, sum)
		}), 0.3
	},
	"engines that differ lastingly": func(rng *rand.Rand) (estimate, float64) {
		return seconds(40, 8*time.Second, func(add func(n, sum float64)) {
			for engine := range 4 {
				sum := 0.0
				for range 10 {
					sum += timed(rng, 0.1+0.2*float64(engine))
				}
				add(10, sum)
			}
		}), 0.4
	},
	"the first seconds": func(rng *rand.Rand) (estimate, float64) {
		return seconds(4, 8*time.Second, func(add func(n, sum float64)) {
			sum := 0.0
			for range 30 {
				sum += 0.3 + 0.1*rng.NormFloat64()
			}
			add(30, sum)
		}), 0.3
	},
	"round trips, one each few seconds": func(rng *rand.Rand) (estimate, float64) {
		var a average
		now := epoch
		for range 30 {
			now = now.Add(time.Duration((5 + 5*rng.Float64()) * float64(time.Second)))
			a.add(now, roundTripTau, 1, 0.04+0.003*rng.NormFloat64())
		}
		return a.read(now, roundTripTau), 0.04
	},
}

// The stated standard error is that by which means really miss the truth: over many
// lives Σ miss² / Σ stated² is 1, within what so many lives can tell.
func TestStandardErrorsAreTrue(t *testing.T) {
	for name, life := range trials {
		t.Run(name, func(t *testing.T) {
			const lives = 2000
			var all calibration
			for seed := range uint64(lives) {
				said, truth := life(rand.New(rand.NewPCG(seed, 1)))
				all.add(said.mean-truth, said.stdErr)
			}
			all.check(t, 1)
		})
	}
}

// calibration holds stated standard errors against real misses.
type calibration struct {
	misses, stated    float64 // sums of squares
	fourth            float64 // sums of fourth powers, for the noise of the squares
	lives, within     int
	unknown, negative int
}

func (c *calibration) add(miss float64, said fleet.StdErr) {
	c.lives++
	switch {
	case !said.Known:
		c.unknown++
	case !(said.Value >= 0): // NaN, too
		c.negative++
	}
	m, s := miss*miss, said.Value*said.Value
	c.misses += m
	c.stated += s
	c.fourth += (m - s) * (m - s)
	if math.Abs(miss) <= 2*said.Value {
		c.within++
	}
}

// check wants Σ miss² / Σ stated² to be so much.
func (c *calibration) check(t *testing.T, want float64) {
	t.Helper()
	if c.unknown > 0 || c.negative > 0 {
		t.Errorf("of %d standard errors %d are unknown and %d are no number", c.lives, c.unknown, c.negative)
	}
	z := (c.misses - want*c.stated) / math.Sqrt(c.fourth)
	t.Logf("miss² / stated² = %.3f, z = %.1f; %.1f %% within 2 standard errors", c.misses/c.stated, z, 100*float64(c.within)/float64(c.lives))
	if math.Abs(z) > 4 {
		t.Errorf("miss² / stated² = %.3f over %d lives, want %v: z = %.1f", c.misses/c.stated, c.lives, want, z)
	}
	// Student's t with three degrees of freedom, the fewest of these, is within 2 in
	// 86 %; none is within more often than a normal one.
	if part := float64(c.within) / float64(c.lives); part < 0.84 || part > 0.97 {
		t.Errorf("%.1f %% of the means are within 2 standard errors of the truth", 100*part)
	}
}

// An average is what its definition says, worked out from all batches at once.
func TestAverageIsWhatItIsDefinedToBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a average
		var batches []batch
		now := epoch
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			now = now.Add(time.Duration(rapid.IntRange(1000, 20_000).Draw(t, "ms")) * time.Millisecond)
			n := float64(rapid.IntRange(1, 1000).Draw(t, "items"))
			b := batch{to: now, n: n, sum: n * rapid.Float64Range(0.001, 100).Draw(t, "mean")}
			batches = append(batches, b)
			a.add(now, roundTripTau, b.n, b.sum)
		}
		asked := now.Add(time.Minute)
		got, want := a.read(asked, roundTripTau), defined(batches, asked, roundTripTau)
		if !near(got.mean, want.mean, 1e-9) || !near(got.items, want.items, 1e-9) || !got.at.Equal(now) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		if got.stdErr.Known != want.stdErr.Known || math.Abs(got.stdErr.Value-want.stdErr.Value) > 1e-9*want.mean {
			t.Fatalf("standard error %+v, want %+v", got.stdErr, want.stdErr)
		}
	})
}

func defined(batches []batch, asked time.Time, tau time.Duration) estimate {
	last := batches[len(batches)-1].to
	var items, sum, squares, lambdas, about float64
	each := func(do func(lambda float64, b batch)) {
		for _, b := range batches {
			do(math.Exp(-last.Sub(b.to).Seconds()/tau.Seconds()), b)
		}
	}
	each(func(l float64, b batch) {
		items, sum, squares, lambdas = items+l*b.n, sum+l*b.sum, squares+l*l*b.n, lambdas+l
	})
	mean := sum / items
	each(func(l float64, b batch) { about += l * b.n * math.Pow(b.sum/b.n-mean, 2) })
	e := estimate{mean: mean, items: items * math.Exp(-asked.Sub(last).Seconds()/tau.Seconds())}
	if freedom := lambdas - squares/items; freedom >= minFreedom {
		e.stdErr = fleet.StdErr{Value: math.Sqrt(about/freedom*squares) / items, Known: true}
	}
	return e
}

// Unknown is not zero: of a few items the error is unknown, of many that are alike it
// is known and nothing.
func TestUnknownErrorsAreNotZero(t *testing.T) {
	if e := (&average{}).read(epoch, time.Second); e != (estimate{}) || e.reading(0).Known() {
		t.Errorf("of nothing: %+v", e)
	}
	for n, want := range map[int]fleet.StdErr{1: {}, 2: {}, 20: {Known: true}} {
		e := seconds(n, 8*time.Second, func(add func(n, sum float64)) { add(3, 3*0.25) })
		if e.stdErr != want || e.mean != 0.25 {
			t.Errorf("%d seconds of equal items: mean %v, standard error %+v, want 0.25 and %+v", n, e.mean, e.stdErr, want)
		}
	}
}

// Silence ages a mean, and takes its items away, but not what is known of its error.
func TestSilenceKeepsTheError(t *testing.T) {
	var a average
	rng := rand.New(rand.NewPCG(1, 2))
	now := epoch
	for range 20 {
		now = now.Add(time.Second)
		a.add(now, time.Second, 4, 4*timed(rng, 1))
	}
	before, after := a.read(now, time.Second), a.read(now.Add(3*time.Second), time.Second)
	if after.mean != before.mean || after.stdErr != before.stdErr || !near(after.items, before.items*math.Exp(-3), 1e-9) {
		t.Errorf("after silence %+v, before %+v", after, before)
	}
	if r := a.read(now.Add(time.Hour), time.Second).reading(1); r != (fleet.Reading{}) {
		t.Errorf("an hour later %+v, want it unknown", r)
	}
}

// Whatever comes, an average says numbers, and asking changes nothing.
func TestAveragesAreNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a average
		now := epoch
		any := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 10), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)))
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.OneOf(rapid.Int64Range(-1e9, 3e9), rapid.Just(int64(1e15))).Draw(t, "ns")))
			a.add(now, 8*time.Second, any.Draw(t, "n"), any.Draw(t, "sum"))
			e := a.read(now, 8*time.Second)
			for _, x := range []float64{e.mean, e.items, e.stdErr.Value} {
				if !(x >= 0 && x <= math.MaxFloat64) {
					t.Fatalf("no number: %+v", e)
				}
			}
			if again := a.read(now, 8*time.Second); again != e {
				t.Fatalf("asked twice: %+v, then %+v", e, again)
			}
		}
	})
}

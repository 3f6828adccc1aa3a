// Package fit makes a profile of what benchmarks measured: from runs at several
// loads it finds one engine's capacity and how TTFT and TBT rise with load.
//
// A profile is a promise that plans are made of, so the package rather refuses
// than guesses: too few loads, loads that say nothing of the capacity, and runs of
// unlike requests are errors that say what to measure instead.
//
// [Fit] takes measurements, wherever they come from; [Read] makes them of the
// files that benchmark tools write. Everything here is pure: the same measurements
// in any order give the same result, to the last bit.
package fit

import (
	"math"

	"weir/fleet"
)

// Measurement is what one run of a benchmark showed at one load. Zero stands for
// what is not known, save in Failed.
type Measurement struct {
	Source          string       // where it was read, for people
	OfferedRps      float64      // requests sent per second; +Inf: all at once; not known where a number of clients wait for answers
	AchievedRps     float64      // requests completed per second
	Concurrency     float64      // requests under way, as set or as measured
	TTFTSeconds     float64      // mean over the run's requests, or their median
	TBTSeconds      float64      // mean time between tokens after the first
	Tokens          fleet.Tokens // of the mean request
	Requests        float64      // completed
	Failed          float64      // requests
	DurationSeconds float64
}

// Options say how to fit. The zero value takes every default.
type Options struct {
	TargetSeconds   float64      // TTFT that capacity keeps to; 0: DefaultTargetMultiple of the unloaded TTFT
	Engines         int          // how many engines served the benchmark; 0: one
	Tokens          fleet.Tokens // of requests where measurements do not tell
	CacheStated     bool         // what was cached is known of all measurements, be it nothing
	OutputTokenCost float64      // work of an output token in prompt tokens; 0: the fleet file's default
	MaxPoints       int          // of a curve; 0: DefaultMaxPoints
	Seed            uint64       // of the resampling that confidence comes from
	Resamples       int          // what confidence comes from; 0: DefaultResamples, below 0: none
}

// Defaults of the options.
const (
	// DefaultTargetMultiple times the unloaded TTFT is what people still take for
	// prompt. Below it most of the wait is the request's own prefill, above it most
	// is the queue; and queues grow so steeply there that twice the multiple is
	// hardly more capacity.
	DefaultTargetMultiple = 4
	DefaultResamples      = 100
	DefaultMaxPoints      = 10 // a pool's row in the plan has a segment for each
	// DefaultOutputTokenCost is the fleet file's: prefill computes many tokens at
	// once, decode one at a time.
	DefaultOutputTokenCost = 4
)

// Result is a profile and how far it can be trusted.
type Result struct {
	Profile         fleet.Profile
	UnloadedSeconds float64   // TTFT at no load
	TargetSeconds   float64   // TTFT that capacity keeps to
	Bound           Bound     // what capacity was found by
	SaturationRps   float64   // where throughput rises no more, of one engine; 0: not reached
	CapacityRps     Interval  // 90 % confidence
	TTFT, TBT       []Fitted  // the profile's points, with confidence
	TTFTResidual    float64   // root mean square over the levels, relative
	TBTResidual     float64   // the same
	Points          []Point   // every distinct measurement, by rising load
	Notes           []string  // what a reader should know before using it
	levels          []level   // what was fitted
	ttft            convexFit // against load in RPS
}

// Interval is where a value lies with a confidence of 90 %.
type Interval struct{ Low, High float64 }

// Fitted is a point of a curve and where it may lie as well.
type Fitted struct {
	fleet.CurvePoint
	Seconds90 Interval
}

// Bound says what told the capacity.
type Bound string

// What tells a capacity.
const (
	ByTarget        Bound = "target"        // TTFT crosses its target between two loads, or before saturation
	BySaturation    Bound = "saturation"    // throughput rises no more, TTFT is still below its target
	ByExtrapolation Bound = "extrapolation" // the last piece of the curve crosses the target a little further on
)

// Fate is what became of a measurement.
type Fate string

// What becomes of measurements.
const (
	Used       Fate = "used"
	Overloaded Fate = "overloaded" // tells how much is served at most; its TTFT is that of a queue that grows
	Failing    Fate = "failing"    // many requests failed: what is left says little
	Outlier    Fate = "outlier"    // beside all others; a cold start, as a rule
	Burst      Fate = "burst"      // all at once, and no more than the engine takes at once: that is no load
)

// Point is a measurement as it was taken.
type Point struct {
	Measurement
	LoadRps      float64 // of one engine, in reference requests
	Fate         Fate
	TTFTResidual float64 // relative to the curve; 0 where not used
	TBTResidual  float64
}

// Fit makes a profile of measurements. Their order does not matter, and one that
// is there twice counts once. The error says what to measure instead.
func Fit(measurements []Measurement, o Options) (*Result, error) {
	o = o.withDefaults()
	points, reference, err := prepare(measurements, o)
	if err != nil {
		return nil, err
	}
	r := &Result{Points: points}
	r.Profile.Reference, r.Profile.OutputTokenCost = reference, o.OutputTokenCost
	r.Profile.CacheStated = stated(&reference, &o)
	r.SaturationRps = saturation(points)
	if err := r.fitTTFT(o); err != nil {
		return nil, err
	}
	if err := r.judge(o); err != nil {
		return nil, err
	}
	r.shape(o)
	r.resample(o)
	r.residuals()
	r.notes()
	return r, nil
}

func (o Options) withDefaults() Options {
	if o.Engines == 0 {
		o.Engines = 1
	}
	if o.OutputTokenCost == 0 {
		o.OutputTokenCost = DefaultOutputTokenCost
	}
	if o.Resamples == 0 {
		o.Resamples = DefaultResamples
	}
	if o.MaxPoints == 0 {
		o.MaxPoints = DefaultMaxPoints
	}
	o.MaxPoints = max(o.MaxPoints, 3)
	return o
}

// fitTTFT lays the curve through the levels. A level far beside it is left out
// and the rest fitted anew: a cold start makes one run slow, not the engine.
func (r *Result) fitTTFT(o Options) error {
	for {
		r.levels = levelsOf(r.Points)
		if err := enoughLoads(r.levels, r.Points); err != nil {
			return err
		}
		r.ttft = fitConvex(curveOf(r.levels, ttftOf), maxKnots(o))
		worst := r.ttft.outlier()
		if worst < 0 || len(r.levels) <= minLoads {
			return nil
		}
		for _, i := range r.levels[worst].points {
			r.Points[i].Fate = Outlier
		}
	}
}

// maxKnots leaves room for the points at no load, at the capacity and at the end.
func maxKnots(o Options) int { return max(1, o.MaxPoints-3) }

// judge finds the capacity, or says why it cannot be told.
func (r *Result) judge(o Options) error {
	r.UnloadedSeconds = r.ttft.at(0)
	r.TargetSeconds = targetOf(r.UnloadedSeconds, o)
	if r.TargetSeconds <= r.UnloadedSeconds {
		return tooTight(r.TargetSeconds, r.UnloadedSeconds)
	}
	first, last := r.levels[0].load, r.levels[len(r.levels)-1].load
	capacity, bound := capacityOf(r.ttft, r.TargetSeconds, last, r.SaturationRps)
	r.Profile.CapacityRps, r.Bound = capacity, bound
	switch {
	case bound == "":
		return notReached(r.TargetSeconds, last, r.ttft.at(last))
	case last-first < minRange*capacity:
		return tooNarrow(first, last, capacity)
	case capacity < leastCapacityRps:
		return tooSlow(capacity)
	}
	return nil
}

func targetOf(unloadedSeconds float64, o Options) float64 {
	if o.TargetSeconds > 0 {
		return o.TargetSeconds
	}
	return DefaultTargetMultiple * unloadedSeconds
}

// capacityOf is the load at which TTFT breaks its target or throughput rises no
// more, whichever comes first; no bound: neither is in sight.
func capacityOf(ttft convexFit, targetSeconds, lastRps, saturationRps float64) (rps float64, b Bound) {
	cross := ttft.reach(targetSeconds)
	switch {
	case cross <= lastRps:
		return cross, ByTarget
	case saturationRps > 0 && cross > saturationRps:
		return max(saturationRps, lastRps), BySaturation
	case saturationRps > 0:
		return cross, ByTarget
	case cross <= lastRps*maxExtrapolation:
		return cross, ByExtrapolation
	}
	return math.NaN(), ""
}

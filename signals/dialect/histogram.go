package dialect

import "math"

// Histogram is a distribution of seconds. The zero value is unknown.
type Histogram struct {
	Count, Sum Value
	Buckets    []Bucket // ascending; without them only the mean is known

	series uint64 // identifies the set of series that were merged
}

// Bucket counts the observations of at most so many seconds.
type Bucket struct {
	AtMost float64 // seconds; +Inf in the last one
	Count  float64
}

// Known says whether anything is known, be it that nothing was observed.
func (h Histogram) Known() bool { return h.Count.Known() }

func (h Histogram) empty() bool { return h.Known() && h.Count.X == 0 }

// Mean is the mean of the observations; without any it is unknown.
func (h Histogram) Mean() Value {
	if h.Count.State == Unknown || h.Sum.State == Unknown || h.Count.X == 0 {
		return Value{}
	}
	return Value{X: h.Sum.X / h.Count.X, State: min(h.Count.State, h.Sum.State)}
}

// Quantile estimates a quantile, 0 ≤ q ≤ 1, by interpolating within its bucket; of
// what lies above all bounds it says the highest bound. Without observations or
// buckets it is unknown.
func (h Histogram) Quantile(q float64) Value {
	n := len(h.Buckets)
	if h.Count.State == Unknown || n == 0 || h.Buckets[n-1].Count == 0 || !(q >= 0 && q <= 1) {
		return Value{}
	}
	rank := q * h.Buckets[n-1].Count
	low, below := 0.0, 0.0
	for _, b := range h.Buckets {
		switch {
		case b.Count < rank || b.Count == below:
		case math.IsInf(b.AtMost, 1):
			return h.estimate(low)
		default:
			return h.estimate(low + (b.AtMost-low)*max(0, rank-below)/(b.Count-below))
		}
		if !math.IsInf(b.AtMost, 1) {
			low, below = b.AtMost, max(below, b.Count)
		}
	}
	return h.estimate(low)
}

func (h Histogram) estimate(x float64) Value { return Value{X: x, State: h.Count.State} }

func (h Histogram) stale() Histogram {
	h.Count, h.Sum = h.Count.stale(), h.Sum.stale()
	return h
}

// since is what was observed after before. A histogram of which any count fell
// began anew, and observed all that it shows since.
func (h Histogram) since(before Histogram) (grown Histogram, reset bool) {
	if !h.Known() || !before.Known() || h.series != before.series {
		return Histogram{}, false
	}
	if h.fellFrom(before) {
		return h, true
	}
	grown = Histogram{Count: Is(h.Count.X - before.Count.X), Buckets: h.bucketsSince(before), series: h.series}
	if h.Sum.Known() && before.Sum.Known() {
		grown.Sum = Is(h.Sum.X - before.Sum.X)
	}
	return grown, false
}

func (h Histogram) fellFrom(before Histogram) bool {
	fell := h.Count.X < before.Count.X || h.Sum.Known() && before.Sum.Known() && h.Sum.X < before.Sum.X
	if len(h.Buckets) == len(before.Buckets) {
		for i, b := range h.Buckets {
			fell = fell || b.AtMost == before.Buckets[i].AtMost && b.Count < before.Buckets[i].Count
		}
	}
	return fell
}

// bucketsSince are the buckets' growth; none if their bounds changed.
func (h Histogram) bucketsSince(before Histogram) []Bucket {
	if len(h.Buckets) != len(before.Buckets) {
		return nil
	}
	grown := make([]Bucket, len(h.Buckets))
	highest := 0.0
	for i, b := range h.Buckets {
		if b.AtMost != before.Buckets[i].AtMost {
			return nil
		}
		// Pages are not written in one instant, so a bucket may seem to have
		// grown less than the one below it.
		highest = max(highest, b.Count-before.Buckets[i].Count)
		grown[i] = Bucket{b.AtMost, highest}
	}
	return grown
}

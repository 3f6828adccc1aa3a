package dialect

import (
	"math"
	"slices"
)

// found is what a page has for one slot.
type found struct {
	declared bool // the name was there
	cut      bool // the page ended within it
	points   []point
	tallies  []tally
}

// point is one series of a gauge or counter.
type point struct {
	identity
	x float64
}

// tally is one series of a histogram.
type tally struct {
	identity
	sum, count       float64
	hasSum, hasCount bool
	buckets          []Bucket // ascending
}

func (f *found) reset() {
	f.declared, f.cut, f.points, f.tallies = false, false, f.points[:0], f.tallies[:0]
}

// admit says whether a metric that has so many series may have one more.
func (r *Reader) admit(s *slot, already int) bool {
	if already >= maxSeries {
		r.drop(s, "it has too many series", nil)
		return false
	}
	r.series++
	return true
}

func (r *Reader) point(s *slot, f *found, id selection, x float64) {
	same := func(p point) bool { return p.series == id.series }
	if slices.ContainsFunc(f.points, same) {
		r.drop(s, "its series is there twice", nil)
	} else if r.admit(s, len(f.points)) {
		f.points = append(f.points, point{id.identity, x})
	}
}

// tally returns the series of a histogram's sample; nil: there is no room for it.
func (r *Reader) tally(s *slot, f *found, id selection) *tally {
	for i := len(f.tallies) - 1; i >= 0; i-- {
		if f.tallies[i].series == id.series {
			return &f.tallies[i]
		}
	}
	n := len(f.tallies)
	if !r.admit(s, n) {
		return nil
	}
	if n == cap(f.tallies) {
		f.tallies = append(f.tallies, tally{})
	}
	f.tallies = f.tallies[:n+1]
	t := &f.tallies[n]
	*t = tally{identity: id.identity, buckets: t.buckets[:0]}
	return t
}

func (r *Reader) total(s *slot, f *found, id selection, p part, x float64) {
	t := r.tally(s, f, id)
	if t == nil {
		return
	}
	to, has := &t.count, &t.hasCount
	if p == sum {
		to, has, x = &t.sum, &t.hasSum, x*s.Scale
	}
	if *has {
		r.drop(s, "its series is there twice", nil)
		return
	}
	*to, *has = x, true
}

func (r *Reader) bucket(s *slot, f *found, id selection, le []byte, x float64) {
	bound, ok := parseFloat(le)
	switch {
	case !ok || math.IsNaN(bound):
		r.drop(s, "a bucket without a bound", le)
		return
	case bound < 0: // of a time
		r.drop(s, "a bucket of less than nothing", le)
		return
	}
	t := r.tally(s, f, id)
	if t == nil {
		return
	}
	b := Bucket{bound * s.Scale, x}
	i, twice := len(t.buckets), false
	if i > 0 && t.buckets[i-1].AtMost >= b.AtMost {
		i, twice = slices.BinarySearchFunc(t.buckets, b.AtMost, func(b Bucket, at float64) int {
			return cmpFloat(b.AtMost, at)
		})
	}
	switch {
	case twice:
		r.drop(s, "its bucket is there twice", le)
	case r.buckets >= maxBuckets:
		r.drop(s, "the page has too many buckets", nil)
	default:
		r.buckets++
		t.buckets = slices.Insert(t.buckets, i, b)
	}
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// counted returns how many observations the series has, if it says so.
func (t *tally) counted() (n float64, ok bool) {
	last := len(t.buckets) - 1
	switch {
	case t.hasCount:
		return t.count, true
	case last >= 0 && math.IsInf(t.buckets[last].AtMost, 1):
		return t.buckets[last].Count, true
	}
	return 0, false
}

// usable says whether the slot has a value.
func (f *found) usable() bool {
	if f.cut {
		return false
	}
	return len(f.points) > 0 || slices.ContainsFunc(f.tallies, func(t tally) bool { _, ok := t.counted(); return ok })
}

// member is a series' part in the identity of a set of series.
func member(slot int, group uint64) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := (group ^ uint64(slot+1)) * odd
	return h ^ h>>29
}

// value puts the series of a gauge or counter together: of ranks in lockstep the
// highest, and of these the sum, or the highest.
func (f *found) value(slot int, highest bool) Value {
	v := Value{State: Known}
	for i, p := range f.points {
		if slices.IndexFunc(f.points, func(q point) bool { return q.group == p.group }) < i {
			continue // spoken for
		}
		x := p.x
		for _, q := range f.points[i+1:] {
			if q.group == p.group {
				x = max(x, q.x)
			}
		}
		v.series += member(slot, p.group)
		if highest {
			v.X = max(v.X, x)
		} else {
			v.X += x
		}
	}
	return v
}

// histogram merges the series that are whole; of ranks in lockstep the first.
func (f *found) histogram(slot int) Histogram {
	h := Histogram{Count: Is(0), Sum: Is(0)}
	merged := 0
	for i := range f.tallies {
		t := &f.tallies[i]
		n, ok := t.counted()
		if !ok || slices.IndexFunc(f.tallies, func(q tally) bool { return q.group == t.group }) < i {
			continue
		}
		h.Count.X += n
		h.Sum.X += t.sum
		if !t.hasSum {
			h.Sum.State = Unknown
		}
		h.mergeBuckets(t.buckets, merged == 0)
		h.series += member(slot, t.group)
		merged++
	}
	if h.Sum.State == Unknown {
		h.Sum.X = 0
	}
	return h
}

// mergeBuckets adds the buckets of a series. Series whose bounds differ leave the
// mean, but no buckets.
func (h *Histogram) mergeBuckets(more []Bucket, first bool) {
	if first {
		h.Buckets = slices.Clone(more)
		return
	}
	same := slices.EqualFunc(h.Buckets, more, func(a, b Bucket) bool { return a.AtMost == b.AtMost })
	if !same {
		h.Buckets = nil
		return
	}
	for i := range more {
		h.Buckets[i].Count += more[i].Count
	}
}

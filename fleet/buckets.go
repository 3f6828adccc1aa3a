package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Bins of [Buckets]: five to each doubling, from 61 µs to 4,096 s.
const (
	BinsPerDoubling = 5
	Bins            = 1 + 26*BinsPerDoubling // the first holds all that is shorter
	binFirst        = -14                    // log2 of the first bin's upper bound in seconds
)

// maxInBin bounds a count that can be believed.
const maxInBin = 1 << 40

// Buckets counts times in bins that grow by the factor 2^(1/5), so that a quantile
// is known to within 8 %. Buckets merge by addition, however many measured them and
// whenever. The zero value is empty.
type Buckets struct {
	Sum  float64 // seconds, exact
	Bins []Bin   // those that are not empty, by index
}

// Bin is one bin of [Buckets].
type Bin struct {
	Index int
	Count uint64
}

// BinBound is the upper bound of a bin in seconds.
func BinBound(index int) float64 { return math.Exp2(binFirst + float64(index)/BinsPerDoubling) }

// longest is the longest time that has a bin.
var longest = BinBound(Bins - 1)

// binOf returns the bin of a time: the first whose bound it does not pass.
func binOf(seconds float64) int {
	if seconds <= BinBound(0) {
		return 0
	}
	i := int(math.Ceil((math.Log2(seconds) - binFirst) * BinsPerDoubling))
	for seconds > BinBound(i) { // rounding
		i++
	}
	for seconds <= BinBound(i-1) {
		i--
	}
	return i
}

// Observe counts one time. What is no time counts as the shortest or the longest.
func (b *Buckets) Observe(seconds float64) {
	seconds = max(0, min(seconds, longest))
	if math.IsNaN(seconds) {
		return
	}
	b.Sum += seconds
	b.add(Bin{binOf(seconds), 1})
}

// Add counts what others counted.
func (b *Buckets) Add(others Buckets) {
	b.Sum += others.Sum
	for _, bin := range others.Bins {
		b.add(bin)
	}
}

func (b *Buckets) add(bin Bin) {
	i, ok := slices.BinarySearchFunc(b.Bins, bin.Index, func(x Bin, index int) int { return cmp.Compare(x.Index, index) })
	if ok {
		b.Bins[i].Count += bin.Count
	} else if bin.Count > 0 {
		b.Bins = slices.Insert(b.Bins, i, bin)
	}
}

// Count is how many times were counted.
func (b *Buckets) Count() (n uint64) {
	for _, bin := range b.Bins {
		n += bin.Count
	}
	return n
}

// Mean is the exact mean in seconds; of nothing it is NaN.
func (b *Buckets) Mean() float64 { return b.Sum / float64(b.Count()) }

// Quantile estimates the time in seconds that the fraction q of all do not pass; of
// nothing it is NaN. It is the geometric middle of a bin, at most 2^(1/10) = 7.2 %
// from the truth.
func (b *Buckets) Quantile(q float64) float64 {
	rank := max(1, uint64(math.Ceil(q*float64(b.Count()))))
	for _, bin := range b.Bins {
		if rank <= bin.Count {
			return BinBound(bin.Index) * math.Exp2(-0.5/BinsPerDoubling)
		}
		rank -= bin.Count
	}
	return math.NaN()
}

// Check returns what shows that nobody can have counted this.
func (b *Buckets) Check() error {
	var least, most float64
	last := -1
	for _, bin := range b.Bins {
		switch {
		case bin.Index <= last || bin.Index >= Bins:
			return fmt.Errorf("bin %d after bin %d: want rising indices below %d", bin.Index, last, Bins)
		case bin.Count == 0 || bin.Count > maxInBin:
			return fmt.Errorf("bin %d: a count of %d is not to be believed", bin.Index, bin.Count)
		}
		last = bin.Index
		if bin.Index > 0 {
			least += float64(bin.Count) * BinBound(bin.Index-1)
		}
		most += float64(bin.Count) * BinBound(bin.Index)
	}
	const rounding = 1e-6
	if !(b.Sum >= least*(1-rounding) && b.Sum <= most*(1+rounding)) { // refuses NaN, too
		return fmt.Errorf("a sum of %v s, whose bins hold %v to %v s", b.Sum, least, most)
	}
	return nil
}

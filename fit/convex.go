package fit

import (
	"cmp"
	"math"
	"slices"
)

// A convexFit is the rising convex curve nearest to samples: a piecewise linear
// function of load,
//
//	f(x) = base + a + b·x + Σ c_j·max(0, x − knot_j),  a, b, c ≥ 0
//
// Every rising convex piecewise linear function with knots at the samples is such
// a sum and no other function is, so that non-negative least squares finds the
// nearest one itself: pooling adjacent violators first, for a rising curve, and
// making it convex after would find another.
type convexFit struct {
	base, a, b float64
	knots      []knot // by rising load
	samples    []sample
	trust      []float64 // of each sample, 0–1: Huber's weight
	scale      float64   // the usual residual, relative
}

type knot struct{ load, bend float64 } // bend: by how much the slope rises there

type sample struct{ load, seconds, weight float64 }

// How robust a fit is.
const (
	huber       = 1.5  // usual residuals: a sample further off pulls no harder
	leastScale  = 0.01 // relative: no run repeats itself better
	farOff      = 5    // usual residuals: left out
	leastFarOff = 0.15 // relative: nobody is left out for less
	rounds      = 8    // of reweighting
	knotWorth   = 2    // a knot has to lower the sum of squared usual residuals by that
)

func ttftOf(l *level) float64 { return l.ttft }
func tbtOf(l *level) float64  { return l.tbt }

// curveOf takes what is known of the levels.
func curveOf(levels []level, value func(*level) float64) []sample {
	var s []sample
	for i := range levels {
		if v := value(&levels[i]); v > 0 {
			s = append(s, sample{levels[i].load, v, levels[i].weight})
		}
	}
	return s
}

// fitConvex fits samples, by rising load and with positive values, with at most
// so many knots. Residuals are relative: of a TTFT of seconds some tens of
// milliseconds are nothing.
func fitConvex(samples []sample, maxKnots int) convexFit {
	f := convexFit{samples: samples, base: math.Inf(1)}
	for _, s := range samples {
		// Half of the least is the floor at no load: what a steep first piece
		// points to there may be nothing.
		f.base = min(f.base, s.seconds/2)
		f.knots = append(f.knots, knot{load: s.load})
	}
	f.knots = f.knots[:len(f.knots)-1] // a bend behind the last sample moves none
	f.reweight()
	f.knots = slices.DeleteFunc(f.knots, func(k knot) bool { return k.bend <= 0 })
	f.join()
	f.prune(maxKnots)
	return f
}

// reweight solves, and again with less trust in samples far beside the curve.
// What is near is judged by the curve, not by the sample: else those that are
// too low by chance would count for more.
func (f *convexFit) reweight() {
	f.trust = make([]float64, len(f.samples))
	expected := make([]float64, len(f.samples))
	for i := range f.samples {
		f.trust[i], expected[i] = 1, f.samples[i].seconds
	}
	for range rounds {
		f.solve(expected)
		f.scale = f.usual()
		for i, s := range f.samples {
			expected[i] = f.at(s.load)
			f.trust[i] = min(1, huber*f.scale/max(math.Abs(f.residual(i)), 1e-12))
		}
	}
}

// residual of a sample, relative to the curve.
func (f *convexFit) residual(i int) float64 { return f.samples[i].seconds/f.at(f.samples[i].load) - 1 }

// usual is the size of the usual residual, by their weighted median.
func (f *convexFit) usual() float64 {
	var sizes, weights []float64
	for i, s := range f.samples {
		sizes, weights = append(sizes, math.Abs(f.residual(i))), append(weights, s.weight)
	}
	freedom := max(1, float64(len(f.samples)-2-f.bends()))
	return max(leastScale, 1.4826*median(sizes, weights)*math.Sqrt(float64(len(f.samples))/freedom))
}

func (f *convexFit) bends() int {
	n := 0
	for _, k := range f.knots {
		if k.bend > 0 {
			n++
		}
	}
	return n
}

// outlier is the sample furthest off, -1 where none is too far.
func (f *convexFit) outlier() int {
	worst, at := max(leastFarOff, farOff*f.scale), -1
	for i := range f.samples {
		if r := math.Abs(f.residual(i)); r > worst {
			worst, at = r, i
		}
	}
	return at
}

// join makes one bend of two at neighbouring samples, where the pieces beside them
// meet: no sample tells the two from the one, and an engine that bends at all
// bends between loads rather than at those that were measured.
func (f *convexFit) join() {
	var joined []knot
	for i := 0; i < len(f.knots); i++ {
		k := f.knots[i]
		if i+1 < len(f.knots) && f.neighbours(k.load, f.knots[i+1].load) {
			next := f.knots[i+1]
			bend := k.bend + next.bend
			k = knot{(k.bend*k.load + next.bend*next.load) / bend, bend}
			i++
		}
		joined = append(joined, k)
	}
	f.knots = joined
}

// neighbours says that no sample lies between two loads.
func (f *convexFit) neighbours(low, high float64) bool {
	return !slices.ContainsFunc(f.samples, func(s sample) bool { return low < s.load && s.load < high })
}

// prune takes the knots away that are worth least, until there are no more than
// the limit and each is worth having.
func (f *convexFit) prune(maxKnots int) {
	for len(f.knots) > 0 {
		best, loss := f.without(0), math.Inf(1)
		for i := range f.knots {
			if g := f.without(i); g.loss() < loss {
				best, loss = g, g.loss()
			}
		}
		if len(f.knots) <= maxKnots && loss-f.loss() > knotWorth*f.scale*f.scale*f.meanWeight() {
			return
		}
		best.scale = f.scale
		*f = best
	}
}

// without is the curve with a knot less, fitted anew with the same trust.
func (f *convexFit) without(i int) convexFit {
	g := *f
	g.knots = slices.Delete(slices.Clone(f.knots), i, i+1)
	expected := make([]float64, len(f.samples))
	for i, s := range f.samples {
		expected[i] = f.at(s.load)
	}
	g.solve(expected)
	return g
}

func (f *convexFit) loss() float64 {
	sum := 0.0
	for i, s := range f.samples {
		sum += s.weight * f.trust[i] * f.residual(i) * f.residual(i)
	}
	return sum
}

func (f *convexFit) meanWeight() float64 {
	sum := 0.0
	for _, s := range f.samples {
		sum += s.weight
	}
	return sum / float64(len(f.samples))
}

// at is the curve's value in seconds.
func (f *convexFit) at(load float64) float64 {
	v := f.base + f.a + f.b*load
	for _, k := range f.knots {
		v += k.bend * max(0, load-k.load)
	}
	return v
}

// reach is the lowest load at which the curve has that value; +Inf: it never has.
func (f *convexFit) reach(seconds float64) float64 {
	from, slope, value := 0.0, f.b, f.base+f.a
	for _, k := range f.knots {
		if next := value + slope*(k.load-from); next >= seconds {
			break
		} else {
			from, value = k.load, next
		}
		slope += k.bend
	}
	if seconds <= value {
		return from
	}
	if slope <= 0 {
		return math.Inf(1)
	}
	return from + (seconds-value)/slope
}

// solve finds a, b and the bends for residuals relative to the expected values.
func (f *convexFit) solve(expected []float64) {
	n := 2 + len(f.knots)
	gram, target := make([][]float64, n), make([]float64, n)
	for i := range gram {
		gram[i] = make([]float64, n)
	}
	for i, s := range f.samples {
		w := s.weight * f.trust[i] / (expected[i] * expected[i])
		row := f.row(s.load)
		for j, u := range row {
			target[j] += w * u * (s.seconds - f.base)
			for k, v := range row[:j+1] {
				gram[j][k] += w * u * v
			}
		}
	}
	c := nonNegative(gram, target)
	f.a, f.b = c[0], c[1]
	f.knots = slices.Clone(f.knots)
	for j := range f.knots {
		f.knots[j].bend = c[2+j]
	}
}

func (f *convexFit) row(load float64) []float64 {
	row := []float64{1, load}
	for _, k := range f.knots {
		row = append(row, max(0, load-k.load))
	}
	return row
}

// nonNegative minimises cᵀGc/2 − tᵀc over c ≥ 0 by Lawson and Hanson's active
// set; of G its lower half is read. Columns are scaled to a like size first.
func nonNegative(gram [][]float64, target []float64) []float64 {
	n := len(target)
	size := make([]float64, n)
	for i := range n {
		size[i] = math.Sqrt(max(gram[i][i], 1e-300))
	}
	g := func(i, j int) float64 { return gram[max(i, j)][min(i, j)] / size[i] / size[j] }
	c := make([]float64, n)
	var free []int
	limit := 0.0
	for i := range n {
		limit = max(limit, math.Abs(target[i]/size[i]))
	}
	for range 4 * n {
		enter := steepest(c, free, g, func(i int) float64 { return target[i] / size[i] }, 1e-10*limit)
		if enter < 0 {
			break
		}
		free = append(free, enter)
		free = settle(c, free, g, func(i int) float64 { return target[i] / size[i] })
	}
	for i := range c {
		c[i] /= size[i]
	}
	return c
}

// steepest is the column outside the free ones that lowers the sum most.
func steepest(c []float64, free []int, g func(i, j int) float64, t func(int) float64, least float64) int {
	best := -1
	for i := range c {
		if slices.Contains(free, i) {
			continue
		}
		slope := t(i)
		for _, j := range free {
			slope -= g(i, j) * c[j]
		}
		if slope > least {
			best, least = i, slope
		}
	}
	return best
}

// settle moves the free columns to their best, and holds those that would turn
// negative at zero.
func settle(c []float64, free []int, g func(i, j int) float64, t func(int) float64) []int {
	free = slices.Clone(free)
	for len(free) > 0 {
		best := solveFree(free, g, t)
		step, blocks := 1.0, -1
		for k, i := range free {
			if best[k] <= 0 && (blocks < 0 || c[i]/(c[i]-best[k]) < step) {
				step, blocks = c[i]/(c[i]-best[k]), i
			}
		}
		for k, i := range free {
			c[i] += step * (best[k] - c[i])
		}
		if blocks < 0 {
			return free
		}
		c[blocks] = 0
		free = slices.DeleteFunc(free, func(i int) bool { return i == blocks })
	}
	return free
}

// solveFree solves the normal equations of the free columns by Gauss's
// elimination; a trace on the diagonal keeps columns that are all but alike apart.
func solveFree(free []int, g func(i, j int) float64, t func(int) float64) []float64 {
	n := len(free)
	m := make([][]float64, n)
	for i := range m {
		m[i] = make([]float64, n+1)
		for j := range n {
			m[i][j] = g(free[i], free[j])
		}
		m[i][i] += 1e-12
		m[i][n] = t(free[i])
	}
	for i := range n {
		pivot := i
		for k := i + 1; k < n; k++ {
			if cmp.Compare(math.Abs(m[k][i]), math.Abs(m[pivot][i])) > 0 {
				pivot = k
			}
		}
		m[i], m[pivot] = m[pivot], m[i]
		for k := i + 1; k < n; k++ {
			by := m[k][i] / m[i][i]
			for j := i; j <= n; j++ {
				m[k][j] -= by * m[i][j]
			}
		}
	}
	x := make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		x[i] = m[i][n]
		for j := i + 1; j < n; j++ {
			x[i] -= m[i][j] * x[j]
		}
		x[i] /= m[i][i]
	}
	return x
}

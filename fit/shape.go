package fit

import (
	"math"
	"math/rand/v2"
	"slices"

	"weir/fleet"
)

// apart, of the capacity: points of a curve that are nearer are one.
const apart = 0.01

// shape writes the fitted curves against utilisation.
func (r *Result) shape(o Options) {
	r.TTFT = r.points(&r.ttft)
	capacity := r.Profile.CapacityRps
	if r.Bound == BySaturation {
		// What is known of the load between the last that was kept up with and
		// saturation is that its TTFT passes the target there at the latest.
		last := min(r.levels[len(r.levels)-1].load, capacity*(1-2*apart))
		r.TTFT = slices.DeleteFunc(r.TTFT, func(p Fitted) bool { return p.Utilisation > last/capacity-apart && p.Utilisation > 0 })
		r.TTFT = append(r.TTFT, fitted(last/capacity, r.ttft.at(last)), fitted(1, r.TargetSeconds))
	}
	r.Profile.TTFT = curve(r.TTFT)
	if samples := curveOf(r.levels, tbtOf); len(samples) >= minLoads {
		f := fitConvex(samples, maxKnots(o))
		r.TBT = r.points(&f)
		r.Profile.TBT = curve(r.TBT)
	}
}

// points are those that the curve bends at, no load, the capacity, and the
// highest load if that lies beyond. Any points of a convex curve make one.
func (r *Result) points(f *convexFit) []Fitted {
	capacity := r.Profile.CapacityRps
	loads := []float64{0}
	for _, k := range f.knots {
		loads = append(loads, k.load)
	}
	loads = append(loads, capacity, r.levels[len(r.levels)-1].load)
	slices.Sort(loads)
	var points []Fitted
	for _, load := range loads {
		u := load / capacity
		if n := len(points); n > 0 && u < points[n-1].Utilisation+apart {
			if u != 1 {
				continue
			}
			points = points[:n-1] // the capacity itself stays
		}
		points = append(points, fitted(u, f.at(load)))
	}
	return points
}

func fitted(utilisation, seconds float64) Fitted {
	return Fitted{CurvePoint: fleet.CurvePoint{Utilisation: utilisation, Seconds: seconds}}
}

func curve(points []Fitted) fleet.Curve {
	var c fleet.Curve
	for _, p := range points {
		c = append(c, p.CurvePoint)
	}
	return c
}

// resample draws what the runs might have shown as well, fits it, and keeps what
// 90 % of the fits say.
func (r *Result) resample(o Options) {
	random := rand.New(rand.NewPCG(o.Seed, o.Seed))
	last := r.levels[len(r.levels)-1].load
	ttft := make([][]float64, len(r.TTFT))
	tbt := make([][]float64, len(r.TBT))
	var capacities []float64
	var decode *convexFit
	if samples := curveOf(r.levels, tbtOf); len(r.TBT) > 0 {
		f := fitConvex(samples, maxKnots(o))
		decode = &f
	}
	for range max(0, o.Resamples) {
		f := r.ttft.again(random, maxKnots(o))
		if capacity, b := capacityOf(f, targetOf(f.at(0), o), last, r.redraw(random)); b != "" {
			capacities = append(capacities, capacity)
		} else {
			capacities = append(capacities, last*maxExtrapolation)
		}
		r.read(ttft, r.TTFT, &f)
		if decode != nil {
			g := decode.again(random, maxKnots(o))
			r.read(tbt, r.TBT, &g)
		}
	}
	if r.CapacityRps = middle(capacities); o.Resamples > 0 {
		r.widen()
	}
	keep(r.TTFT, ttft)
	keep(r.TBT, tbt)
}

// widen adds what no draw shows: between two loads any convex curve through the
// values there may run, from the chord down to where the pieces beside meet. The
// capacity is where one of them crosses the target.
func (r *Result) widen() {
	if r.Bound != ByTarget {
		return
	}
	at := func(i int) (load, seconds float64) { return r.levels[i].load, r.ttft.at(r.levels[i].load) }
	cross := func(i, j int) float64 {
		x, y := at(i)
		x2, y2 := at(j)
		return x + (r.TargetSeconds-y)*(x2-x)/(y2-y)
	}
	k := slices.IndexFunc(r.levels, func(l level) bool { return r.ttft.at(l.load) >= r.TargetSeconds })
	if k < 0 && r.SaturationRps > 0 { // it crosses where nothing was kept up with any more
		r.CapacityRps.High = max(r.CapacityRps.High, r.SaturationRps)
	}
	if k < 1 {
		return
	}
	latest := r.levels[k].load
	if _, y := at(k - 1); k >= 2 {
		if _, before := at(k - 2); y > before {
			latest = min(latest, cross(k-2, k-1))
		}
	}
	if k+1 < len(r.levels) {
		latest = min(latest, cross(k, k+1))
	}
	r.CapacityRps.Low = min(r.CapacityRps.Low, cross(k-1, k))
	r.CapacityRps.High = max(r.CapacityRps.High, latest)
}

// again is the fit of samples that scatter about the curve as these do.
func (f *convexFit) again(random *rand.Rand, maxKnots int) convexFit {
	spread, mean := f.spread(), f.meanWeight()
	samples := slices.Clone(f.samples)
	for i := range samples {
		s := &samples[i]
		s.seconds = f.at(s.load) * max(0.1, 1+random.NormFloat64()*spread*math.Sqrt(mean/s.weight))
	}
	return fitConvex(samples, maxKnots)
}

// spread is the residuals' standard deviation, relative, for a sample of mean weight.
func (f *convexFit) spread() float64 {
	freedom := max(1, float64(len(f.samples)-2-2*len(f.knots)))
	return max(leastScale, math.Sqrt(f.loss()/f.meanWeight()/freedom))
}

// redraw is what saturation would be for another draw of the overloaded runs.
func (r *Result) redraw(random *rand.Rand) float64 {
	var over []Point
	for _, p := range r.Points {
		if p.Fate == Overloaded {
			over = append(over, p)
		}
	}
	drawn := make([]Point, len(over))
	for i := range drawn {
		drawn[i] = over[random.IntN(len(over))]
	}
	return saturation(drawn)
}

// read appends the curve's value at each point.
func (r *Result) read(values [][]float64, points []Fitted, f *convexFit) {
	for i, p := range points {
		values[i] = append(values[i], f.at(p.Utilisation*r.Profile.CapacityRps))
	}
}

func keep(points []Fitted, values [][]float64) {
	for i := range points {
		in := middle(values[i])
		points[i].Seconds90 = Interval{min(in.Low, points[i].Seconds), max(in.High, points[i].Seconds)}
	}
}

// middle holds 90 % of the values.
func middle(values []float64) Interval {
	if len(values) == 0 {
		return Interval{math.NaN(), math.NaN()}
	}
	slices.Sort(values)
	n := float64(len(values) - 1)
	return Interval{values[int(math.Floor(0.05*n))], values[int(math.Ceil(0.95*n))]}
}

// residuals tells how far the runs lie beside the curves.
func (r *Result) residuals() {
	r.TTFTResidual = rootMeanSquare(r.levels, r.Profile.TTFT, r.Profile.CapacityRps, ttftOf)
	r.TBTResidual = rootMeanSquare(r.levels, r.Profile.TBT, r.Profile.CapacityRps, tbtOf)
	for i := range r.Points {
		p := &r.Points[i]
		if p.Fate != Used && p.Fate != Outlier {
			continue
		}
		u := p.LoadRps / r.Profile.CapacityRps
		p.TTFTResidual = p.TTFTSeconds/r.Profile.TTFT.At(u) - 1
		if p.TBTSeconds > 0 && len(r.Profile.TBT) > 0 {
			p.TBTResidual = p.TBTSeconds/r.Profile.TBT.At(u) - 1
		}
	}
}

func rootMeanSquare(levels []level, c fleet.Curve, capacityRps float64, value func(*level) float64) float64 {
	sum, weight := 0.0, 0.0
	for i := range levels {
		l := &levels[i]
		if v := value(l); v > 0 && len(c) > 0 {
			off := v/c.At(l.load/capacityRps) - 1
			sum += l.weight * off * off
			weight += l.weight
		}
	}
	if weight == 0 {
		return 0
	}
	return math.Sqrt(sum / weight)
}

package simulate

import (
	"math"
	"slices"
)

// alone has one replica serve requests, which come by time, and returns them as they
// were when they left it, in the order of their arrival.
func alone(e Engine, requests []Request) ([]job, *replica) {
	jobs := newJobs()
	r := newReplica(&e, "lab", jobs)
	out := make([]job, len(requests))
	step := func() {
		if id, what := r.step(r.next()); what == ended {
			out[id] = *jobs.at(id)
			out[id].seen = r.clockAt // when it left
		}
	}
	for i, q := range requests {
		for r.next() <= q.At {
			step()
		}
		r.arrive(q.At, jobs.add(q, mix(uint64(i))))
	}
	for !math.IsInf(r.next(), 1) {
		step()
	}
	return out, r
}

// batches cuts values that depend on their neighbours into long runs, whose means
// hardly do, and returns the mean of all and its standard error.
func batches(xs []float64) (m, standardError float64) {
	const n = 50
	var means []float64
	for chunk := range slices.Chunk(xs, (len(xs)+n-1)/n) {
		means = append(means, mean(chunk))
	}
	e := EstimateOf(means)
	return mean(xs), e.PlusMinus / student(len(means)-1)
}

// distance is the largest distance between two samples' distributions (the statistic of
// Kolmogorov and Smirnov).
func distance(xs, ys []float64) float64 {
	slices.Sort(xs)
	slices.Sort(ys)
	most, i, j := 0.0, 0, 0
	for i < len(xs) && j < len(ys) {
		x := min(xs[i], ys[j])
		for i < len(xs) && xs[i] <= x {
			i++
		}
		for j < len(ys) && ys[j] <= x {
			j++
		}
		most = max(most, math.Abs(float64(i)/float64(len(xs))-float64(j)/float64(len(ys))))
	}
	return most
}

// chance is how far apart two samples of one distribution are once in 10,000 times.
func chance(n, m int) float64 {
	const c = 2.23 // √(−ln(10⁻⁴ / 2) / 2)
	return c * math.Sqrt(float64(n+m)/float64(n*m))
}

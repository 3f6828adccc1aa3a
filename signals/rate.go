package signals

import (
	"math"
	"time"
)

// The estimator of arrival rates.
//
// Arrivals are close to Poisson, so a mean over T seconds at r RPS is off by
// √(r/T): a long window is calm and late, a short one prompt and noisy. Weights
// must not follow noise, and jumps must be followed within two ticks. So the mean
// of the long window rules until the short one differs from what went before it
// by more than such noise explains; then the time before the jump is forgotten,
// and the window grows again from there. Smoothing with one time constant would
// be both late and noisy, and taking the short window only while it differs would
// fall back on a long window that still holds the time before the jump.
const (
	slowWindow = 10 * time.Second
	fastWindow = 2 * time.Second
	// jumpSigmas is how unlikely a difference must be: 3 σ is a false alarm in
	// about 400 rounds, whose cost is a few rounds as noisy as the fast window.
	jumpSigmas = 3
	// jumpCount is the least jump in requests: below a handful, counts are too
	// far from normal for σ to mean much, and the plan does not depend on them.
	jumpCount = 5
	// maxSamples bounds a window's memory, whatever the reporting interval.
	maxSamples = 64
)

// sample is the count of one report.
type sample struct {
	end   time.Time
	span  time.Duration
	count float64
}

// window holds the samples of one class from one client that ended within
// slowWindow of the newest, oldest first. Reports count whole, so uneven
// intervals do no harm.
type window []sample

func (w *window) add(s sample) {
	w.keep(s.end.Add(-slowWindow))
	*w = append(*w, s)
	if n := len(*w); n > maxSamples {
		*w = append((*w)[:0], (*w)[n-maxSamples:]...)
	}
}

// forget drops everything before the fast window.
func (w *window) forget() {
	if n := len(*w); n > 0 {
		w.keep((*w)[n-1].end.Add(-fastWindow))
	}
}

// keep drops the samples that ended at or before a time.
func (w *window) keep(after time.Time) {
	kept := (*w)[:0]
	for _, s := range *w {
		if s.end.After(after) {
			kept = append(kept, s)
		}
	}
	*w = kept
}

// tally is a count over some seconds.
type tally struct{ count, seconds float64 }

func (t *tally) add(s sample) {
	t.count += s.count
	t.seconds += s.span.Seconds()
}

func (t tally) rate() float64 {
	if t.seconds == 0 {
		return 0
	}
	return t.count / t.seconds
}

// split tallies the fast window, and what went before it.
func (w window) split() (recent, before tally) {
	for _, s := range w {
		if s.end.After(w[len(w)-1].end.Add(-fastWindow)) {
			recent.add(s)
		} else {
			before.add(s)
		}
	}
	return recent, before
}

// newest tallies the newest samples, until they make up so many seconds.
func (w window) newest(seconds float64) (t tally) {
	for i := len(w) - 1; i >= 0 && t.seconds < seconds; i-- {
		t.add(w[i])
	}
	return t
}

// level estimates the requests per second of several nodes together, and makes
// them forget what went before a jump. Judging the sum finds jumps that would
// drown in the noise of each node.
func level(nodes []*window) float64 {
	if jumped(nodes) {
		for _, w := range nodes {
			w.forget()
		}
	}
	return mean(nodes)
}

// mean is the requests per second of several nodes together over all that their
// windows hold.
func mean(nodes []*window) float64 {
	total := 0.0
	for _, w := range nodes {
		recent, before := w.split()
		total += tally{recent.count + before.count, recent.seconds + before.seconds}.rate()
	}
	return total
}

// doubtSigmas is how unlikely it is that a demand is overestimated by more than its
// doubt: 2 σ is one time in 40.
const doubtSigmas = 2

// doubt is by how many requests per second the mean of several nodes together may
// be too high because their windows are not full yet, as after a start or a jump.
// The noise of full windows is not in it: headroom is there for that.
func doubt(nodes []*window) float64 {
	var variance, full float64
	for _, w := range nodes {
		recent, before := w.split()
		all := tally{recent.count + before.count, recent.seconds + before.seconds}
		if all.seconds > 0 {
			variance += all.rate() / min(all.seconds, slowWindow.Seconds())
			full += all.rate() / slowWindow.Seconds()
		}
	}
	return doubtSigmas * (math.Sqrt(variance) - math.Sqrt(full))
}

// jumped says whether the fast windows differ from the time before them by more
// than Poisson noise explains.
func jumped(nodes []*window) bool {
	var change, variance, surplus float64
	for _, w := range nodes {
		recent, before := w.split()
		if before.seconds == 0 {
			continue
		}
		rate := (recent.count + before.count) / (recent.seconds + before.seconds)
		change += recent.rate() - before.rate()
		variance += rate * (1/recent.seconds + 1/before.seconds)
		surplus += recent.count - before.rate()*recent.seconds
	}
	return math.Abs(surplus) >= jumpCount && math.Abs(change) > jumpSigmas*math.Sqrt(variance)
}

package signals

import (
	"math"

	"weir/fleet"
)

// priorReports is how many reports Poisson's law outweighs where it is asked whether
// arrivals are less even than that: two reports alone say little.
const priorReports = 2

// noise is the standard error of the mean of several nodes together, in requests per
// second. A rate of r over T seconds varies by φ·r/T, where φ is 1 if arrivals are
// independent, and measured by how reports lie about their mean (Pearson's χ² over its
// degrees of freedom: McCullagh and Nelder, Generalized Linear Models, 1989): clients
// that come in bursts make it more. None in a window is known to within half a request
// (Jeffreys' prior), not to be none. Without windows it is unknown. What false alarms
// of jumps add, an eighth of the variance, is not in it.
func noise(nodes []*window) fleet.StdErr {
	var variance, chi, freedom, longest float64
	for _, w := range nodes {
		recent, before := w.split()
		all := tally{recent.count + before.count, recent.seconds + before.seconds}
		if all.seconds == 0 {
			continue
		}
		variance += all.rate() / all.seconds
		longest = max(longest, all.seconds)
		chi += w.chi(all.rate())
		freedom += float64(len(*w) - 1)
	}
	if longest == 0 {
		return fleet.StdErr{}
	}
	dispersion := (priorReports + chi) / (priorReports + freedom)
	return fleet.StdErr{Value: math.Sqrt(dispersion*variance + 0.5/(longest*longest)), Known: true}
}

// chi is Pearson's χ² of a window's reports about a rate.
func (w window) chi(rate float64) float64 {
	sum := 0.0
	for _, s := range w {
		if expected := rate * s.span.Seconds(); expected > 0 {
			sum += (s.count - expected) * (s.count - expected) / expected
		}
	}
	return sum
}

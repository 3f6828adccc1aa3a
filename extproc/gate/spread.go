package gate

import (
	"math"
	"sync/atomic"
)

const (
	// bins of draws: a fraction is met within a small part of one.
	bins = 32
	// spreadSeconds is the time constant in which the spread of draws is forgotten: that
	// of people who think before they ask again.
	spreadSeconds = 2
	// evenly is how many requests are taken to have come that are spread evenly, so that
	// a handful does not say much.
	evenly = 4.0
)

// spread is how many requests came lately, time-decayed, by their draw.
type spread [bins]float64

func binOf(draw float64) int { return min(bins-1, max(0, int(draw*bins))) }

// take takes counts in.
func (s *spread) take(counts *[bins]atomic.Uint32, seconds float64) {
	keep := math.Exp(-seconds / spreadSeconds)
	for i := range s {
		s[i] = keep*s[i] + taken(&counts[i])
	}
}

// taken takes a count away. Most are nothing, and then it is not written.
func taken(count *atomic.Uint32) float64 {
	n := count.Load()
	if n != 0 {
		count.Add(-n)
	}
	return float64(n)
}

// quantile is the draw below which that part of the requests lies, 0–1.
func (s *spread) quantile(part float64) float64 {
	if part <= 0 || part >= 1 {
		return part
	}
	all := float64(evenly)
	for _, n := range s {
		all += n
	}
	left := part * all
	for i, n := range s {
		n += evenly / bins
		if left <= n {
			return (float64(i) + left/n) / bins
		}
		left -= n
	}
	return 1
}

package signals

import (
	"math"

	"weir/fleet"
)

const (
	// unequalSigmas is how far a node must be from its equal part to be no accident.
	unequalSigmas = 3
	// leastShare is the least that a node counts for, as part of its equal part: its
	// clients may come back.
	leastShare = 0.25
	// shareStep is how exactly shares are told, so that chance seldom changes them.
	shareStep = 0.02
)

// shares are the parts of a front-end's requests that its nodes take in: equal ones, as
// long as chance explains the difference.
func (f *frontEnd) shares() []fleet.NodeShare {
	var out []fleet.NodeShare
	var counts []float64
	sum := 0.0
	for _, n := range f.nodes {
		if !n.extProc.fresh(f.heard) {
			continue
		}
		count := n.extProc.arrivals()
		out, counts = append(out, fleet.NodeShare{Node: n.id}), append(counts, count)
		sum += count
	}
	equal := 1 / float64(len(out))
	unequal := false
	for _, count := range counts {
		unequal = unequal || math.Abs(count-equal*sum) > unequalSigmas*math.Sqrt(max(1, equal*sum))
	}
	for i := range out {
		out[i].Share = equal
		if unequal {
			share := math.Round(counts[i]/sum/shareStep) * shareStep
			out[i].Share = max(leastShare*equal, share)
		}
	}
	return out
}

// arrivals are all that the client's windows hold.
func (c *client) arrivals() float64 {
	sum := 0.0
	for _, w := range c.windows {
		for _, s := range *w {
			sum += s.count
		}
	}
	return sum
}

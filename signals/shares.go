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
// long as chance explains the difference. Compared is the newest time that all nodes
// tell of: one that has just joined has counted for less time than the others, and of
// what they counted before it came nothing could have been its.
func (f *frontEnd) shares() []fleet.NodeShare {
	var out []fleet.NodeShare
	var clients []*client
	for _, n := range f.nodes {
		if n.extProc.fresh(f.heard) {
			out, clients = append(out, fleet.NodeShare{Node: n.id}), append(clients, &n.extProc)
		}
	}
	span, sum := commonSeconds(clients), 0.0
	tallies := make([]tally, len(clients))
	for i, c := range clients {
		tallies[i] = c.lately(span)
		sum += tallies[i].rate()
	}
	equal := 1 / float64(len(out))
	unequal := false
	for _, t := range tallies {
		usual := equal * sum * t.seconds
		unequal = unequal || math.Abs(t.count-usual) > unequalSigmas*math.Sqrt(max(1, usual))
	}
	for i := range out {
		out[i].Share = equal
		if unequal {
			share := math.Round(tallies[i].rate()/sum/shareStep) * shareStep
			out[i].Share = max(leastShare*equal, share)
		}
	}
	return out
}

// commonSeconds is how long a time all windows of some clients hold.
func commonSeconds(clients []*client) float64 {
	least := math.Inf(1)
	for _, c := range clients {
		for _, w := range c.windows {
			recent, before := w.split()
			least = min(least, recent.seconds+before.seconds)
		}
	}
	return least
}

// lately tallies the newest reports of a client until they make up so many seconds.
func (c *client) lately(seconds float64) (all tally) {
	for _, w := range c.windows {
		t := w.newest(seconds)
		all.count += t.count
		all.seconds = max(all.seconds, t.seconds)
	}
	return all
}

package solver

import (
	"math"

	"weir/fleet"
)

// swing is how many standard errors of a difference of two latencies are taken for
// noise: the best of a few hundred pools looks better than it is by nearly three of
// its own, and the pool that is left may look worse than it is.
const swing = 3

// priceMoves sets what a request of the stream must gain to be moved to each of its
// options. It is what damps the plan, and has two parts:
//
// What looks better only by noise is no gain, however long it goes on.
//
// A conversation that moves finds no cache and is computed afresh, once; what it
// gains, it gains with every turn for as long as it stays. The longer the present
// shares have stood, the longer the next may be expected to stand, so that this
// part halves with each ChurnHalving: small gains are taken late, but are taken.
func (m *model) priceMoves(st *stream) {
	if !st.settled() {
		return
	}
	o := &m.state.Fleet.Options
	left := 1.0
	if halving := o.ChurnHalving.Seconds(); halving > 0 {
		left = math.Exp2(-m.settledSeconds(st) / halving)
	}
	from := m.noiseAtHome(st)
	for i := range st.options {
		to := &st.options[i]
		noise := swing * math.Hypot(from, m.noise(st, to))
		to.move = noise + left*(2*o.ChurnSeconds+m.refill(st.class, to.pool))
	}
}

// settledSeconds is how long the stream's shares have stood.
func (m *model) settledSeconds(st *stream) float64 {
	return st.previous.SettledSeconds + m.state.ElapsedSeconds
}

// settle is how long the new shares will have stood: each move takes off the part
// that it moved.
func (m *model) settle(st *stream, shares []float64) float64 {
	if !st.settled() {
		return 0
	}
	stayed := 0.0
	for j, share := range shares {
		stayed += min(share, st.share(st.options[j].pool.ID))
	}
	return m.settledSeconds(st) * min(stayed, 1)
}

// noise is the standard error of an option's latency, seconds.
func (m *model) noise(st *stream, o *option) float64 {
	return m.state.RoundTripNoise(fleet.Link{FrontEnd: st.id.FrontEnd, Pool: o.pool.ID})
}

// noiseAtHome is the largest noise among the options that the stream uses.
func (m *model) noiseAtHome(st *stream) float64 {
	most := 0.0
	for i := range st.options {
		if o := &st.options[i]; st.previous.ShareOf(o.pool.ID) > 0 {
			most = max(most, m.noise(st, o))
		}
	}
	return most
}

// refill is the time that a pool takes to compute what a mean request of the class
// otherwise finds in its cache, seconds. The TTFT of an idle replica is nearly all
// prefill, in proportion to the prompt.
func (m *model) refill(c *class, p *pool) float64 {
	cached, prefill := m.state.TokensOf(c.Class).Cached, p.Profile.Prefill(p.Profile.Reference)
	if cached <= 0 || prefill <= 0 {
		return 0
	}
	return cached / prefill * p.Profile.TTFT.At(0)
}

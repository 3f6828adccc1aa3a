package solver

// idleRps is the demand below which a stream is idle: one request in eleven days
// is less than the solver can tell from rounding.
const idleRps = 1e-6

// idleShares says where a stream that nobody asks for would go: to the option at
// which one more request costs least, save that shares stay where they were
// unless moving gains enough, as for all others. Nothing is planned for it, so that an
// idle stream takes no capacity and is refused nothing.
func (r *routing) idleShares(st *stream) []float64 {
	best, least := -1, 0.0
	cost := make([]float64, len(st.options))
	for j, o := range st.options {
		cost[j] = r.marginal(st.class, o)
		if st.open(j) && (best < 0 || cost[j] < least) {
			best, least = j, cost[j]
		}
	}
	shares := make([]float64, len(st.options))
	left := 1.0
	for j, o := range st.options {
		if st.open(j) && cost[j] <= least+st.options[best].move {
			shares[j] = st.share(o.pool.ID)
			left -= shares[j]
		}
	}
	shares[best] += max(0, left)
	return r.model.pinned(st, shares)
}

// marginal is what one more request of the class would cost at an option: its own
// latency and what it adds to that of others, seconds. Where the pool is full it is
// more than any latency.
func (r *routing) marginal(c *class, o option) float64 {
	cost := o.cost()
	if !o.ready() {
		return cost
	}
	if r.full(o.pool) {
		return cost + c.price
	}
	return cost + o.work*o.pool.slopeAt(r.work[o.pool.index])
}

// slopeAt is the slope of the pool's queueing at that work.
func (p *pool) slopeAt(work float64) float64 {
	end := 0.0
	for _, s := range p.segments {
		if end += s.width * p.replicas; work < end {
			return s.slope
		}
	}
	return p.steepest()
}

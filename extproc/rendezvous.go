package extproc

import (
	"math"

	"weir/envoy"
)

// attempts is how many engines a choice names: the first, and one for each retry
// that Envoy may make, with one to spare for an engine that has just gone.
const attempts = 1 + envoy.Retries + 1

// noShare is the weight of a pool that the plan gives no share: so little that it
// never comes before a pool that has one, and is still there when none is.
const noShare = 1e-30

// choice is where a request may go, the best first. There may be none.
type choice struct {
	engines [attempts]*engine
	n       int
}

func (c *choice) first() *engine { return c.engines[0] }

func (c *choice) add(e *engine) {
	if c.n < attempts {
		c.engines[c.n] = e
		c.n++
	}
}

// addBest adds the best engine of each pool that has a share, or that has none.
func (c *choice) addBest(pools []*pool, key uint64, share bool) {
	for _, p := range pools {
		if (p.weight > noShare) == share {
			ranked := p.rank(key)
			c.add(ranked.best[0])
		}
	}
}

// choose picks a pool by weighted rendezvous, then an engine inside it; then, for
// retries, the best engine of each further pool that has a share, the others of the
// first, and last those of the pools that the plan gives nothing.
// Every replica chooses alike, and a change of weights moves no more than it must.
func (c *class) choose(key uint64) choice {
	var out choice
	var pools ranking[pool]
	for i := range c.pools {
		p := &c.pools[i]
		pools.add(p, p.weight, draw(key, p.hash))
	}
	if pools.n == 0 {
		return out
	}
	home := pools.best[0].rank(key)
	out.add(home.best[0])
	further := pools.best[1:pools.n]
	out.addBest(further, key, true)
	for _, e := range home.best[1:home.n] {
		out.add(e)
	}
	out.addBest(further, key, false)
	return out
}

// rank orders the engines of a pool for a key. They weigh alike; what is to make
// an engine less likely multiplies its weight here.
func (p *pool) rank(key uint64) ranking[engine] {
	var r ranking[engine]
	for i := range p.engines {
		r.add(&p.engines[i], 1, draw(key, p.engines[i].hash))
	}
	return r
}

// draw is the luck of a candidate with a key: even over (0, 1), and independent of
// its luck with any other key and of any other candidate's.
func draw(key, candidate uint64) float64 { return unit(mix(key ^ candidate)) }

// score is a candidate's claim on a key. The highest of independent scores falls
// to each candidate in proportion to its weight.
func score(weight, draw float64) float64 { return weight / -math.Log(draw) }

// ranking keeps the candidates with the highest scores, the highest first; of
// equal ones the earlier.
type ranking[T any] struct {
	best  [attempts]*T
	score [attempts]float64
	n     int
}

func (r *ranking[T]) add(candidate *T, weight, draw float64) {
	last := attempts - 1
	// No score is above weight / (1 − draw): most need no logarithm.
	if r.n == attempts && weight <= r.score[last]*(1-draw) {
		return
	}
	score := score(weight, draw)
	if r.n == attempts && score <= r.score[last] {
		return
	}
	i := min(r.n, last)
	for ; i > 0 && r.score[i-1] < score; i-- {
		r.best[i], r.score[i] = r.best[i-1], r.score[i-1]
	}
	r.best[i], r.score[i] = candidate, score
	r.n = min(r.n+1, attempts)
}

package extproc

import "math"

// draw is the luck of a candidate with a key: even over (0, 1), and independent of
// its luck with any other key and of any other candidate's.
func draw(key, candidate uint64) float64 { return unit(mix(key ^ candidate)) }

// score is a candidate's claim on a key. The highest of independent scores falls
// to each candidate in proportion to its weight.
func score(weight, draw float64) float64 { return weight / -math.Log(draw) }

// below says of most candidates whose score is not above another that it is not, and
// needs no logarithm: −ln x is nowhere less than 2 (1 − x) / (1 + x).
func below(other, weight, draw float64) bool { return weight*(1+draw) <= other*2*(1-draw) }

// ranking keeps the places of the candidates with the highest scores, the highest
// first; of equal ones the earlier.
type ranking struct {
	best  [attempts]int32
	score [attempts]float64
	n     int
}

func (r *ranking) add(place int, weight, draw float64) {
	last := attempts - 1
	if r.n == attempts && below(r.score[last], weight, draw) {
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
	r.best[i], r.score[i] = int32(place), score
	r.n = min(r.n+1, attempts)
}

// rankPools orders the pools of a class for a key, by weight.
func (c *class) rankPools(key uint64) (r ranking) {
	for i := range c.pools {
		p := &c.pools[i]
		r.add(i, p.weight*p.pool.state.Load().factor, draw(key, p.pool.hash))
	}
	return r
}

// first is the place of the engine that ranks first in a pool for a key. It is
// [pool.rank] for nearly every request: the others are seldom asked for.
func (p *pool) first(key uint64) int {
	if weights := p.weights(); weights != nil {
		return firstOf(key, p.hashes, weights)
	}
	// They weigh alike: their draws, and so the mixed bits that these are made of, are
	// in the order of their scores.
	best, place := uint64(0), 0
	for i, hash := range p.hashes {
		if luck := fraction(mix(key ^ hash)); luck > best {
			best, place = luck, i
		}
	}
	return place
}

func firstOf(key uint64, hashes []uint64, weights []float64) int {
	best, place := 0.0, 0
	for i, hash := range hashes {
		luck := draw(key, hash)
		if below(best, weights[i], luck) {
			continue
		}
		if s := score(weights[i], luck); s > best {
			best, place = s, i
		}
	}
	return place
}

// rank orders the engines of a pool for a key.
func (p *pool) rank(key uint64) (r ranking) {
	weights := p.weights()
	for i, hash := range p.hashes {
		weight := 1.0
		if weights != nil {
			weight = weights[i]
		}
		r.add(i, weight, draw(key, hash))
	}
	return r
}

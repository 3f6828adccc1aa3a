package simulate

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"weir/fleet"
)

// How weir-extproc chooses, without its protocol: a test asks the real one the same.
// Pool by weighted rendezvous over the class's weights, then engine inside the pool,
// each by the hash of the conversation; [crowd.place] may divert it.

// noShare is the weight of a pool without a share: so little that it never comes
// before a pool that has one.
const noShare = 1e-30

// choice is one class of a front-end, ready to choose by.
type choice struct {
	admitted float64
	salt     uint64
	pools    []poolChoice // those that have engines to give traffic to
}

type poolChoice struct {
	number  int32 // in the fleet
	hash    uint64
	weight  float64
	engines []engineChoice
}

type engineChoice struct {
	hash   uint64
	number int32
}

// numbers tell the fleet's pools and engines apart.
type numbers struct {
	pools   map[fleet.PoolID]int32
	engines map[fleet.EngineID]int32
}

// newChoice makes a class of a view ready.
func newChoice(v *fleet.ViewClass, n *numbers) choice {
	c := choice{admitted: v.Admitted, salt: hashOf("admission", string(v.ID))}
	for i := range v.Pools {
		p := poolChoice{number: n.pools[v.Pools[i].ID], hash: hashOf("pool", string(v.Pools[i].ID)), weight: float64(v.Pools[i].Weight)}
		if p.weight == 0 {
			p.weight = noShare
		}
		for _, e := range v.Pools[i].Engines {
			if e.Readiness.Serves() {
				p.engines = append(p.engines, engineChoice{hashOf("engine", string(e.ID)), n.engines[e.ID]})
			}
		}
		if len(p.engines) > 0 {
			c.pools = append(c.pools, p)
		}
	}
	return c
}

// draw is a conversation's own number of 0–1: below the admitted fraction it may enter.
func (c *choice) draw(key uint64) float64 { return unit(mix(key ^ c.salt)) }

// home is the pool that a conversation belongs to; nil without any.
func (c *choice) home(key uint64) (pool *poolChoice) {
	best := math.Inf(-1)
	for i := range c.pools {
		if score := c.pools[i].score(key); score > best {
			pool, best = &c.pools[i], score
		}
	}
	return pool
}

// score is the pool's claim on a key: the highest falls to each in proportion to its
// weight.
func (p *poolChoice) score(key uint64) float64 { return p.weight / -math.Log(unit(mix(key^p.hash))) }

// first is the engine of a pool that a conversation belongs to. Engines weigh alike:
// the luckiest has the highest score.
func (p *poolChoice) first(key uint64) (number int32) {
	luck := 0.0
	for _, e := range p.engines {
		if u := unit(mix(key ^ e.hash)); u > luck {
			number, luck = e.number, u
		}
	}
	return number
}

// ranking keeps the places of the candidates with the highest scores, the highest
// first. Weir-extproc looks at no more: one for each attempt, and one to spare.
type ranking struct {
	best  [4]int32
	score [4]float64
	n     int
}

func (r *ranking) add(place int, score float64) {
	i := r.n
	for i > 0 && r.score[i-1] < score {
		i--
	}
	if i == len(r.best) {
		return
	}
	copy(r.best[i+1:], r.best[i:])
	copy(r.score[i+1:], r.score[i:])
	r.best[i], r.score[i] = int32(place), score
	r.n = min(r.n+1, len(r.best))
}

// rank orders the pools of a class for a key.
func (c *choice) rank(key uint64) (r ranking) {
	for i := range c.pools {
		r.add(i, c.pools[i].score(key))
	}
	return r
}

// rank orders the engines of a pool for a key.
func (p *poolChoice) rank(key uint64) (r ranking) {
	for i, e := range p.engines {
		r.add(i, unit(mix(key^e.hash)))
	}
	return r
}

func hashOf(kind, id string) uint64 { return xxhash.Sum64String(kind + "/" + id) }

// mix spreads every bit of x over the whole result (the finisher of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e37_79b9_7f4a_7c15
	x = (x ^ x>>30) * 0xbf58_476d_1ce4_e5b9
	x = (x ^ x>>27) * 0x94d0_49bb_1331_11eb
	return x ^ x>>31
}

// unit maps a hash evenly into the open interval (0, 1).
func unit(hash uint64) float64 { return (float64(hash>>11) + 0.5) / (1 << 53) }

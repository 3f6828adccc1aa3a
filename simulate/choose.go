package simulate

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"weir/fleet"
)

// How weir-extproc chooses, without its protocol: a test asks the real one the same.
// Pool by weighted rendezvous over the class's weights, then engine inside the pool,
// each by the hash of the conversation.

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
	hash    uint64
	weight  float64
	engines []engineChoice
}

type engineChoice struct {
	hash   uint64
	number int32
}

// newChoice makes a class of a view ready; number tells the engines apart.
func newChoice(v *fleet.ViewClass, number map[fleet.EngineID]int32) choice {
	c := choice{admitted: v.Admitted, salt: hashOf("admission", string(v.ID))}
	for i := range v.Pools {
		p := poolChoice{hash: hashOf("pool", string(v.Pools[i].ID)), weight: float64(v.Pools[i].Weight)}
		if p.weight == 0 {
			p.weight = noShare
		}
		for _, e := range v.Pools[i].Engines {
			if e.Readiness != fleet.Unready {
				p.engines = append(p.engines, engineChoice{hashOf("engine", string(e.ID)), number[e.ID]})
			}
		}
		if len(p.engines) > 0 {
			c.pools = append(c.pools, p)
		}
	}
	return c
}

// admits says whether a conversation is in the admitted fraction.
func (c *choice) admits(key uint64) bool { return unit(mix(key^c.salt)) < c.admitted }

// engine is the number of the engine that a conversation belongs to; none without
// any.
func (c *choice) engine(key uint64) int32 {
	var pool *poolChoice
	best := math.Inf(-1)
	for i := range c.pools {
		p := &c.pools[i]
		if score := p.weight / -math.Log(unit(mix(key^p.hash))); score > best {
			pool, best = p, score
		}
	}
	if pool == nil {
		return none
	}
	number, luck := int32(none), 0.0
	for _, e := range pool.engines { // they weigh alike: the luckiest has the highest score
		if u := unit(mix(key ^ e.hash)); u > luck {
			number, luck = e.number, u
		}
	}
	return number
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

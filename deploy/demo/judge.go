package demo

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"weir/fleet"
)

// sample is one conversation of the demo: what its client saw, and which pool
// served it by the engines' own journals.
type sample struct {
	frontEnd fleet.FrontEndID
	id       string
	at       time.Time
	ttft     time.Duration
	ok       bool
	pool     fleet.PoolID // empty: in no journal
}

// planned is what one front-end was told from a moment on.
type planned struct {
	since  time.Time
	shares map[fleet.PoolID]float64 // of the one class
}

// history keeps what every front-end was told, and since when.
type history struct {
	mu    sync.Mutex // guards plans: the xDS clients write, the view reads
	plans map[fleet.FrontEndID][]planned
}

func (h *history) add(id fleet.FrontEndID, at time.Time, v *fleet.View) {
	shares := map[fleet.PoolID]float64{}
	for _, c := range v.Classes {
		for _, p := range c.Pools {
			shares[p.ID] = float64(p.Weight) / fleet.WeightScale
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.plans[id] = append(h.plans[id], planned{at, shares})
}

// at returns the plan in force at a moment; nil before the first.
func (h *history) at(id fleet.FrontEndID, at time.Time) map[fleet.PoolID]float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	plans := h.plans[id]
	i := len(plans) - 1
	for i > 0 && plans[i].since.After(at) {
		i--
	}
	if i < 0 {
		return nil
	}
	return plans[i].shares
}

// cell compares one front-end → pool: the conversations that came with those the
// plans in force made likely.
type cell struct {
	frontEnd           fleet.FrontEndID
	pool               fleet.PoolID
	requests, got      int
	expected, variance float64
	ttfts              []time.Duration
}

// z is how many standard deviations of pure chance lie between measured and
// planned. Where the plan leaves nothing to chance, any difference is infinite.
func (c *cell) z() float64 {
	difference := float64(c.got) - c.expected
	if c.variance < 1e-9 {
		if math.Abs(difference) < 1e-6 {
			return 0
		}
		return math.Inf(int(difference))
	}
	return difference / math.Sqrt(c.variance)
}

// cells sums up samples, one cell for each front-end and pool in order.
func cells(f *fleet.Fleet, h *history, samples []sample) []cell {
	var all []cell
	for _, fe := range f.FrontEnds {
		for _, p := range f.Pools {
			c := cell{frontEnd: fe.ID, pool: p.ID}
			for _, s := range samples {
				if s.frontEnd == fe.ID && s.pool != "" {
					c.count(s, h.at(fe.ID, s.at)[p.ID])
				}
			}
			slices.Sort(c.ttfts)
			all = append(all, c)
		}
	}
	return all
}

func (c *cell) count(s sample, share float64) {
	c.requests++
	c.expected += share
	c.variance += share * (1 - share)
	if s.pool == c.pool {
		c.got++
		c.ttfts = append(c.ttfts, s.ttft)
	}
}

// quantile of sorted durations; 0 where there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// worst returns the cell that is furthest from its plan.
func worst(all []cell) cell {
	return slices.MaxFunc(all, func(a, b cell) int { return cmp.Compare(math.Abs(a.z()), math.Abs(b.z())) })
}

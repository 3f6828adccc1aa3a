package demo

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"weir/fleet"
)

// planned is what one front-end was told from a moment on.
type planned struct {
	since   time.Time
	shares  map[place]float64
	refused map[fleet.ClassID]float64 // 0–1
}

// place is a pool as a class may use it.
type place struct {
	class fleet.ClassID
	pool  fleet.PoolID
}

// history keeps what every front-end was told, and since when.
type history struct {
	mu    sync.Mutex // guards plans: the xDS clients write, the view reads
	plans map[fleet.FrontEndID][]planned
}

func (h *history) add(id fleet.FrontEndID, at time.Time, v *fleet.View) {
	shares, refused := map[place]float64{}, map[fleet.ClassID]float64{}
	for _, c := range v.Classes {
		refused[c.ID] = 1 - c.Admitted
		for _, p := range c.Pools {
			shares[place{c.ID, p.ID}] = float64(p.Weight) / fleet.WeightScale
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.plans[id] = append(h.plans[id], planned{at, shares, refused})
}

// at returns the plan in force at a moment; without shares before the first.
func (h *history) at(id fleet.FrontEndID, at time.Time) planned {
	h.mu.Lock()
	defer h.mu.Unlock()
	plans := h.plans[id]
	i := len(plans) - 1
	for i > 0 && plans[i].since.After(at) {
		i--
	}
	if i < 0 {
		return planned{}
	}
	return plans[i]
}

// cell compares one stream → pool: the conversations that began there with those
// that the plans in force made likely.
type cell struct {
	frontEnd fleet.FrontEndID
	place
	began, got         int
	expected, variance float64
}

// zLimit: beyond so many standard deviations a difference is no chance. Nine cells
// stay within it in all but one of some 1,700 runs.
const zLimit = 4

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

// newCells makes an empty cell for each stream and eligible pool, in order.
func newCells(f *fleet.Fleet) []cell {
	var all []cell
	for _, fe := range f.FrontEnds {
		for i := range f.Classes {
			for j := range f.Pools {
				if f.Classes[i].Eligible(&f.Pools[j]) {
					all = append(all, cell{frontEnd: fe.ID, place: place{f.Classes[i].ID, f.Pools[j].ID}})
				}
			}
		}
	}
	return all
}

// count adds the first turns to the cells, by the plans in force when they began.
// Conversations are counted, not turns: those of one conversation are no
// independent draws.
func count(all []cell, h *history, turns []turn) {
	for _, t := range turns {
		if t.n > 0 || t.pool == "" {
			continue
		}
		shares := h.at(t.frontEnd, t.reply.Sent).shares
		for i := range all {
			c := &all[i]
			if c.frontEnd != t.frontEnd || c.class != t.class {
				continue
			}
			share := shares[c.place]
			c.began++
			c.expected += share
			c.variance += share * (1 - share)
			if t.pool == c.pool {
				c.got++
			}
		}
	}
}

// worst returns the cell that is furthest from its plan.
func worst(all []cell) cell {
	return slices.MaxFunc(all, func(a, b cell) int { return cmp.Compare(math.Abs(a.z()), math.Abs(b.z())) })
}

// affinity is what became of conversations of one kind.
type affinity struct {
	followUps, moved int
	prompt, cached   int // tokens of the follow-ups
}

// follow sums up the follow-ups at a front-end within some turns: how many came to
// another engine than the turn before, and how much of their prompts was cached.
func follow(all []turn, within func(*turn) bool) [kinds]affinity {
	var sums [kinds]affinity
	last := map[string]fleet.EngineID{}
	for i := range all {
		t := &all[i]
		before, known := last[t.talk]
		if t.engine != "" {
			last[t.talk] = t.engine
		}
		if t.n == 0 || !within(t) {
			continue
		}
		a := &sums[t.kind]
		a.followUps++
		a.prompt += t.prompt
		a.cached += t.cached
		if known && t.engine != "" && t.engine != before {
			a.moved++
		}
	}
	return sums
}

// cachedShare is the cached part of the prompts.
func (a affinity) cachedShare() float64 {
	if a.prompt == 0 {
		return math.NaN()
	}
	return float64(a.cached) / float64(a.prompt)
}

// outcomes counts what clients saw.
type outcomes struct {
	sent, shed, cut, failed int
	first                   *turn // that failed
}

// tally counts the outcomes of an act's turns. A stream that had begun on an engine
// that was killed has to end: it is cut, not failed.
func (a *act) tally(turns []turn) outcomes {
	var o outcomes
	for i := range turns {
		t := &turns[i]
		if !a.holds(t) {
			continue
		}
		o.sent++
		switch {
		case t.reply.OK():
		case t.reply.Status == 429:
			o.shed++
		case t.reply.Status == 200 && t.engine == a.excused:
			o.cut++
		default:
			o.failed++
			if o.first == nil {
				o.first = t
			}
		}
	}
	return o
}

// holds says whether a turn ended in the act.
func (a *act) holds(t *turn) bool {
	end := t.reply.Sent.Add(t.reply.Took)
	return !a.begun.IsZero() && !end.Before(a.begun) && (a.ended.IsZero() || end.Before(a.ended))
}

// judged says whether a turn began when the act's change had reached traffic.
func (a *act) judged(t *turn) bool {
	return !a.begun.IsZero() && t.reply.Sent.After(a.begun.Add(a.settle)) && (a.ended.IsZero() || t.reply.Sent.Before(a.ended))
}

// quantile of sorted durations; 0 where there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

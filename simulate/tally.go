package simulate

import (
	"math"
	"slices"

	"weir/fleet"
)

// tally is what is counted of a run.
type tally struct {
	arrived, served, shed  int // of all
	measured, refused      int // of those that are measured
	ttft, endToEnd         []float64
	gaps, gapSeconds       float64
	prompt, output, cached float64
	reached, work          float64
	uncachedWork           float64 // had nothing been cached
	priceSeconds           float64 // of all that reached an engine
	sojourns               float64 // seconds in engines, of all that left them
	talks                  map[uint64]talkTally
	moves                  []float64   // share of the traffic that each plan moved
	began, ended           []float64   // work by pool when measuring began and ended
	links                  []linkTally // by front-end and pool
}

// talkTally is where a conversation is.
type talkTally struct {
	engine int32
	turns  int32
	moved  bool
}

func newTally(frontEnds, pools int) tally {
	return tally{
		talks: map[uint64]talkTally{}, began: make([]float64, pools), ended: make([]float64, pools),
		links: make([]linkTally, frontEnds*pools),
	}
}

func (t *tally) underWay() int { return t.arrived - t.served - t.shed }

func (t *tally) arrive(measured bool) {
	t.arrived++
	if measured {
		t.measured++
	}
}

func (t *tally) refuse(measured bool) {
	t.shed++
	if measured {
		t.refused++
	}
}

// reach counts a request that came to its engine.
func (t *tally) reach(j *job, r *replica, measured bool) {
	if !measured {
		t.place(j, false)
		return
	}
	t.reached++
	t.work += r.Work(float64(j.Prompt-j.cached), float64(j.Output))
	t.uncachedWork += r.Work(float64(j.Prompt), float64(j.Output))
	t.prompt += float64(j.Prompt)
	t.output += float64(j.Output)
	t.cached += float64(j.cached)
	t.place(j, true)
}

// place notes where a conversation is. Only those that go on while it is measured
// count.
func (t *tally) place(j *job, measured bool) {
	c, known := t.talks[j.Key]
	if known && measured {
		c.turns++
		c.moved = c.moved || c.engine != j.engine
	}
	c.engine = j.engine
	t.talks[j.Key] = c
}

func (t *tally) finish(now float64, j *job, way *linkTally, measured bool) {
	t.served++
	if !measured {
		return
	}
	way.add(j.seen-j.arrived, now-j.arrived)
	t.ttft = append(t.ttft, j.seen-j.arrived)
	t.endToEnd = append(t.endToEnd, now-j.arrived)
	t.gaps += float64(j.Output - 1)
	t.gapSeconds += now - j.seen
}

// replan notes how much of the traffic a plan moved, by the demand of its streams.
func (t *tally) replan(was, is *fleet.Plan, measured bool) {
	if was == nil || !measured {
		return
	}
	moved, total := 0.0, 0.0
	for i := range is.Routes {
		r := &is.Routes[i]
		before := was.Route(fleet.Stream{FrontEnd: r.FrontEnd, Class: r.Class})
		if before == nil {
			continue
		}
		stayed := 0.0
		for _, s := range r.Shares {
			stayed += min(s.Share, before.ShareOf(s.Pool))
		}
		moved += r.DemandRps * max(0, 1-stayed)
		total += r.DemandRps
	}
	if total > 0 {
		t.moves = append(t.moves, moved/total)
	}
}

// workByPool is what arrived at each pool's engines so far, in reference requests.
func (w *world) workByPool(out []float64) {
	clear(out)
	for i, r := range w.replicas {
		out[w.poolOf[i]] += r.told.work
	}
}

// Latency sums up how long requests took, in seconds.
type Latency struct{ Mean, P50, P95, P99 float64 }

// LatencyOf sums up; it sorts the times.
func LatencyOf(times []float64) Latency {
	slices.Sort(times)
	return Latency{mean(times), quantile(times, 0.50), quantile(times, 0.95), quantile(times, 0.99)}
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// quantile is the least of the sorted values that the fraction q of all do not pass;
// of nothing it is NaN.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[max(0, min(i, len(sorted)-1))]
}

package simulate

import "weir/fleet"

// Result is what came of a run. All but the first counts is of requests that arrived
// after the warm-up.
type Result struct {
	Arrived, Served, Shed, UnderWay int // of the whole run; the last: when it ended
	Rounds, Held                    int // of the loop; those without a new plan

	Measured         int          // requests
	TTFT, EndToEnd   Latency      // as clients saw it; those under way count with their age
	TBTSeconds       float64      // mean, as clients saw it
	ShedShare        float64      // of requests
	MovedShare       float64      // of conversations that had another turn: those that changed their engine
	CachedShare      float64      // of prompt tokens
	MovedPerTick     float64      // share of the traffic that a plan moves, mean over plans
	PriceSeconds     float64      // of the pools' prices, mean over requests that were let in
	Tokens           fleet.Tokens // of a mean request
	WorkPerRequest   float64      // mean, in reference requests of the engine that did it
	CacheSaves       float64      // what part of the work there would be without caches
	Utilisations     map[fleet.PoolID]float64
	FullestPool      fleet.PoolID
	FullestPoolUsage float64                // its utilisation: work / what its engines can do
	Links            map[fleet.Link]LinkUse // that were used
	Parts            []Part                 // of the whole run, if they were asked for
}

// result sums up.
func (w *world) result() *Result {
	t := &w.tally
	r := &Result{
		Arrived: t.arrived, Served: t.served, Shed: t.shed, UnderWay: t.underWay(),
		Rounds: w.plane.rounds, Held: w.plane.held, Measured: t.measured,
		TBTSeconds:     t.gapSeconds / t.gaps,
		ShedShare:      float64(t.refused) / float64(t.measured),
		CachedShare:    t.cached / t.prompt,
		WorkPerRequest: t.work / t.reached,
		CacheSaves:     1 - t.work/t.uncachedWork,
		PriceSeconds:   t.priceSeconds / t.reached,
		Tokens:         fleet.Tokens{Prompt: t.prompt / t.reached, Output: t.output / t.reached, Cached: t.cached / t.reached},
		MovedPerTick:   mean(t.moves),
		MovedShare:     t.movedShare(),
		Utilisations:   map[fleet.PoolID]float64{},
		Parts:          w.parts.all,
	}
	w.age()
	r.Links = w.links()
	r.TTFT, r.EndToEnd = LatencyOf(t.ttft), LatencyOf(t.endToEnd)
	for i := range w.Fleet.Pools {
		p := &w.Fleet.Pools[i]
		can := w.Engines[p.ID].CapacityRps * float64(len(p.Engines)) * (w.Seconds - w.WarmUpSeconds)
		usage := (t.ended[i] - t.began[i]) / can
		r.Utilisations[p.ID] = usage
		if usage > r.FullestPoolUsage {
			r.FullestPool, r.FullestPoolUsage = p.ID, usage
		}
	}
	return r
}

// age counts the requests under way with what they have waited so far: to leave them
// out would leave out the worst.
func (w *world) age() {
	if w.tally.underWay() == 0 {
		return
	}
	for i := range w.jobs.all {
		j := &w.jobs.all[i]
		if j.Prompt == 0 || !w.measures(j) {
			continue // nobody's place, or of the warm-up
		}
		age := w.now - j.arrived
		ttft := age
		if j.seen > 0 {
			ttft = j.seen - j.arrived
		}
		w.tally.ttft, w.tally.endToEnd = append(w.tally.ttft, ttft), append(w.tally.endToEnd, age)
		w.link(j).add(ttft, age)
	}
}

// movedShare is the part of the conversations with another turn that changed their
// engine.
func (t *tally) movedShare() float64 {
	moved, all := 0, 0
	for _, c := range t.talks {
		if c.turns > 0 {
			all++
			if c.moved {
				moved++
			}
		}
	}
	if all == 0 {
		return 0
	}
	return float64(moved) / float64(all)
}

package signals

import (
	"cmp"
	"math"
	"slices"
	"time"

	"weir/fleet"
)

// Health: what the penalties of front-ends leave of a pool.
//
// A penalty is a weir-extproc's own, by what its own requests met. The health of an engine
// is the mean of what they multiply its weight by, each by how many requests it sends to
// the pool, since that is what of the traffic stays away. One that sends the pool
// nothing has no evidence and does not count: unknown is neither well nor sick. The health
// of a pool is the mean over its engines that serve and are known; what the plan then
// takes off the pool no weir-extproc takes off again, for levels tell it.
const (
	// evidenceTau is over what requests count.
	evidenceTau = 10 * time.Second
	// leastEvidence is how many, decayed, say anything: one in the last two τ.
	leastEvidence = 0.13
	// healthSteps to 1 are told apart: less changes nothing, and need not be sent.
	healthSteps = 100
)

// sent counts the attempts that a node made at a pool and at each of its engines.
type sent struct {
	pools   map[fleet.PoolID]*decayed
	engines map[fleet.EngineID]*decayed
}

// observe counts the attempts of a report. Pools and engines that the fleet does not have
// are left out.
func (s *sent) observe(now time.Time, r *fleet.LoadReport, pools map[fleet.PoolID]*pool) {
	if s.pools == nil {
		s.pools, s.engines = map[fleet.PoolID]*decayed{}, map[fleet.EngineID]*decayed{}
	}
	for i := range r.Classes {
		for j := range r.Classes[i].Pools {
			l := &r.Classes[i].Pools[j]
			if pools[l.Pool] == nil {
				continue
			}
			for k := range l.Engines {
				e := &l.Engines[k]
				if pools[l.Pool].engines[e.Engine] != nil {
					n := attemptsAt(e)
					count(s.pools, l.Pool, now, r.Interval, n)
					count(s.engines, e.Engine, now, r.Interval, n)
				}
			}
		}
	}
	deleteKeys(s.pools, func(id fleet.PoolID) bool { return pools[id] == nil })
	deleteKeys(s.engines, func(id fleet.EngineID) bool { return s.engines[id].read(now, evidenceTau) < leastEvidence })
}

// attemptsAt are how many the counts rest on: of one under way its first token is one, of
// one that is over its outcome.
func attemptsAt(e *fleet.EngineLoad) float64 {
	n := uint64(0)
	for _, of := range e.Outcomes {
		n += of
	}
	return float64(max(n, e.TTFT.Count()))
}

func count[K comparable](of map[K]*decayed, key K, now time.Time, interval time.Duration, n float64) {
	if of[key] == nil {
		of[key] = &decayed{since: now.Add(-interval)}
	}
	of[key].add(now, evidenceTau, n)
}

// judge is a weir-extproc that has evidence of a pool.
type judge struct {
	node      *node
	weight    float64
	penalties map[fleet.EngineID]float64
}

// health is what penalties leave of a pool, 0 where nobody knows. Whose they are is added
// to its state.
func (t *Tracker) health(now time.Time, id fleet.PoolID, st *fleet.PoolState) float64 {
	var judges []judge
	for _, fe := range t.fleet.FrontEnds {
		for _, n := range t.frontEnds[fe.ID].nodes {
			if j, ok := n.judge(now, id); ok {
				judges = append(judges, j)
				st.Signals.Penalties = n.tell(st.Signals.Penalties, fe.ID, id)
			}
		}
	}
	slices.SortStableFunc(st.Signals.Penalties, func(a, b fleet.PenaltySeen) int { return cmp.Compare(a.Engine, b.Engine) })
	sum, known := 0.0, 0.0
	for _, e := range t.pools[id].named.Engines { // in their order, so that the sum is the same each time
		if health, ok := healthOf(now, e, judges); ok && st.Engines[e].Serves() {
			sum += health
			known++
		}
	}
	if known == 0 {
		return 0
	}
	return max(1, math.Round(sum/known*healthSteps)) / healthSteps
}

// judge returns what the node's weir-extproc says of a pool, if it is heard of and sends
// requests there.
func (n *node) judge(now time.Time, id fleet.PoolID) (j judge, ok bool) {
	if n.extProc.heard.IsZero() || now.Sub(n.extProc.heard) > clientSilent || n.sent.pools[id] == nil {
		return j, false
	}
	j = judge{n, n.sent.pools[id].read(now, evidenceTau), map[fleet.EngineID]float64{}}
	for _, p := range n.penalties {
		if p.Pool == id {
			j.penalties[p.Engine] = p.Value
		}
	}
	return j, j.weight >= leastEvidence
}

// tell adds the node's penalties of a pool.
func (n *node) tell(to []fleet.PenaltySeen, fe fleet.FrontEndID, id fleet.PoolID) []fleet.PenaltySeen {
	for _, p := range n.penalties {
		if p.Pool == id {
			to = append(to, fleet.PenaltySeen{Penalty: p, FrontEnd: fe, Node: n.id})
		}
	}
	return to
}

// healthOf is the mean of an engine's penalties; false: nobody knows.
func healthOf(now time.Time, e fleet.EngineID, judges []judge) (float64, bool) {
	sum, weight := 0.0, 0.0
	for _, j := range judges {
		penalty, penalised := j.penalties[e]
		if seen := j.node.sent.engines[e]; !penalised && (seen == nil || seen.read(now, evidenceTau) < leastEvidence) {
			continue
		}
		sum += j.weight * cmp.Or(penalty, 1)
		weight += j.weight
	}
	return sum / weight, weight > 0
}

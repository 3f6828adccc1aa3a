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
// nothing has no evidence and does not count: unknown is neither well nor sick. Of one
// that does, all engines count, those too that it met none of lately: it would send them
// their part. The health of a pool is the mean over its engines that serve; what the plan
// then takes off the pool no weir-extproc takes off again, for levels tell it.
const (
	// evidenceTau is over what requests count.
	evidenceTau = 10 * time.Second
	// leastEvidence is how many, decayed, say anything: one in the last two τ.
	leastEvidence = 0.13
	// healthSteps to 1 are told apart: less changes nothing, and need not be sent.
	healthSteps = 100
)

// sent counts the attempts that a node made at each pool.
type sent map[fleet.PoolID]*decayed

// observe counts the attempts of a report. Pools and engines that the fleet does not have
// are left out.
func (s sent) observe(now time.Time, r *fleet.LoadReport, pools map[fleet.PoolID]*pool) {
	for i := range r.Classes {
		for j := range r.Classes[i].Pools {
			l := &r.Classes[i].Pools[j]
			if pools[l.Pool] == nil {
				continue
			}
			if s[l.Pool] == nil {
				s[l.Pool] = &decayed{}
			}
			for k := range l.Engines {
				if e := &l.Engines[k]; pools[l.Pool].engines[e.Engine] != nil {
					s[l.Pool].add(now, evidenceTau, attemptsAt(e))
				}
			}
		}
	}
	deleteKeys(s, func(id fleet.PoolID) bool { return pools[id] == nil })
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

// judge is a weir-extproc that has evidence of a pool.
type judge struct {
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
	sum, serve := 0.0, 0.0
	for _, e := range t.pools[id].named.Engines { // in their order, so that the sum is the same each time
		if st.Engines[e].Serves() {
			sum += healthOf(e, judges)
			serve++
		}
	}
	if len(judges) == 0 || serve == 0 {
		return 0
	}
	return max(1, math.Round(sum/serve*healthSteps)) / healthSteps
}

// judge returns what the node's weir-extproc says of a pool, if it is heard of and sends
// requests there.
func (n *node) judge(now time.Time, id fleet.PoolID) (j judge, ok bool) {
	if n.extProc.heard.IsZero() || now.Sub(n.extProc.heard) > clientSilent || n.sent[id] == nil {
		return j, false
	}
	j = judge{n.sent[id].read(now, evidenceTau), map[fleet.EngineID]float64{}}
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

// healthOf is the mean of an engine's penalties.
func healthOf(e fleet.EngineID, judges []judge) float64 {
	sum, weight := 0.0, 0.0
	for _, j := range judges {
		sum += j.weight * cmp.Or(j.penalties[e], 1)
		weight += j.weight
	}
	return sum / weight
}

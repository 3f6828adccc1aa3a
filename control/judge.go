package control

import (
	"errors"
	"fmt"

	"weir/fleet"
)

// judge holds a plan against the state that it was made for.
type judge struct {
	state  *fleet.State
	plan   *fleet.Plan
	usable map[fleet.ClassID]map[fleet.PoolID]bool // eligible pools that have engines; true: some are ready
	pools  map[fleet.PoolID]*fleet.PoolPlan
}

func newJudge(s *fleet.State, p *fleet.Plan) *judge {
	j := &judge{
		state:  s,
		plan:   p,
		usable: map[fleet.ClassID]map[fleet.PoolID]bool{},
		pools:  map[fleet.PoolID]*fleet.PoolPlan{},
	}
	for i := range s.Fleet.Classes {
		j.usable[s.Fleet.Classes[i].ID] = usable(s, &s.Fleet.Classes[i])
	}
	for i := range p.Pools {
		j.pools[p.Pools[i].Pool] = &p.Pools[i]
	}
	return j
}

func usable(s *fleet.State, c *fleet.Class) map[fleet.PoolID]bool {
	out := map[fleet.PoolID]bool{}
	for i := range s.Fleet.Pools {
		if p := &s.Fleet.Pools[i]; c.Eligible(p) && len(p.Engines) > 0 {
			out[p.ID] = s.ReadyEngines(p) > 0
		}
	}
	return out
}

// complete says whether every stream that can be served has a route.
func (j *judge) complete() error {
	for i := range j.state.Fleet.Classes {
		class := j.state.Fleet.Classes[i].ID
		if len(j.usable[class]) == 0 {
			continue
		}
		for k := range j.state.Fleet.FrontEnds {
			st := fleet.Stream{FrontEnd: j.state.Fleet.FrontEnds[k].ID, Class: class}
			if j.plan.Route(st) == nil {
				return fmt.Errorf("class %q at %q: no route", st.Class, st.FrontEnd)
			}
		}
	}
	return nil
}

// placed says whether every share is where it may be.
func (j *judge) placed() error {
	for i := range j.plan.Routes {
		r := &j.plan.Routes[i]
		if j.state.Fleet.Class(r.Class) == nil || j.state.Fleet.FrontEnd(r.FrontEnd) == nil {
			return fmt.Errorf("%s: not in the fleet", name(r))
		}
		for _, s := range r.Shares {
			if err := j.placedShare(r, s); err != nil {
				return fmt.Errorf("%s: pool %q: %w", name(r), s.Pool, err)
			}
		}
	}
	return nil
}

// placedShare demands a pool that may serve the class and, if any of those is
// ready, a ready one.
func (j *judge) placedShare(r *fleet.Route, s fleet.Share) error {
	ready, ok := j.usable[r.Class][s.Pool]
	switch {
	case !ok:
		return errors.New("has a share and may not serve the class, or has no engines")
	case j.pools[s.Pool] == nil:
		return errors.New("has a share and no capacity planned")
	case s.Share > 0 && !ready && j.anyReady(r.Class):
		return errors.New("has a share and no ready engine, while others have")
	}
	return nil
}

// reaches says whether all shares of a route are where they can be served. A route of
// what is not in the fleet any more reaches nobody, and does no harm.
func (j *judge) reaches(r *fleet.Route) bool {
	if j.state.Fleet.Class(r.Class) == nil || j.state.Fleet.FrontEnd(r.FrontEnd) == nil {
		return true
	}
	for _, s := range r.Shares {
		if ready, ok := j.usable[r.Class][s.Pool]; !ok || !ready && j.anyReady(r.Class) {
			return false
		}
	}
	return true
}

func (j *judge) anyReady(c fleet.ClassID) bool {
	for _, ready := range j.usable[c] {
		if ready {
			return true
		}
	}
	return false
}

// fits says whether no pool gets more than its capacity, by rates and by shares.
func (j *judge) fits() error {
	load := map[fleet.PoolID]float64{}
	for i := range j.plan.Routes {
		r := &j.plan.Routes[i]
		for _, s := range r.Shares {
			load[s.Pool] += max(s.Rps, s.Share*(r.DemandRps-r.ShedRps))
		}
	}
	for _, q := range j.plan.Pools {
		if max(load[q.Pool], q.Rps) > q.CapacityRps*(1+tolerance)+tolerance {
			return fmt.Errorf("pool %q: planned above its capacity", q.Pool)
		}
	}
	return nil
}

// needed says whether requests are shed only where capacity is short, or a limit says so.
func (j *judge) needed() error {
	for i := range j.plan.Routes {
		r := &j.plan.Routes[i]
		if !limitedAway(j.state, r) && j.free(r.Class) {
			return fmt.Errorf("%s: sheds while capacity is free", name(r))
		}
	}
	return nil
}

// free says whether a pool for the class has capacity left.
func (j *judge) free(c fleet.ClassID) bool {
	for id, ready := range j.usable[c] {
		q := j.pools[id]
		if ready && q != nil && q.CapacityRps > 0 && q.Utilisation < fullUtilisation {
			return true
		}
	}
	return false
}

package signals

import (
	"slices"
	"time"

	"weir/fleet"
)

const (
	// These bound what a report may say and be believed. The intervals are beyond
	// any at which reports are asked for, the rate is beyond any Envoy. A request or
	// two in a moment would else make any rate.
	minInterval = 10 * time.Millisecond
	maxInterval = time.Hour
	maxRps      = 1e6
	maxInFlight = 1e9
)

// Tracker holds beliefs and brings them up to date. It belongs to one goroutine,
// save its Counters.
type Tracker struct {
	Counters Counters

	fleet     *fleet.Fleet
	classes   map[fleet.ClassID]*fleet.Class // of the fleet, by name: there may be thousands of pools in a report
	frontEnds map[fleet.FrontEndID]*frontEnd
	pools     map[fleet.PoolID]*pool
	sizes     map[fleet.ClassID]*sizes
	distances map[fleet.Link]*distance
	brakes    []fleet.Brake
	planned   bool // there was a plan
}

// NewTracker returns a tracker that has heard nothing yet.
func NewTracker(f *fleet.Fleet) *Tracker {
	t := &Tracker{
		frontEnds: map[fleet.FrontEndID]*frontEnd{},
		pools:     map[fleet.PoolID]*pool{},
		sizes:     map[fleet.ClassID]*sizes{},
		distances: map[fleet.Link]*distance{},
	}
	t.SetFleet(f)
	return t
}

// Brake has the engines that operators drain counted as draining from the next state on:
// what a pool answers and how fast, the others of it do.
func (t *Tracker) Brake(brakes []fleet.Brake) { t.brakes = brakes }

// SetFleet replaces the fleet and keeps what was heard of all that is in both.
func (t *Tracker) SetFleet(f *fleet.Fleet) {
	joins := t.fleet != nil // what a tracker begins with is not new
	t.fleet, t.classes = f, make(map[fleet.ClassID]*fleet.Class, len(f.Classes))
	for i := range f.Classes {
		t.classes[f.Classes[i].ID] = &f.Classes[i]
	}
	pools := make(map[fleet.PoolID]*pool, len(f.Pools))
	for i := range f.Pools {
		p := &f.Pools[i]
		// Nor is what discovery finds before there is a plan.
		found := p.Discovery != nil && !t.planned && t.pools[p.ID].empty()
		pools[p.ID] = keepPool(t.pools[p.ID], p, joins && !found)
	}
	t.pools = pools
	frontEnds := map[fleet.FrontEndID]*frontEnd{}
	for i := range f.FrontEnds {
		id := f.FrontEnds[i].ID
		frontEnds[id] = t.frontEnds[id]
		if frontEnds[id] == nil {
			frontEnds[id] = newFrontEnd()
		}
		frontEnds[id].retain(t)
	}
	t.frontEnds = frontEnds
	deleteKeys(t.sizes, func(id fleet.ClassID) bool { return t.classes[id] == nil })
	deleteKeys(t.distances, func(l fleet.Link) bool { return t.frontEnds[l.FrontEnd] == nil || t.pools[l.Pool] == nil })
}

// knows says whether the fleet names the class and the pool of a way.
func (t *Tracker) knows(way route) bool {
	return t.classes[way.class] != nil && t.pools[way.pool] != nil
}

func keepPool(old *pool, p *fleet.Pool, joins bool) *pool {
	fresh := &pool{named: p, engines: map[fleet.EngineID]*engine{}, burden: newBurden(), record: &record{}}
	if old == nil {
		old = fresh
	}
	fresh.answered, fresh.burden, fresh.record = old.answered, old.burden, old.record
	fresh.burden.factor.rest(&old.named.Profile, &p.Profile)
	for _, id := range p.Engines {
		e := old.engines[id]
		if e == nil {
			e = &engine{joins: joins, awaited: joins && p.Discovery != nil}
		}
		_, e.leaves = slices.BinarySearch(p.Leaving, id)
		fresh.engines[id] = e
	}
	return fresh
}

// ObserveLoad takes a load report that arrived now. A report that cannot be true
// is dropped whole: its node then counts as silent, and the fallbacks apply.
func (t *Tracker) ObserveLoad(now time.Time, r fleet.LoadReport) {
	f := t.frontEnds[r.FrontEnd]
	switch {
	case f == nil:
		t.Counters.ReportsUnknown.Add(1)
		return
	case !believable(&r):
		t.Counters.ReportsRefused.Add(1)
		return
	}
	n := f.node(r.Node)
	if n == nil {
		t.Counters.NodesRefused.Add(1)
		return
	}
	if now.After(f.heard) {
		f.heard = now
	}
	t.countUnknown(&r)
	f.cover(&r)
	n.client(r.Role).observe(now, t.fleet.Classes, r)
	t.observeService(now, &r)
	n.observeAttempts(now, &r, t.knows)
	if r.Role == fleet.RoleExtProc {
		n.open, n.penalties = r.Open, r.Penalties
		n.sent.observe(now, &r, t.pools)
	} else {
		n.answers(r, func(id fleet.PoolID) {
			if p := t.pools[id]; p != nil {
				p.answered = now
			}
		})
	}
}

func (t *Tracker) countUnknown(r *fleet.LoadReport) {
	for i := range r.Classes {
		if t.classes[r.Classes[i].Class] == nil {
			t.Counters.ClassesUnknown.Add(1)
		}
	}
}

// believable says whether a report can be true at all.
func believable(r *fleet.LoadReport) bool {
	if r.Node == "" || r.Interval < minInterval || r.Interval > maxInterval {
		return false
	}
	most := uint64(maxRps * r.Interval.Seconds())
	for _, c := range r.Classes {
		if c.Arrivals > most || c.Shed > most {
			return false
		}
		for _, p := range c.Pools {
			if p.Issued > most || p.Failed > maxInFlight || p.InFlight > maxInFlight {
				return false
			}
		}
	}
	return true
}

// ObserveProbe takes the outcome of a probe.
func (t *Tracker) ObserveProbe(now time.Time, p Probe) {
	var e *engine
	if pool := t.pools[p.Pool]; pool != nil {
		e = pool.engines[p.Engine]
	}
	if e == nil {
		t.Counters.ProbesUnknown.Add(1)
		return
	}
	e.observe(now, p)
}

// State is what is believed now, with a demand for each front-end and class and
// a readiness for each engine of the fleet. Its maps are fresh, so it may be
// handed to other goroutines. Asked again before anything else is observed, it
// gives the same answer.
func (t *Tracker) State(now time.Time, previous *fleet.Plan) *fleet.State {
	t.planned = t.planned || previous != nil
	s := &fleet.State{
		Fleet:        t.fleet,
		Demand:       make(map[fleet.Stream]fleet.Demand, len(t.fleet.FrontEnds)*len(t.fleet.Classes)),
		Pools:        make(map[fleet.PoolID]fleet.PoolState, len(t.pools)),
		Network:      map[fleet.Link]float64{},
		NetworkNoise: map[fleet.Link]float64{},
		NetworkAt:    map[fleet.Link]time.Time{},
		Tokens:       map[fleet.ClassID]fleet.TokenBelief{},
		Nodes:        make(map[fleet.FrontEndID][]fleet.NodeShare, len(t.frontEnds)),
		Attempts:     map[fleet.Stream]fleet.Attempts{},
		Previous:     previous,
	}
	t.measured(now, s)
	newest := t.newest()
	open, covered := t.open(now), t.coverage(now)
	for i := range t.fleet.FrontEnds {
		t.demand(s, &t.fleet.FrontEnds[i], newest)
		s.Nodes[t.fleet.FrontEnds[i].ID] = t.frontEnds[t.fleet.FrontEnds[i].ID].shares()
	}
	for id, p := range t.pools {
		st, doubted := p.state(now)
		if doubted {
			t.Counters.PoolsDoubted.Add(1)
		}
		if drained := fleet.DrainedEngines(t.brakes, p.named, st.Engines); drained != nil {
			st.Engines = drained
		}
		st.Signals.Open = open[id]
		health := t.health(now, id, &st)
		if !t.fleet.Options.DeclaredOnly {
			st.Health = health
		}
		s.Pools[id] = st
		st = p.believe(now, s, p.named, st)
		st.History = p.record.round(now, s, p.named, st.CapacityFactor, covered)
		s.Pools[id] = st
	}
	t.attempts(now, s, newest)
	return s
}

// newest is when the fleet was last heard of.
func (t *Tracker) newest() time.Time {
	var newest time.Time
	for _, f := range t.frontEnds {
		if f.heard.After(newest) {
			newest = f.heard
		}
	}
	return newest
}

func (t *Tracker) demand(s *fleet.State, fe *fleet.FrontEnd, newest time.Time) {
	heard := t.frontEnds[fe.ID]
	silent := newest.Sub(heard.heard) > frontEndSilent
	for i := range t.fleet.Classes {
		class := t.fleet.Classes[i].ID
		d, measured := heard.demand(class)
		measured = measured && !t.fleet.Options.DeclaredOnly
		switch {
		case !measured || silent:
			d = fleet.Demand{Rps: fe.Demand[class], Source: fleet.SourceDeclared}
		case d.Source == fleet.SourceEnvoy:
			t.Counters.StreamsStoodIn.Add(1)
		}
		if measured && silent {
			t.Counters.StreamsForgotten.Add(1)
		}
		s.Demand[fleet.Stream{FrontEnd: fe.ID, Class: class}] = d
	}
}

package fleet

import (
	"cmp"
	"slices"
	"time"
)

// View is what one front-end is told: the part of a plan that concerns it,
// together with all that its Envoys and ext_procs need to act on it. Package
// envoy writes a View as xDS resources and reads it back; [NewView] makes it.
type View struct {
	FrontEnd   FrontEndID
	Listen     string // "ip:port"
	BodyLimit  int64  // bytes
	Idle       time.Duration
	Models     []string    // as clients may call them
	Origins    []string    // of pages from which browsers may ask; "*": any
	Routes     []ViewRoute // in the order in which they are tried
	Classes    []ViewClass // by ID
	Unreadable ClassID     // where requests go whose model cannot be read; empty: 400

	Hold         time.Duration // a conversation stays so long at least where it is, if it can, when weights move it; 0: it does not
	TellDecision bool          // clients are told how their requests were decided
	TenantHeader string        // names the tenant; empty: they are not told apart
	Plan         string        // version of the resources that it was read from; empty: of none, or not asked for
}

// ViewRoute sends what matches one rule to a class.
type ViewRoute struct {
	Class ClassID
	Rule  Rule
}

// ViewClass is one class as a front-end sees it.
type ViewClass struct {
	ID       ClassID
	Priority int
	Affinity []AffinityKey
	Admitted float64 // fraction of requests to let in, 0–1
	Retry    RetryBudget
	Pools    []ViewPool // every eligible pool that has engines, by ID
}

// ViewPool is one pool as a class at a front-end sees it.
type ViewPool struct {
	ID      PoolID
	Region  string
	Weight  uint32 // of WeightScale; 0: eligible, but without a share
	TLS     *TLS
	Engines []ViewEngine // by address
}

// ViewEngine is one engine of a pool.
type ViewEngine struct {
	ID        EngineID
	Readiness Readiness
}

// Class returns the class of that name, or nil.
func (v *View) Class(id ClassID) *ViewClass {
	i, ok := slices.BinarySearchFunc(v.Classes, id, func(c ViewClass, id ClassID) int {
		return cmp.Compare(c.ID, id)
	})
	if !ok {
		return nil
	}
	return &v.Classes[i]
}

// ReadyEngines counts the engines that may be given traffic.
func (p *ViewPool) ReadyEngines() int {
	n := 0
	for _, e := range p.Engines {
		if e.Readiness.Serves() {
			n++
		}
	}
	return n
}

// EngineWeight is the weight of each of the pool's engines in its cluster: the
// pool's weight over its ready engines, at least 1, since Envoy refuses 0.
func (p *ViewPool) EngineWeight() uint32 {
	return max(1, p.Weight/uint32(max(1, p.ReadyEngines())))
}

// NewView returns what a front-end of the state's fleet is to be told of a plan.
// Classes that the plan does not route there (they have no eligible pool with an
// engine) are listed without pools, so that their requests get a clear answer.
func NewView(s *State, plan *Plan, id FrontEndID) *View {
	f := s.Fleet
	v := &View{
		FrontEnd:  id,
		Listen:    f.FrontEnd(id).Listen,
		BodyLimit: f.Options.BodyLimit,
		Idle:      f.Options.Idle,
		Origins:   f.Options.Origins,

		Hold:         f.Options.Hold,
		TellDecision: f.Options.TellDecision,
		TenantHeader: f.Options.TenantHeader,
		Unreadable:   f.Options.Unreadable,
	}
	for i := range f.Classes {
		c := &f.Classes[i]
		for _, r := range c.Match {
			v.Routes = append(v.Routes, ViewRoute{c.ID, r})
		}
		v.Models = append(v.Models, c.Names()...)
		v.Classes = append(v.Classes, newViewClass(s, plan, Stream{id, c.ID}))
	}
	slices.SortFunc(v.Classes, func(a, b ViewClass) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(v.Models)
	v.Models = slices.Compact(v.Models)
	return v
}

func newViewClass(s *State, plan *Plan, stream Stream) ViewClass {
	c := s.Fleet.Class(stream.Class)
	out := ViewClass{ID: c.ID, Priority: c.Priority, Affinity: c.Affinity, Admitted: 1}
	out.Retry = s.RetriesOf(stream).RetryBudget
	weights := map[PoolID]uint32{}
	if r := plan.Route(stream); r != nil {
		out.Admitted = r.Admitted()
		for i, w := range Weights(r.Shares) {
			weights[r.Shares[i].Pool] = w
		}
	}
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		if c.Eligible(p) && len(p.Engines) > 0 {
			out.Pools = append(out.Pools, newViewPool(s, p, weights[p.ID]))
		}
	}
	if !out.ready() {
		out.Admitted = 1 // nothing to save: "no engine" is the clearer answer than "too busy"
	}
	return out
}

func (c *ViewClass) ready() bool {
	return slices.ContainsFunc(c.Pools, func(p ViewPool) bool { return p.ReadyEngines() > 0 })
}

func newViewPool(s *State, p *Pool, weight uint32) ViewPool {
	out := ViewPool{ID: p.ID, Region: p.Region, Weight: weight, TLS: p.TLS}
	for _, e := range p.Engines {
		out.Engines = append(out.Engines, ViewEngine{e, s.Readiness(p.ID, e)})
	}
	return out
}

package solver

import (
	"cmp"
	"math"
	"slices"

	"weir/fleet"
)

// mostDoubt is the largest part of a demand that may be in doubt.
const mostDoubt = 0.5

var infinite = math.Inf(1)

// model is a state in the terms of the linear program. The order of pools,
// classes and streams is by ID alone, since the order of a program's columns
// decides between equally good plans.
type model struct {
	state    *fleet.State
	pools    []*pool        // by ID
	classes  []*class       // by ID
	streams  []*stream      // by front-end, then class; all with an option
	homeless []fleet.Stream // asked for, but no eligible pool has engines
	yield    float64        // price of giving way by one reference request, seconds
	lightest float64        // least size of a class, in reference requests
}

// pool is a pool and what plans may use of it.
type pool struct {
	*fleet.Pool
	index    int       // in model.pools
	replicas float64   // fresh replicas that it is worth; 0: no engine is ready
	capacity float64   // work that plans may use, engine-seconds per second
	segments []segment // of its queueing, up to the capacity
	capped   bool      // the operator's limit is less than what it can do
}

// steepest is the slope of the pool's queueing when it is full.
func (p *pool) steepest() float64 { return p.segments[len(p.segments)-1].slope }

// class is a class and where it may be served.
type class struct {
	*fleet.Class
	options []option // eligible pools that have engines, by ID; networks unset
	size    float64  // of a mean request, in reference requests
	price   float64  // of refusing the first requests, seconds
	doubt   float64  // price of leaving out demand that may not be there, seconds
}

// stream is the traffic of one class at one front-end.
type stream struct {
	id       fleet.Stream
	class    *class
	demand   float64      // RPS that may be let in; 0: idle
	refused  float64      // RPS beyond that, by the limit of the class
	doubt    float64      // RPS of the demand that may not be there
	previous *fleet.Route // nil: none
	options  []option     // by pool ID
	pins     []float64    // by option: the share that it is to have; none: it is not pinned. Nil: nothing is
}

// option is a pool that a class may use, and what it means for a request.
type option struct {
	pool    *pool
	network float64 // seconds
	base    float64 // seconds on an idle replica, weighted by the class
	work    float64 // engine-seconds
	move    float64 // seconds that a request must gain to be moved here
}

// cost is what a request costs there without any queueing, seconds.
func (o option) cost() float64 { return o.network + o.base + o.pool.PriceSeconds }

func (o option) ready() bool { return o.pool.replicas > 0 }

// idle says whether nobody asks for the stream.
func (st *stream) idle() bool { return st.demand == 0 }

// settled says whether the previous plan let in any of the stream: else nobody is
// there to be moved.
func (st *stream) settled() bool { return st.previous != nil && st.previous.Admitted() > 0 }

// share is what the pool had of a settled stream.
func (st *stream) share(p fleet.PoolID) float64 {
	if !st.settled() {
		return 0
	}
	return st.previous.ShareOf(p)
}

// ready says whether any engine may serve the class.
func (c *class) ready() bool { return slices.ContainsFunc(c.options, option.ready) }

func newModel(s *fleet.State) *model {
	m := &model{state: s}
	for i := range s.Fleet.Pools {
		m.pools = append(m.pools, newPool(s, &s.Fleet.Pools[i]))
	}
	slices.SortFunc(m.pools, func(a, b *pool) int { return cmp.Compare(a.ID, b.ID) })
	for i, p := range m.pools {
		p.index = i
	}
	for i := range s.Fleet.Classes {
		m.classes = append(m.classes, m.newClass(&s.Fleet.Classes[i]))
	}
	slices.SortFunc(m.classes, func(a, b *class) int { return cmp.Compare(a.ID, b.ID) })
	m.addStreams()
	m.price()
	return m
}

func newPool(s *fleet.State, p *fleet.Pool) *pool {
	out := &pool{Pool: p, replicas: s.Replicas(p)}
	if out.replicas == 0 {
		return out
	}
	usable := 1 - s.Fleet.Options.Headroom
	if most := p.MaxRps / p.Profile.CapacityRps / out.replicas; most > 0 && most < usable {
		usable, out.capped = most, true
	}
	out.capacity = out.replicas * usable
	out.segments = segments(&p.Profile, usable)
	return out
}

func (m *model) newClass(c *fleet.Class) *class {
	out := &class{Class: c}
	for _, p := range m.pools {
		if c.Eligible(p.Pool) && len(p.Engines) > 0 {
			out.options = append(out.options, option{pool: p, work: p.Profile.Work(m.state.TokensOf(c))})
		}
	}
	fastest := fastestDecode(out.options)
	for i := range out.options {
		out.options[i].base = base(c, m.state.TokensOf(c), &out.options[i].pool.Profile, fastest)
	}
	return out
}

func (m *model) addStreams() {
	for i := range m.state.Fleet.FrontEnds {
		for _, c := range m.classes {
			id := fleet.Stream{FrontEnd: m.state.Fleet.FrontEnds[i].ID, Class: c.ID}
			demand := m.state.Demand[id]
			switch {
			case len(c.options) > 0:
				m.streams = append(m.streams, m.newStream(id, c, demand))
			case demand.Rps > 0:
				m.homeless = append(m.homeless, id)
			}
		}
	}
	slices.SortStableFunc(m.streams, func(a, b *stream) int { return cmp.Compare(a.id.FrontEnd, b.id.FrontEnd) })
	slices.SortStableFunc(m.homeless, func(a, b fleet.Stream) int { return cmp.Compare(a.FrontEnd, b.FrontEnd) })
}

func (m *model) newStream(id fleet.Stream, c *class, demand fleet.Demand) *stream {
	st := &stream{id: id, class: c, demand: demand.Rps, options: slices.Clone(c.options)}
	st.limit(m.state.AdmittedByLimit(c.ID))
	if st.demand < idleRps {
		st.demand = 0
	}
	st.doubt = min(demand.DoubtRps, mostDoubt*st.demand)
	if m.state.Previous != nil {
		st.previous = m.state.Previous.Route(id)
	}
	for i := range st.options {
		o := &st.options[i]
		o.network = m.state.RoundTrip(fleet.Link{FrontEnd: id.FrontEnd, Pool: o.pool.ID})
	}
	m.priceMoves(st)
	m.pin(st)
	return st
}

// fastestDecode is the least unloaded TBT among pools whose TBT is known, seconds.
func fastestDecode(options []option) float64 {
	fastest, known := 0.0, false
	for _, o := range options {
		if tbt := o.pool.Profile.TBT; len(tbt) > 0 && (!known || tbt.At(0) < fastest) {
			fastest, known = tbt.At(0), true
		}
	}
	return fastest
}

// base is what a request of the class takes on an idle replica, as far as the
// choice of pool changes it: TTFT, and the decode time that a faster SKU would
// save. A pool whose TBT is not known is taken to be as fast as the fastest.
func base(c *fleet.Class, size fleet.Tokens, p *fleet.Profile, fastest float64) float64 {
	seconds := c.Weights.TTFT * p.TTFT.At(0)
	if len(p.TBT) == 0 {
		return seconds
	}
	output := size.Output
	if size == (fleet.Tokens{}) {
		output = p.Reference.Output
	}
	return seconds + c.Weights.TBT*output*(p.TBT.At(0)-fastest)
}

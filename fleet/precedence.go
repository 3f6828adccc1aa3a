package fleet

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// Precedence is a class that is ahead of another: of higher priority, and in the same pools.
// The other's ceiling is what the plan of those ahead leaves. They may ask for more, and get
// it at once; the plan knows of it some seconds later, and until then both together are more
// than can be served.
type Precedence struct {
	Class ClassID
	Part  float64 // requests of the other that must go for one more of this class
}

const (
	// What is told of who is ahead goes to each front-end and back into each step of its
	// gates: less than leastPart is left out, and of very many classes all but mostAhead.
	leastPart, mostAhead = 0.01, 16
	// hardly is the RPS of a route that has none, so that idle peers are alike.
	hardly = 1e-9
	// mostWork is how many requests one may stand for, whatever their sizes are measured to be.
	mostWork = 100
)

// ranked is a route beside the others of its front-end.
type ranked struct {
	*Route
	priority int
	work     float64   // of a mean request, engine-seconds; 1: not known
	peers    []float64 // its part of what is planned for its priority, in each of its pools
}

// place is a priority in a pool.
type place struct {
	pool     PoolID
	priority int
}

// frontEnds are the routes of each front-end.
func (p *Plan) frontEnds() iter.Seq[[]Route] {
	return func(yield func([]Route) bool) {
		for from, to := 0, 0; from < len(p.Routes); from = to {
			for to < len(p.Routes) && p.Routes[to].FrontEnd == p.Routes[from].FrontEnd {
				to++
			}
			if !yield(p.Routes[from:to]) {
				return
			}
		}
	}
}

// rank ranks the routes of a front-end. Those of classes that the fleet has no more are ahead
// of none.
func rank(s *State, routes []Route) []ranked {
	out, planned := make([]ranked, len(routes)), map[place]float64{}
	for i := range routes {
		out[i] = ranked{Route: &routes[i], priority: math.MinInt, work: 1, peers: make([]float64, len(routes[i].Shares))}
		if c := s.Fleet.Class(routes[i].Class); c != nil {
			out[i].priority, out[i].work = c.Priority, workOf(s, c, &routes[i])
		}
		for _, share := range routes[i].Shares {
			planned[place{share.Pool, out[i].priority}] += share.Rps + hardly
		}
	}
	for i := range out {
		for k, share := range out[i].Shares {
			out[i].peers[k] = (share.Rps + hardly) / planned[place{share.Pool, out[i].priority}]
		}
	}
	return out
}

// workOf is what a mean request of a route costs an engine, engine-seconds; 1: not known.
func workOf(s *State, c *Class, r *Route) (sum float64) {
	for _, share := range r.Shares {
		if p := s.Fleet.Pool(share.Pool); p != nil {
			sum += share.Share * p.Profile.Work(s.TokensOf(c))
		}
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return 1
	}
	return sum
}

// ahead are the classes of some routes that are ahead of a route's.
func (r *ranked) ahead(all []ranked) (out []Precedence) {
	for i := range all {
		if all[i].priority <= r.priority {
			continue
		}
		if part := r.overlap(&all[i]); part >= leastPart {
			out = append(out, Precedence{all[i].Class, stepped(part)})
		}
	}
	if len(out) > mostAhead {
		slices.SortStableFunc(out, func(a, b Precedence) int { return cmp.Compare(b.Part, a.Part) })
		out = out[:mostAhead]
		slices.SortFunc(out, func(a, b Precedence) int { return cmp.Compare(a.Class, b.Class) })
	}
	return out
}

// overlap is how many requests of a route must go for one more of another, so that the pools
// are as full as before; a peer's part of them is that of what is planned. Where the two are
// spread differently no number is right for each pool, and it is the one of least squares.
func (r *ranked) overlap(ahead *ranked) float64 {
	both, own, others := 0.0, 0.0, ahead.Shares
	for i, s := range r.Shares {
		own += s.Share * s.Share
		for len(others) > 0 && others[0].Pool < s.Pool { // both are by pool
			others = others[1:]
		}
		if len(others) > 0 && others[0].Pool == s.Pool {
			both += s.Share * others[0].Share * r.peers[i]
		}
	}
	if own <= 0 {
		return 0
	}
	return min(1, both/own) * min(mostWork, ahead.work/r.work)
}

// OpenAhead is how many requests are open of the classes ahead, as far as they count here.
func (c *ClassAdmission) OpenAhead(open func(ClassID) float64) (sum float64) {
	for _, p := range c.Ahead {
		sum += p.Part * open(p.Class)
	}
	return sum
}

package fleet

import (
	"cmp"
	"math"
	"slices"
)

// Admission is how much may enter at one front-end, as its weir-extprocs are told each
// round: what guards the moments between two plans. Without it the fractions of the
// [View] rule alone.
type Admission struct {
	Nodes   []NodeShare      // by name
	Classes []ClassAdmission // by ID
}

// NodeShare is the part of a front-end's requests that one of its Envoys takes in.
type NodeShare struct {
	Node  string
	Share float64 // 0–1
}

// ClassAdmission is that of one class.
type ClassAdmission struct {
	Class             ClassID
	CeilingRps        Amount  // that can be served of it, at all Envoys of the front-end together
	RetryAfterSeconds float64 // when who is refused may come back at the earliest
	Limited           bool    // the ceiling is an operator's limit, or keeps it: no more may enter
	SpareRps          float64 // that could be served beside the limit; 0 without one
	Short             bool    // the plan refuses a part of it for want of capacity; a limit alone is none

	PlannedRps Amount       // that the plan lets in at the front-end; unknown: the file's demand rules
	Ahead      []Precedence // classes that are ahead of it, by ID
}

// Strict says that nothing may enter beside the ceiling: it is an operator's limit, which can
// be served.
func (c *ClassAdmission) Strict() bool { return c.Limited && !c.Short }

const (
	// freeStep is the least part of a pool's spare capacity that a class may take at
	// once, however small it was: for the seconds until a plan knows of it.
	freeStep = 0.25
	// leastFree is the same of what no plan gives to anybody and is used all the same, by
	// those who come back: not nothing, for a class that was idle would be shut out.
	leastFree = 0.02
	// A queue in the engines that is longer than the work of so many seconds, and than so
	// many requests at each, is drained within drainSeconds, for which a part of the
	// capacity is kept. Where an engine serves few, chance alone has that many wait.
	toleratedSeconds, toleratedEach, drainSeconds = 0.5, 4, 5
	// leastLeft is the part of a pool's capacity that is left for new requests however
	// long its queue is.
	leastLeft = 0.2
	// Those who are refused come back after so many seconds, and later the more there
	// are of them for what can be served.
	leastRetryAfter, mostRetryFactor = 5, 3
)

// ShareOf returns the part of the requests that a node takes in. One that is not known
// yet is as any other.
func (a *Admission) ShareOf(node string) float64 {
	i, ok := slices.BinarySearchFunc(a.Nodes, node, func(n NodeShare, id string) int { return cmp.Compare(n.Node, id) })
	if ok {
		return a.Nodes[i].Share
	}
	return 1 / float64(len(a.Nodes)+1)
}

// Class returns what is said of a class, or nil.
func (a *Admission) Class(id ClassID) *ClassAdmission {
	i, ok := slices.BinarySearchFunc(a.Classes, id, func(c ClassAdmission, id ClassID) int { return cmp.Compare(c.Class, id) })
	if !ok {
		return nil
	}
	return &a.Classes[i]
}

// NewAdmissions says what each front-end of a state's fleet may let in by a plan.
func NewAdmissions(s *State, plan *Plan) map[FrontEndID]*Admission {
	spare := newSpare(s, plan)
	anywhere := spare.anywhere(s.Fleet)
	out := make(map[FrontEndID]*Admission, len(s.Fleet.FrontEnds))
	for i := range s.Fleet.FrontEnds {
		id := s.Fleet.FrontEnds[i].ID
		out[id] = &Admission{Nodes: s.Nodes[id]}
	}
	for routes := range plan.frontEnds() {
		a, all := out[routes[0].FrontEnd], rank(s, routes)
		for i := range routes {
			c := s.Fleet.Class(routes[i].Class)
			if a == nil || c == nil {
				continue
			}
			admission := ClassAdmission{Class: c.ID, RetryAfterSeconds: routes[i].retryAfter()}
			if !s.Fleet.Options.DeclaredOnly { // else the file's demand rules, and is not what comes
				admission.Short = short(s, plan, &routes[i])
				admission.CeilingRps = spare.ceiling(&routes[i], c.Priority, admission.Short, anywhere[c.ID])
				admission.keep(limitOf(s, plan, &routes[i]))
				admission.PlannedRps, admission.Ahead = Known(stepped(routes[i].admittedRps())), all[i].ahead(all)
			}
			a.Classes = append(a.Classes, admission)
		}
	}
	return out
}

// keep has a ceiling keep a limit, too. One that is more than can be served, by more than
// ceilings are rounded, rules nothing.
func (c *ClassAdmission) keep(limitRps Amount) {
	if !limitRps.Known || !c.CeilingRps.Known || limitRps.Value > 1.05*c.CeilingRps.Value {
		return
	}
	c.Limited, c.SpareRps = true, stepped(max(0, c.CeilingRps.Value-limitRps.Value))
	c.CeilingRps = Known(min(c.CeilingRps.Value, atMost(limitRps.Value)))
}

// limitOf is a route's part of its class's limit: what the plan lets in, and of what that
// leaves of the limit this front-end's part. A plan that lets in more, being frozen, does not
// know of the limit, which waits.
func limitOf(s *State, plan *Plan, r *Route) Amount {
	limit := s.LimitOf(r.Class)
	if limit == nil {
		return Amount{}
	}
	admitted := plan.admittedRps(r.Class)
	if admitted > limit.Rps*(1+1e-6) {
		return Amount{}
	}
	return Known(r.admittedRps() + max(0, limit.Rps-admitted)*plan.partOfRest(r))
}

// partOfRest is a route's part of what may enter of its class and is not planned: one half
// goes by demand, the other to all front-ends alike, for those that were idle.
func (p *Plan) partOfRest(r *Route) float64 {
	demand, routes := 0.0, 0.0
	for i := range p.Routes {
		if p.Routes[i].Class == r.Class {
			demand += p.Routes[i].DemandRps
			routes++
		}
	}
	if demand <= 0 {
		return 1 / routes
	}
	return (r.DemandRps/demand + 1/routes) / 2
}

// short says whether a part of a route is refused for want of capacity: there is no
// limit, or one of which not all is let in, but for what is lost in rounding.
func short(s *State, plan *Plan, r *Route) bool {
	limit := s.LimitOf(r.Class)
	return r.ShedRps > 0 && (limit == nil || plan.admittedRps(r.Class) < 0.999*limit.Rps)
}

// admittedRps is what the plan lets in of a class, at all front-ends together.
func (p *Plan) admittedRps(c ClassID) float64 {
	sum := 0.0
	for i := range p.Routes {
		if r := &p.Routes[i]; r.Class == c {
			sum += r.admittedRps()
		}
	}
	return sum
}

// retryAfter is how long it would take to serve, after a few seconds of what is refused
// now, all who then wait to come back, if nobody else came.
func (r *Route) retryAfter() float64 {
	if r.ShedRps <= 0 {
		return leastRetryAfter
	}
	admitted := r.DemandRps - r.ShedRps
	factor := float64(mostRetryFactor)
	if admitted > 0 {
		factor = min(factor, max(1, r.DemandRps/admitted))
	}
	return math.Round(leastRetryAfter * factor)
}

// spare is what pools could serve, and what is planned of it, by priority.
type spare map[PoolID]*poolSpare

type poolSpare struct {
	capacityRps float64 // less what drains the queue
	free        float64 // part of what no plan gives to anybody that any class may take at once, 0–1
	planned     map[int]float64
}

func newSpare(s *State, plan *Plan) spare {
	out := spare{}
	for _, q := range plan.Pools {
		if q.CapacityRps > 0 {
			out[q.Pool] = &poolSpare{left(s, &q), free(s, &q), map[int]float64{}}
		}
	}
	for i := range plan.Routes {
		c := s.Fleet.Class(plan.Routes[i].Class)
		if c == nil {
			continue
		}
		for _, share := range plan.Routes[i].Shares {
			if p := out[share.Pool]; p != nil {
				p.planned[c.Priority] += share.Rps
			}
		}
	}
	return out
}

// left is a pool's capacity less what drains its engines' queues, as far as these are
// known.
func left(s *State, q *PoolPlan) float64 {
	queued, tolerated := 0.0, 0.0
	for _, e := range s.Pools[q.Pool].Signals.Engines {
		if e.Queued.Fresh() {
			queued += e.Queued.Value
			tolerated += toleratedEach
		}
	}
	excess := max(0, queued-max(tolerated, toleratedSeconds*q.CapacityRps))
	return max(leastLeft*q.CapacityRps, q.CapacityRps-excess/drainSeconds)
}

// free is the part of what the plan leaves of a pool that any class may take at once. All may
// at the same time, so there is less of it the more of what is left is used: who comes back is
// in no plan.
func free(s *State, q *PoolPlan) float64 {
	sent, unplanned := s.Pools[q.Pool].Signals.SentRps, q.CapacityRps-q.Rps
	if !sent.Fresh() || unplanned <= 0 {
		return freeStep
	}
	return max(leastFree, freeStep*min(1, (q.CapacityRps-sent.Value)/unplanned))
}

// room is a pool as one priority sees it, RPS.
type room struct {
	planned   float64 // for it
	held      float64 // what can be served of that, with what drains the queue
	lower     float64 // what lower ones were to have
	unplanned float64 // what nobody was
}

func (p *poolSpare) room(priority int) (out room) {
	rest := p.capacityRps
	for other, rps := range p.planned {
		switch {
		case other > priority:
			rest -= rps
		case other < priority:
			out.lower += rps
		}
	}
	rest = max(0, rest)
	out.planned = p.planned[priority]
	out.held = min(out.planned, rest)
	out.lower = min(out.lower, rest-out.held)
	out.unplanned = rest - out.held - out.lower
	return out
}

// atOnce is what any class of a priority may take beside what is planned.
func (p *poolSpare) atOnce(priority int) float64 {
	r := p.room(priority)
	return freeStep*r.lower + p.free*r.unplanned
}

// anywhere is that of all pools that may serve each class: where those that a class has
// are full, the next plan gives it others, and nothing need be refused meanwhile.
func (s spare) anywhere(f *Fleet) map[ClassID]float64 {
	out := make(map[ClassID]float64, len(f.Classes))
	for i := range f.Classes {
		c := &f.Classes[i]
		for j := range f.Pools {
			if p := s[f.Pools[j].ID]; p != nil && c.Eligible(&f.Pools[j]) {
				out[c.ID] += p.atOnce(c.Priority)
			}
		}
	}
	return out
}

// ceiling is what can be served of a route. Where the plan refuses a part of it for want of
// capacity, that is what the plan admits. Else there come to it, in each of its pools, its
// part of what is spare, and of all others that may serve it what any class may take.
func (s spare) ceiling(r *Route, priority int, short bool, anywhere float64) Amount {
	sum := 0.0
	if !short {
		sum = anywhere
	}
	for _, share := range r.Shares {
		p := s[share.Pool]
		if p == nil {
			return Amount{}
		}
		room := p.room(priority)
		if room.planned <= 0 {
			continue
		}
		part := share.Rps / room.planned
		sum += part * room.held
		if !short {
			sum += room.lower*max(0, part-freeStep) + room.unplanned*max(0, part-p.free)
		}
	}
	return Known(stepped(sum))
}

// stepped is a number to within 1.5 %, so that what changes by chance alone seldom looks
// changed.
func stepped(x float64) float64 { return onSteps(x, 1.03, math.Round) }

// atMost is the same to within 1 %, and no more than the number, but for rounding errors.
func atMost(x float64) float64 {
	return onSteps(x, 1.01, func(steps float64) float64 { return math.Floor(steps + 1e-6) })
}

// onSteps finds a power of a step near a number.
func onSteps(x, step float64, round func(steps float64) float64) float64 {
	if x < 1e-6 {
		return 0
	}
	return math.Exp(round(math.Log(x)/math.Log(step)) * math.Log(step))
}

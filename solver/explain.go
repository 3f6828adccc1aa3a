package solver

import (
	"fmt"
	"strings"

	"weir/fleet"
	"weir/solver/lp"
)

// Explain makes the plan of a state once more, and says why it is as it is. Since the
// same state gives the same plan, nothing need be kept of how that was made.
func Explain(s *fleet.State, solve Solve) (*fleet.Explanation, error) {
	if err := check(s); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	p := newProgram(newModel(s))
	solution, err := p.solve(solve)
	if err != nil {
		return nil, err
	}
	r := p.read(solution)
	r.refine()
	e := newExplanation(p, solution, r)
	return &fleet.Explanation{Streams: e.streams(), Pools: e.pools()}, nil
}

type explanation struct {
	*program
	solution *lp.Solution
	routing  *routing
	// The columns of each stream: looking through all for each option would take the
	// square of a large fleet.
	flowsOf [][]flow
	shedsOf [][]shed
}

func newExplanation(p *program, s *lp.Solution, r *routing) *explanation {
	n := len(p.model.streams)
	e := &explanation{program: p, solution: s, routing: r, flowsOf: make([][]flow, n), shedsOf: make([][]shed, n)}
	for _, f := range p.flows {
		e.flowsOf[f.stream] = append(e.flowsOf[f.stream], f)
	}
	for _, c := range p.sheds {
		e.shedsOf[c.stream] = append(e.shedsOf[c.stream], c)
	}
	return e
}

func (e *explanation) streams() []fleet.StreamWhy {
	out := []fleet.StreamWhy{}
	for i, st := range e.model.streams {
		why := fleet.StreamWhy{
			FrontEnd: st.id.FrontEnd, Class: st.id.Class,
			DemandRps: e.routing.demand[i] + st.refused, ShedRps: e.routing.shed[i] + st.refused,
			MarginalSeconds: e.marginal(i), Limit: e.limit(st),
		}
		shares := e.routing.shares(i)
		for j := range st.options {
			why.Options = append(why.Options, e.option(i, j, shares[j]))
		}
		e.compare(i, why.Options)
		out = append(out, why)
	}
	return out
}

// marginal is what one more request of a stream costs. Demand stands in its row and
// in the bounds of what stays and of what is refused, so that all of them count.
func (e *explanation) marginal(i int) float64 {
	st := e.model.streams[i]
	if e.demand[i] == none {
		return e.idleMarginal(st)
	}
	seconds := e.dual(e.demand[i])
	for _, f := range e.flowsOf[i] {
		if !f.moved && st.settled() {
			seconds += e.atBound(f.column) * e.Columns[f.column].Upper / st.demand
		}
	}
	for _, c := range e.shedsOf[i] {
		seconds += e.atBound(c.column) * e.Columns[c.column].Upper / st.demand
	}
	return seconds
}

// idleMarginal is that of a stream that nobody asks for: where it would go.
func (e *explanation) idleMarginal(st *stream) float64 {
	least := infinite
	for _, o := range st.options {
		if o.ready() {
			least = min(least, e.routing.marginal(st.class, o))
		}
	}
	if least == infinite {
		return 0
	}
	return least
}

// atBound is what a column's upper bound would save if it were higher; 0 or below.
func (e *explanation) atBound(column int) float64 {
	return min(0, e.solution.ReducedCosts[column])
}

func (e *explanation) dual(row int) float64 {
	if row == none || len(e.solution.RowDuals) == 0 {
		return 0
	}
	return e.solution.RowDuals[row]
}

// option prices the next request to a pool, from the duals.
func (e *explanation) option(i, j int, share float64) fleet.OptionWhy {
	st := e.model.streams[i]
	o := &st.options[j]
	why := fleet.OptionWhy{
		Pool: o.pool.ID, Share: share,
		NetworkSeconds: o.network, EngineSeconds: o.base, PriceSeconds: o.pool.PriceSeconds,
	}
	f, ok := e.flowOf(i, j)
	if !ok {
		return e.unplanned(st, o, why)
	}
	why.EngineSeconds -= e.dual(e.work[o.pool.index]) * o.work
	for _, entry := range e.Columns[f.column].Entries {
		if entry.Row != e.demand[i] && entry.Row != e.work[o.pool.index] {
			why.LimitSeconds -= entry.Value * e.dual(entry.Row)
		}
	}
	if f.moved {
		why.MoveSeconds = o.move
	}
	return why
}

// compare says by how much each option is worse than the dearest in use, and why it
// has what it has. Where nobody is let in, the comparison is with that refusal.
func (e *explanation) compare(i int, options []fleet.OptionWhy) {
	reference, used := e.dual(e.demand[i]), false
	for j := range options {
		o := &options[j]
		if e.routing.rps[i][j] > 0 || e.demand[i] == none && o.Share > 0 {
			if cost := o.Cost(); !used || cost > reference {
				reference, used = cost, true
			}
		}
	}
	st := e.model.streams[i]
	for j := range options {
		if o := &options[j]; st.options[j].ready() {
			o.WorseSeconds = o.Cost() - reference
			o.Why = e.pinned(st, o) + e.reason(st, &st.options[j], o)
		} else {
			o.Why = e.unready(st.options[j].pool)
		}
	}
}

// flowOf is the column that an option's last request goes by: what stays, unless more
// comes.
func (e *explanation) flowOf(i, j int) (flow, bool) {
	var out flow
	found := false
	for _, f := range e.flowsOf[i] {
		if f.option == j && (!found || e.solution.X[f.column] > dustRps) {
			out, found = f, true
		}
	}
	return out, found
}

// unplanned is an option that the program has no column for: no engine is ready, or
// nobody asks for the stream.
func (e *explanation) unplanned(st *stream, o *option, why fleet.OptionWhy) fleet.OptionWhy {
	if !o.ready() {
		return why
	}
	why.EngineSeconds = e.routing.marginal(st.class, *o) - o.network - o.pool.PriceSeconds
	if why.Share == 0 {
		why.MoveSeconds = o.move
	}
	return why
}

func (e *explanation) reason(st *stream, o *option, why *fleet.OptionWhy) string {
	switch full := e.routing.full(o.pool); {
	case why.Share > 0 && st.idle() && st.refused > 0:
		return "the limit lets nobody in: a request would go here"
	case why.Share > 0 && st.idle():
		return "nobody asks for it: a request would go here"
	case why.Share > 0 && full:
		return "used, and full"
	case why.Share > 0:
		return "used"
	case full:
		return fmt.Sprintf("full with requests for which it is worth more: %s worse here", ms(why.WorseSeconds))
	case st.settled() && why.WorseSeconds < o.move:
		return fmt.Sprintf("not enough better to move: %s short", ms(why.WorseSeconds))
	}
	return fmt.Sprintf("%s worse", ms(why.WorseSeconds))
}

// limit says what the limit of a stream's class does.
func (e *explanation) limit(st *stream) string {
	l := e.model.state.LimitOf(st.id.Class)
	if l == nil {
		return ""
	}
	text := fmt.Sprintf("limited by %s to %.4g RPS over all front-ends", l.Owner, l.Rps)
	if st.refused == 0 {
		return text + ": refuses nothing"
	}
	return fmt.Sprintf("%s: refuses %.4g RPS here", text, st.refused)
}

// pinned begins the reason of an option that somebody has pinned the stream to.
func (e *explanation) pinned(st *stream, o *fleet.OptionWhy) string {
	pin := e.model.state.PinOf(st.id, o.Pool)
	if pin == nil {
		return ""
	}
	return fmt.Sprintf("pinned to %.4g %% by %s: ", 100*pin.Share, pin.Owner)
}

// unready says why a pool has no engine that serves.
func (e *explanation) unready(p *pool) string {
	if drains := e.drains(p); drains != nil {
		return "no engine is ready: " + strings.Join(drains, "; ")
	}
	return "no engine is ready"
}

// drains says who has drained how many of a pool's engines.
func (e *explanation) drains(p *pool) []string {
	var owners []string
	count := map[string]int{}
	for _, engine := range p.Engines {
		if b := e.model.state.DrainedBy(p.ID, engine); b != nil {
			if count[b.Owner]++; count[b.Owner] == 1 {
				owners = append(owners, b.Owner)
			}
		}
	}
	var out []string
	for _, owner := range owners {
		out = append(out, fmt.Sprintf("%d of %d engines drained by %s", count[owner], len(p.Engines), owner))
	}
	return out
}

func ms(seconds float64) string { return fmt.Sprintf("%.2f ms", 1000*seconds) }

func (e *explanation) pools() []fleet.PoolWhy {
	admitted := 0.0
	for i := range e.model.streams {
		admitted += e.routing.demand[i] - e.routing.shed[i]
	}
	out := []fleet.PoolWhy{}
	for _, q := range e.routing.pools() {
		p := e.model.pool(q.Pool)
		gain := e.model.state.ReplicaGain(&q)
		why := fleet.PoolWhy{
			Pool: q.Pool, CapacityRps: q.CapacityRps, Rps: q.Rps, Utilisation: q.Utilisation,
			Binds: p.replicas > 0 && e.routing.full(p), Limits: e.limits(p), ReplicaGain: gain,
		}
		if admitted > 0 {
			why.ReplicaGainSeconds = gain / admitted
		}
		out = append(out, why)
	}
	return out
}

// limits says of each of a pool's limits that shapes the plan what it costs, and who has
// drained engines.
func (e *explanation) limits(p *pool) []string {
	out := append([]string{}, e.drains(p)...)
	if p.capped && e.routing.full(p) {
		out = append(out, "max: kept, and no replica more would be used")
	}
	for _, b := range e.bounds {
		price := e.dual(b.row)
		if b.pool != p.index || price == 0 {
			continue
		}
		text := b.String() + ": kept"
		if e.solution.X[b.yield] > dustRps {
			text = fmt.Sprintf("%v: missed by %.4g RPS", b, e.solution.X[b.yield])
		}
		out = append(out, fmt.Sprintf("%s, the last request by it costs %s", text, ms(max(price, -price))))
	}
	return out
}

func (b bound) String() string {
	side := "max"
	if b.least {
		side = "min"
	}
	switch l := b.limit; {
	case l == nil:
		return side
	case b.pin:
		return fmt.Sprintf("pin of %s at %s, its %s", l.Class, l.FrontEnd, side)
	case l.Class != "":
		return fmt.Sprintf("%s of %s at %s", side, l.Class, l.FrontEnd)
	default:
		return fmt.Sprintf("%s of %s", side, l.FrontEnd)
	}
}

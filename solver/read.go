package solver

import (
	"slices"

	"weir/fleet"
	"weir/solver/lp"
)

// What is below these is rounding.
const (
	dust    = 1e-9 // of a stream's rate
	dustRps = 1e-9
)

// routing is a solution in the model's terms.
type routing struct {
	model  *model
	rps    [][]float64 // by stream, by option
	demand []float64   // RPS by stream, without what was left out as doubtful
	shed   []float64   // RPS by stream
	work   []float64   // engine-seconds per second by pool
	relief []float64   // by pool: seconds per second that a pool twice as large would save; 0: not allowed
	given  [][]float64 // by stream, by option: shares that a policy gives; nil: those of the rates
}

// newRouting routes nothing yet. What is asked of classes without a ready engine is
// refused.
func newRouting(m *model) *routing {
	r := &routing{
		model:  m,
		rps:    make([][]float64, len(m.streams)),
		demand: make([]float64, len(m.streams)),
		shed:   make([]float64, len(m.streams)),
		work:   make([]float64, len(m.pools)),
		relief: make([]float64, len(m.pools)),
		given:  make([][]float64, len(m.streams)),
	}
	for i, st := range m.streams {
		r.rps[i] = make([]float64, len(st.options))
		r.demand[i] = st.demand
		if !st.class.ready() {
			r.shed[i] = st.demand
		}
	}
	return r
}

// read takes the routing from a solution of the program. Each stream's rates are
// cleared of rounding and add up to what is admitted.
func (p *program) read(s *lp.Solution) *routing {
	r := newRouting(p.model)
	for _, c := range p.doubts {
		if left := s.X[c.column]; left > dust*r.demand[c.stream] {
			r.demand[c.stream] -= left
		}
	}
	for _, f := range p.flows {
		r.rps[f.stream][f.option] += s.X[f.column]
	}
	for _, c := range p.sheds {
		r.shed[c.stream] += s.X[c.column]
	}
	for _, f := range p.fills {
		if rise := -s.ReducedCosts[f.column]; rise > 0 && !p.model.pools[f.pool].capped {
			r.relief[f.pool] += rise * p.Columns[f.column].Upper
		}
	}
	for i := range p.model.streams {
		r.settle(i)
	}
	r.load()
	return r
}

// settle clears a stream's rates of rounding.
func (r *routing) settle(i int) {
	demand, rps := r.demand[i], r.rps[i]
	total := 0.0
	for _, v := range rps {
		total += v
	}
	if total < dustRps {
		r.shed[i] = demand
		clear(rps)
		return
	}
	admitted := total
	if r.shed[i] < dust*demand {
		admitted = demand
	}
	r.shed[i] = max(0, demand-admitted)
	for j, v := range rps {
		if v < dust*total {
			rps[j] = 0
		}
	}
	for j, share := range normalised(rps) {
		rps[j] = share * admitted
	}
}

// load sums the work of every pool.
func (r *routing) load() {
	clear(r.work)
	for i, st := range r.model.streams {
		for j, o := range st.options {
			r.work[o.pool.index] += o.work * r.rps[i][j]
		}
	}
}

// plan writes the routing as a plan.
func (r *routing) plan() *fleet.Plan {
	plan := &fleet.Plan{Status: fleet.Optimal, Why: r.why()}
	if plan.Why != "" {
		plan.Status = fleet.Shedding
	}
	for i := range r.model.streams {
		plan.Routes = append(plan.Routes, r.route(i))
	}
	plan.MeanSeconds = meanSeconds(plan.Routes)
	plan.Pools = r.pools()
	return plan
}

// meanSeconds is the mean latency of what is admitted. Where nothing is, all
// streams count alike.
func meanSeconds(routes []fleet.Route) float64 {
	var seconds, total, idle float64
	for i := range routes {
		for _, s := range routes[i].Shares {
			latency := s.NetworkSeconds + s.EngineSeconds
			seconds += s.Rps * latency
			total += s.Rps
			idle += s.Share * latency
		}
	}
	switch {
	case total > 0:
		return seconds / total
	case len(routes) > 0:
		return idle / float64(len(routes))
	}
	return 0
}

func (r *routing) route(i int) fleet.Route {
	st := r.model.streams[i]
	route := fleet.Route{
		FrontEnd:  st.id.FrontEnd,
		Class:     st.id.Class,
		DemandRps: r.demand[i] + st.refused,
		ShedRps:   r.shed[i] + st.refused,
	}
	shares := r.shares(i)
	route.SettledSeconds = r.model.settle(st, shares)
	for j, share := range shares {
		if share > 0 {
			o := st.options[j]
			route.Shares = append(route.Shares, fleet.Share{
				Pool:           o.pool.ID,
				Share:          share,
				Rps:            r.rps[i][j],
				NetworkSeconds: o.network,
				EngineSeconds:  o.base + o.work*queueing(&o.pool.Profile, r.utilisation(o.pool)),
			})
		}
	}
	return route
}

// shares are a stream's shares by option. A stream that is refused wholly, or
// that has no ready engine, keeps those it had, so that its engines stay listed;
// failing that, it is spread by what the pools can do, over ready pools if there
// are any.
func (r *routing) shares(i int) []float64 {
	st := r.model.streams[i]
	if r.given[i] != nil {
		return r.given[i]
	}
	if st.idle() && st.class.ready() {
		return r.idleShares(st)
	}
	if shares := normalised(r.rps[i]); shares != nil {
		return shares
	}
	had, can := make([]float64, len(st.options)), make([]float64, len(st.options))
	for j, o := range st.options {
		if st.class.ready() && !o.ready() {
			continue
		}
		can[j] = float64(len(o.pool.Engines)) * o.pool.Profile.CapacityRps
		if st.previous != nil {
			had[j] = st.previous.ShareOf(o.pool.ID)
		}
	}
	if shares := normalised(had); shares != nil {
		return shares
	}
	return normalised(can)
}

// normalised returns the parts over their sum, or nil if that is 0.
func normalised(parts []float64) []float64 {
	sum := 0.0
	for _, p := range parts {
		sum += p
	}
	if sum <= 0 {
		return nil
	}
	out := slices.Clone(parts)
	for i := range out {
		out[i] /= sum
	}
	return out
}

// utilisation is that of one of the pool's replicas; headroom is not taken off.
func (r *routing) utilisation(p *pool) float64 {
	if p.replicas == 0 {
		return 0
	}
	return r.work[p.index] / p.replicas
}

func (r *routing) pools() []fleet.PoolPlan {
	out := make([]fleet.PoolPlan, len(r.model.pools))
	for i, p := range r.model.pools {
		out[i].Pool, out[i].Health = p.ID, r.model.state.Health(p.ID)
	}
	for i, st := range r.model.streams {
		for j, o := range st.options {
			out[o.pool.index].Rps += r.rps[i][j]
		}
	}
	for i, p := range r.model.pools {
		if p.replicas == 0 {
			continue
		}
		mean := 1 / p.Profile.CapacityRps
		if out[i].Rps > 0 {
			mean = r.work[i] / out[i].Rps
		}
		out[i].CapacityRps = p.capacity / mean
		out[i].Utilisation = r.work[i] / p.capacity
		out[i].PriceSeconds = r.relief[i] / out[i].CapacityRps
	}
	return out
}

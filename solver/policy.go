package solver

import (
	"fmt"
	"strings"

	"weir/fleet"
)

// Policy makes a plan of a state. The same state gives the same plan, bit for bit.
type Policy func(*fleet.State) (*fleet.Plan, error)

// Policies are all policies by name; [fleet.Policies] has their order. Those that
// solve a linear program do so by solve.
func Policies(solve Solve) map[string]Policy {
	return map[string]Policy{
		fleet.PolicyOptimal:      func(s *fleet.State) (*fleet.Plan, error) { return Plan(s, solve) },
		fleet.PolicyWaterfall:    routed(fleet.PolicyWaterfall, waterfall),
		fleet.PolicyLocal:        routed(fleet.PolicyLocal, func(m *model) (*routing, error) { return local(m, solve) }),
		fleet.PolicyNearest:      routed(fleet.PolicyNearest, spread(func(*model) rule { return nearest })),
		fleet.PolicyEven:         routed(fleet.PolicyEven, spread(func(m *model) rule { return func(st *stream) []float64 { return even(m, st.options) } })),
		fleet.PolicyProportional: routed(fleet.PolicyProportional, spread(proportional)),
	}
}

// routed makes a policy of a way to route a model. What its plans say is reckoned as
// for all others, so that they compare.
func routed(name string, route func(*model) (*routing, error)) Policy {
	return func(s *fleet.State) (*fleet.Plan, error) {
		if err := check(s); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		r, err := route(newModel(s))
		if err != nil {
			return nil, err
		}
		plan := r.plan()
		plan.Policy = name
		over := overfull(plan)
		switch {
		case plan.Status == fleet.Optimal:
			plan.Status, plan.Why = fleet.Routed, over
		case over != "":
			plan.Why += "; " + over
		}
		if err := r.check(plan); err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		return plan, nil
	}
}

// overfull names the pools that are asked for more than they can do.
func overfull(plan *fleet.Plan) string {
	var over []string
	for _, p := range plan.Pools {
		if p.Utilisation > 1+1e-6 {
			over = append(over, fmt.Sprintf("%s (%.0f %%)", p.Pool, 100*p.Utilisation))
		}
	}
	if over == nil {
		return ""
	}
	return "planned above capacity, requests wait ever longer: " + strings.Join(over, ", ")
}

// give routes all demand of a stream by these parts of any sum, whatever the pools
// can do.
func (r *routing) give(i int, parts []float64) {
	r.given[i] = normalised(parts)
	for j, share := range r.given[i] {
		r.rps[i][j] = share * r.demand[i]
	}
}

// rule gives each option of a stream that can be served its part: of any sum but 0,
// and 0 where no engine is ready.
type rule func(*stream) []float64

// spread routes every stream by a rule.
func spread(by func(*model) rule) func(*model) (*routing, error) {
	return func(m *model) (*routing, error) {
		r, parts := newRouting(m), by(m)
		for i, st := range m.streams {
			if st.class.ready() {
				r.give(i, m.pinned(st, parts(st)))
			}
		}
		r.load()
		return r, nil
	}
}

// nearest gives all that is not pinned to the open option of the least round trip.
func nearest(st *stream) []float64 {
	best := -1
	for j, o := range st.options {
		if st.open(j) && (best < 0 || o.network < st.options[best].network) {
			best = j
		}
	}
	parts := make([]float64, len(st.options))
	parts[best] = 1
	return parts
}

// even gives every ready engine the same.
func even(m *model, options []option) []float64 {
	parts := make([]float64, len(options))
	for j, o := range options {
		if o.ready() {
			parts[j] = float64(m.state.ReadyEngines(o.pool.Pool))
		}
	}
	return parts
}

// local has each front-end solve for itself, with all capacity as if it were its own.
func local(m *model, solve Solve) (*routing, error) {
	r := newRouting(m)
	for from := 0; from < len(m.streams); {
		to := from
		for to < len(m.streams) && m.streams[to].id.FrontEnd == m.streams[from].id.FrontEnd {
			to++
		}
		alone := *m
		alone.streams = m.streams[from:to]
		if err := r.giveAlone(&alone, from, solve); err != nil {
			return nil, fmt.Errorf("front-end %s: %w", m.streams[from].id.FrontEnd, err)
		}
		from = to
	}
	r.load()
	return r, nil
}

// giveAlone gives the streams of one front-end, from an index on, the shares of the
// plan that it makes alone.
func (r *routing) giveAlone(alone *model, from int, solve Solve) error {
	p := newProgram(alone)
	solution, err := p.solve(solve)
	if err != nil {
		return err
	}
	own := p.read(solution)
	own.prune(alone.state.Fleet.Options.MinShare)
	for i, st := range alone.streams {
		if st.class.ready() {
			r.give(from+i, own.shares(i))
		}
	}
	return nil
}

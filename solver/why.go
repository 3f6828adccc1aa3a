package solver

import (
	"fmt"
	"slices"
	"strings"

	"weir/fleet"
)

// why says in an operator's words what is refused and for want of what; nothing
// when all is admitted.
func (r *routing) why() string {
	var short, dead, homeless refusals
	var full []string
	for i, st := range r.model.streams {
		switch {
		case r.shed[i] == 0:
		case !st.class.ready():
			dead.add(st.id, r.shed[i])
		default:
			short.add(st.id, r.shed[i])
			full = append(full, r.fullOptions(st)...)
		}
	}
	for _, id := range r.model.homeless {
		homeless.add(id, r.model.state.Demand[id].Rps)
	}
	var out []string
	if short != nil {
		slices.Sort(full)
		full = slices.Compact(full)
		out = append(out, fmt.Sprintf("capacity is short: refusing %v; full pools: %s", short, strings.Join(full, ", ")))
	}
	if dead != nil {
		out = append(out, fmt.Sprintf("no engine is ready: refusing %v", dead))
	}
	if homeless != nil {
		out = append(out, fmt.Sprintf("no eligible pool has an engine: refusing %v", homeless))
	}
	return strings.Join(append(out, r.limited()...), "; ")
}

// limited says what is refused by whose limit.
func (r *routing) limited() []string {
	var refused refusals
	for _, st := range r.model.streams {
		if st.refused > 0 {
			refused.add(st.id, st.refused)
		}
	}
	var out []string
	for _, x := range refused {
		if limit := r.model.state.LimitOf(x.class); limit != nil {
			out = append(out, fmt.Sprintf("limited by %s to %.4g RPS of %s: refusing %v", limit.Owner, limit.Rps, x.class, refusals{x}))
		}
	}
	return out
}

// full says whether a pool has no capacity left.
func (r *routing) full(p *pool) bool { return r.work[p.index] >= p.capacity*(1-1e-6) }

// fullOptions lists the pools of a stream that have no capacity left.
func (r *routing) fullOptions(st *stream) []string {
	var out []string
	for _, o := range st.options {
		switch {
		case o.ready() && r.full(o.pool) && o.pool.capped:
			out = append(out, string(o.pool.ID)+" (by its max)")
		case o.ready() && r.full(o.pool):
			out = append(out, string(o.pool.ID))
		}
	}
	return out
}

// refusals is RPS refused, class by class.
type refusals []refusal

type refusal struct {
	class fleet.ClassID
	rps   float64
	at    []string // front-ends with their RPS
}

func (r *refusals) add(id fleet.Stream, rps float64) {
	i := slices.IndexFunc(*r, func(x refusal) bool { return x.class == id.Class })
	if i < 0 {
		*r = append(*r, refusal{class: id.Class})
		i = len(*r) - 1
	}
	x := &(*r)[i]
	x.rps += rps
	x.at = append(x.at, fmt.Sprintf("%s %.4g", id.FrontEnd, rps))
}

func (r refusals) String() string {
	var out []string
	for _, x := range r {
		out = append(out, fmt.Sprintf("%.4g RPS of %s (%s)", x.rps, x.class, strings.Join(x.at, ", ")))
	}
	return strings.Join(out, ", ")
}

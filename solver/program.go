package solver

import (
	"fmt"

	"weir/solver/lp"
)

// program is a model's linear program and what its columns and rows stand for.
type program struct {
	lp.Program
	model  *model
	flows  []flow
	sheds  []shed
	doubts []shed // of demand that may not be there
	fills  []fill
	demand []int // row by stream; none: it has no part
	work   []int // row by pool; none: no engine is ready
	bounds []bound
}

const none = -1

// flow is a column of RPS from a stream to one of its options.
type flow struct {
	column, stream, option int
	moved                  bool // it comes from another option
}

// shed is a column of refused RPS of a stream, or of RPS in doubt.
type shed struct{ column, stream int }

// fill is a column of work in one segment of a pool.
type fill struct{ column, pool int }

// newProgram states the model: one row per stream (its demand is served or
// refused), one row per pool (its work fills its segments), one or two per limit and pin. Streams
// and pools without a ready engine have no part in it, nor have idle streams.
func newProgram(m *model) *program {
	p := &program{model: m, demand: make([]int, len(m.streams)), work: make([]int, len(m.pools))}
	for i, pool := range m.pools {
		p.work[i] = none
		if pool.replicas > 0 {
			p.work[i] = p.AddRow(0, 0)
		}
	}
	for i, st := range m.streams {
		p.demand[i] = none
		if st.class.ready() && !st.idle() {
			p.demand[i] = p.AddRow(st.demand, st.demand)
			p.addFlows(i)
			p.addSheds(i, p.demand[i])
			p.addDoubt(i, p.demand[i])
		}
	}
	for i, pool := range m.pools {
		p.addFills(pool, p.work[i])
	}
	p.addBounds()
	return p
}

// addFlows prices moves without a row of its own: what stays where it was is one
// column, bounded by the previous share; what comes is another, dearer by what a
// move must gain.
func (p *program) addFlows(i int) {
	st := p.model.streams[i]
	for j, o := range st.options {
		if !o.ready() {
			continue
		}
		if share := st.share(o.pool.ID); share > 0 {
			p.addFlow(flow{stream: i, option: j}, o.cost(), share*st.demand)
		}
		if st.settled() {
			p.addFlow(flow{stream: i, option: j, moved: true}, o.cost()+o.move, infinite)
		} else {
			p.addFlow(flow{stream: i, option: j}, o.cost(), infinite)
		}
	}
}

func (p *program) addFlow(f flow, cost, upper float64) {
	o := &p.model.streams[f.stream].options[f.option]
	f.column = p.AddColumn(lp.Column{Cost: cost, Upper: upper, Entries: []lp.Entry{
		{Row: p.demand[f.stream], Value: 1}, {Row: p.work[o.pool.index], Value: o.work},
	}})
	p.flows = append(p.flows, f)
}

func (p *program) addSheds(i, demand int) {
	st := p.model.streams[i]
	for j, fraction := range pieces {
		column := p.AddColumn(lp.Column{
			Cost:    st.class.shedPrice(j),
			Upper:   fraction * st.demand,
			Entries: []lp.Entry{{Row: demand, Value: 1}},
		})
		p.sheds = append(p.sheds, shed{column, i})
	}
}

// addDoubt lets demand that may not be there be left out of the plan where
// capacity is short. It is neither refused nor given room: if it comes after all, it
// follows the shares until it is known.
func (p *program) addDoubt(i, demand int) {
	st := p.model.streams[i]
	if st.doubt <= 0 {
		return
	}
	column := p.AddColumn(lp.Column{
		Cost:    st.class.doubt,
		Upper:   st.doubt,
		Entries: []lp.Entry{{Row: demand, Value: 1}},
	})
	p.doubts = append(p.doubts, shed{column, i})
}

func (p *program) addFills(pool *pool, work int) {
	for _, s := range pool.segments {
		column := p.AddColumn(lp.Column{
			Cost:    s.slope,
			Upper:   s.width * pool.replicas,
			Entries: []lp.Entry{{Row: work, Value: -1}},
		})
		p.fills = append(p.fills, fill{column, pool.index})
	}
}

// solve solves the program and believes nothing of the answer unchecked. Without
// a ready engine there is nothing to solve.
func (p *program) solve(solve Solve) (*lp.Solution, error) {
	if len(p.flows) == 0 {
		return &lp.Solution{X: make([]float64, len(p.Columns)), ReducedCosts: make([]float64, len(p.Columns))}, nil
	}
	solution, err := solve(&p.Program)
	if err != nil {
		return nil, fmt.Errorf("no plan: %w", err)
	}
	if err := lp.Check(&p.Program, solution); err != nil {
		return nil, fmt.Errorf("the solver's answer is wrong: %w", err)
	}
	return solution, nil
}

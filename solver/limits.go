package solver

import (
	"slices"

	"weir/fleet"
	"weir/solver/lp"
)

// bound is a row that holds an operator's limit.
type bound struct {
	row   int
	pool  int
	limit *fleet.Limit // nil: the pool's own
	least bool         // it is a least, not a most
	pin   bool         // the limit is a pin
	yield int          // column of what it gives way by
}

// addBounds states the limits of the file, but for what a pool takes at most, which is
// part of its capacity. They give way, at a price above what any latency is worth and
// below the refusal of a request, and only bind where a pool of theirs is ready.
func (p *program) addBounds() {
	for i, pool := range p.model.pools {
		if pool.replicas > 0 && pool.MinRps > 0 {
			p.addLeast(i)
		}
	}
	limits := p.model.state.Fleet.Limits
	for i := range limits {
		p.addLimit(&limits[i], false)
	}
	p.addPins()
}

// addLeast wants a pool to have some work, counted in reference requests.
func (p *program) addLeast(i int) {
	pool := p.model.pools[i]
	b := bound{row: p.AddRow(pool.MinRps, infinite), pool: i, least: true}
	for _, f := range p.flows {
		if o := &p.model.streams[f.stream].options[f.option]; o.pool == pool {
			p.addEntry(f.column, b.row, o.work*pool.Profile.CapacityRps)
		}
	}
	p.addYield(b, p.model.yield)
}

func (p *program) addEntry(column, row int, value float64) {
	c := &p.Columns[column]
	c.Entries = append(c.Entries, lp.Entry{Row: row, Value: value})
}

// addYield lets a bound give way, at a price per unit of its row.
func (p *program) addYield(b bound, price float64) {
	value := -1.0
	if b.least {
		value = 1
	}
	b.yield = p.AddColumn(lp.Column{Cost: price, Upper: infinite, Entries: []lp.Entry{{Row: b.row, Value: value}}})
	p.bounds = append(p.bounds, b)
}

// addLimit bounds a share of what is admitted, which is a sum over the same flows, so
// that the row stays linear while requests are refused.
func (p *program) addLimit(l *fleet.Limit, pin bool) {
	pool := p.model.pool(l.Pool)
	if pool == nil || pool.replicas == 0 {
		return
	}
	of := func(st *stream) bool {
		return l.FrontEnd == st.id.FrontEnd && (l.Class == "" || l.Class == st.id.Class)
	}
	if l.Max < 1 {
		p.addBound(bound{pool: pool.index, limit: l, pin: pin}, lp.Row{Lower: -infinite}, of, l.Max)
	}
	if l.Min > 0 {
		p.addBound(bound{pool: pool.index, limit: l, pin: pin, least: true}, lp.Row{Upper: infinite}, of, l.Min)
	}
}

// addBound adds a row over the flows of some streams: those to the pool count 1, less
// that share of all.
func (p *program) addBound(b bound, row lp.Row, of func(*stream) bool, share float64) {
	flows := slices.DeleteFunc(slices.Clone(p.flows), func(f flow) bool {
		st := p.model.streams[f.stream]
		return !of(st) || !st.mayUse(b.pool)
	})
	if len(flows) == 0 {
		return // nobody to limit
	}
	b.row = p.AddRow(row.Lower, row.Upper)
	for _, f := range flows {
		st := p.model.streams[f.stream]
		value := -share
		if st.options[f.option].pool.index == b.pool {
			value++
		}
		if value != 0 {
			p.addEntry(f.column, b.row, value)
		}
	}
	price := p.model.yield * p.model.lightest
	if b.pin {
		price *= pinYield
	}
	p.addYield(b, price)
}

// mayUse says whether a pool is one of the stream's options.
func (st *stream) mayUse(pool int) bool {
	for i := range st.options {
		if st.options[i].pool.index == pool {
			return true
		}
	}
	return false
}

// bounded says whether a limit speaks of the stream's front-end or of its pools, or a
// pin of itself. Its small shares are then left as they are.
func (m *model) bounded(st *stream) bool {
	if st.pins != nil {
		return true
	}
	for i := range st.options {
		if st.options[i].pool.MinRps > 0 {
			return true
		}
	}
	for i := range m.state.Fleet.Limits {
		if m.state.Fleet.Limits[i].FrontEnd == st.id.FrontEnd {
			return true
		}
	}
	return false
}

// pool returns the pool of that name, or nil.
func (m *model) pool(id fleet.PoolID) *pool {
	for _, p := range m.pools {
		if p.ID == id {
			return p
		}
	}
	return nil
}

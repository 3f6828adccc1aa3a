package solver

import (
	"cmp"
	"slices"
)

// reach is an option of a stream, by their indices.
type reach struct{ stream, option int }

// waterfall serves the higher priority first, and of one priority the nearest pools
// first: each is filled before the next is asked. Streams that are equally near to a
// pool get equal parts of what they ask of it. What no pool can take is refused.
func waterfall(m *model) (*routing, error) {
	r := newRouting(m)
	left := make([]float64, len(m.streams))
	for i, st := range m.streams {
		if st.class.ready() {
			left[i] = st.demand
		}
	}
	order := m.byDistance()
	for len(order) > 0 {
		n := 1
		for n < len(order) && m.compareReach(order[0], order[n]) == 0 {
			n++
		}
		r.pour(order[:n], left)
		order = order[n:]
	}
	for i, st := range m.streams {
		if st.class.ready() && !st.idle() {
			r.refuse(i, left[i])
		}
	}
	r.load()
	r.giveIdle()
	return r, nil
}

// byDistance lists the ready options of all streams with demand in the order in which
// they are filled.
func (m *model) byDistance() []reach {
	var order []reach
	for i, st := range m.streams {
		for j, o := range st.options {
			if o.ready() && !st.idle() {
				order = append(order, reach{i, j})
			}
		}
	}
	slices.SortStableFunc(order, m.compareReach)
	return order
}

func (m *model) compareReach(a, b reach) int {
	x, y := m.streams[a.stream], m.streams[b.stream]
	o, q := &x.options[a.option], &y.options[b.option]
	return cmp.Or(
		cmp.Compare(y.class.Priority, x.class.Priority),
		cmp.Compare(o.network, q.network),
		cmp.Compare(o.pool.index, q.pool.index),
	)
}

// pour sends what is left of some streams to the one pool that they reach, as far as
// it has room.
func (r *routing) pour(to []reach, left []float64) {
	pool := r.model.streams[to[0].stream].options[to[0].option].pool
	asked := 0.0 // engine-seconds per second
	for _, t := range to {
		asked += left[t.stream] * r.model.streams[t.stream].options[t.option].work
	}
	room := max(0, pool.capacity-r.work[pool.index])
	if asked <= 0 {
		return
	}
	part := min(1, room/asked)
	for _, t := range to {
		rps := part * left[t.stream]
		r.rps[t.stream][t.option] += rps
		left[t.stream] -= rps
	}
	r.work[pool.index] += part * asked
}

// refuse takes out of a stream what no pool has room for. Of that, demand that may
// not be there is left out of the plan first, and not refused.
func (r *routing) refuse(i int, left float64) {
	if doubtful := min(left, r.model.streams[i].doubt); doubtful > dust*r.demand[i] {
		r.demand[i] -= doubtful
		left -= doubtful
	}
	r.shed[i] = left
	r.settle(i)
}

// giveIdle says where a stream that nobody asks for would go: to the nearest pool that
// has room, or to the nearest of all.
func (r *routing) giveIdle() {
	for i, st := range r.model.streams {
		if !st.idle() || !st.class.ready() {
			continue
		}
		parts := make([]float64, len(st.options))
		best := -1
		for j, o := range st.options {
			if o.ready() && !r.full(o.pool) && (best < 0 || o.network < st.options[best].network) {
				best = j
			}
		}
		if best < 0 {
			r.give(i, nearest(st))
			continue
		}
		parts[best] = 1
		r.give(i, parts)
	}
}

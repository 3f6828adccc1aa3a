package solver

import (
	"cmp"
	"slices"
)

// reach is an option of a stream, by their indices, and what orders it.
type reach struct {
	priority       int
	turn           turn
	network        float64
	pool           int // index
	stream, option int
}

func compareReach(a, b reach) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.turn, b.turn), cmp.Compare(a.network, b.network), cmp.Compare(a.pool, b.pool))
}

// turn is when a reach is filled, among those of its priority.
type turn int

// The turns: what is pinned gets its share, the rest goes where it may, and to where a
// part is pinned only what would be refused.
const (
	pinnedTurn turn = iota
	openTurn
	lastTurn
)

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
		for n < len(order) && compareReach(order[0], order[n]) == 0 {
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
			if !o.ready() || st.idle() {
				continue
			}
			at := reach{st.class.Priority, openTurn, o.network, o.pool.index, i, j}
			if !st.open(j) {
				at.turn = lastTurn
			}
			order = append(order, at)
			if st.pins != nil && st.pins[j] > 0 {
				at.turn = pinnedTurn
				order = append(order, at)
			}
		}
	}
	slices.SortStableFunc(order, compareReach)
	return order
}

// pour sends what is left of some streams to the one pool that they reach, as far as
// it has room.
func (r *routing) pour(to []reach, left []float64) {
	pool := r.model.pools[to[0].pool]
	asked := 0.0 // engine-seconds per second
	for _, t := range to {
		asked += r.wanted(t, left) * r.model.streams[t.stream].options[t.option].work
	}
	room := max(0, pool.capacity-r.work[pool.index])
	if asked <= 0 {
		return
	}
	part := min(1, room/asked)
	for _, t := range to {
		rps := part * r.wanted(t, left)
		r.rps[t.stream][t.option] += rps
		left[t.stream] -= rps
	}
	r.work[pool.index] += part * asked
}

// wanted is how much of what is left of a stream its turn sends a way, RPS.
func (r *routing) wanted(t reach, left []float64) float64 {
	if t.turn != pinnedTurn {
		return left[t.stream]
	}
	st := r.model.streams[t.stream]
	return min(left[t.stream], st.pins[t.option]*st.demand)
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
			if st.open(j) && !r.full(o.pool) && (best < 0 || o.network < st.options[best].network) {
				best = j
			}
		}
		if best < 0 {
			r.give(i, r.model.pinned(st, nearest(st)))
			continue
		}
		parts[best] = 1
		r.give(i, r.model.pinned(st, parts))
	}
}

package solver

import (
	"weir/fleet"
)

// pinYield is how much dearer than a limit of the file a pin gives way: the operator
// knows of the limit. It is still cheaper than to refuse a request, or to take demand
// for doubtful.
const pinYield = 1.5

// limit takes off a stream's demand what the limit of its class does not let in. It is
// refused whatever the policy, and all that plan see what is left.
func (st *stream) limit(admitted float64) {
	whole := st.demand
	st.demand *= admitted
	st.refused = whole - st.demand
}

// pin notes which options of a stream are pinned. One without a ready engine is not,
// while that lasts.
func (m *model) pin(st *stream) {
	for j, o := range st.options {
		pin := m.state.PinOf(st.id, o.pool.ID)
		if pin == nil || !o.ready() {
			continue
		}
		if st.pins == nil {
			st.pins = make([]float64, len(st.options))
			for k := range st.pins {
				st.pins[k] = none
			}
		}
		st.pins[j] = pin.Share
	}
}

// open says whether an option is ready and takes what is not pinned. Where all that are
// ready are pinned, all of them do.
func (st *stream) open(j int) bool {
	if !st.options[j].ready() {
		return false
	}
	if st.pins == nil || st.pins[j] == none {
		return true
	}
	for k := range st.options {
		if st.options[k].ready() && st.pins[k] == none {
			return false
		}
	}
	return true
}

// pinned gives pinned options their shares, and the others what is left, by these parts
// of any sum. It is for whoever does not state pins in a program.
func (m *model) pinned(st *stream, parts []float64) []float64 {
	if st.pins == nil {
		return normalised(parts)
	}
	left := 1.0
	out, others := make([]float64, len(parts)), make([]float64, len(parts))
	for j, pin := range st.pins {
		switch {
		case pin == none:
			others[j] = parts[j]
		case pin > 0:
			out[j] = pin
			left -= pin
		}
	}
	for j, part := range normalised(others) {
		out[j] += max(0, left) * part
	}
	if shares := normalised(out); shares != nil {
		return shares
	}
	return normalised(parts) // all that are ready are pinned to nothing
}

// addPins bounds pinned shares from below and above.
func (p *program) addPins() {
	for i, st := range p.model.streams {
		if p.demand[i] == none {
			continue
		}
		for j, share := range st.pins {
			if share == none {
				continue
			}
			l := &fleet.Limit{FrontEnd: st.id.FrontEnd, Class: st.id.Class, Pool: st.options[j].pool.ID, Min: share, Max: share}
			p.addLimit(l, true)
		}
	}
}

package solver

import (
	"cmp"
	"slices"
)

// prune gives up shares below the least one, smallest first, each over to the
// stream's other pools in proportion, where these have the capacity.
func (r *routing) prune(minShare float64) {
	for i := range r.rps {
		if r.model.bounded(r.model.streams[i]) {
			continue
		}
		for _, j := range smallest(r.rps[i], minShare) {
			r.giveUp(i, j)
		}
	}
	r.load() // afresh: the running sums have gathered rounding
}

// smallest lists the indices of the positive parts below that share of their sum,
// smallest first, without the largest part of all.
func smallest(parts []float64, minShare float64) []int {
	shares := normalised(parts)
	var out []int
	for j, s := range shares {
		if s > 0 && s < minShare {
			out = append(out, j)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(shares[a], shares[b]) })
	if len(out) > 0 && shares[out[len(out)-1]] == slices.Max(shares) {
		out = out[:len(out)-1]
	}
	return out
}

// giveUp moves what a stream sends to one option to its others if it fits.
func (r *routing) giveUp(i, drop int) {
	st, rps := r.model.streams[i], r.rps[i]
	rest := 0.0
	for j := range rps {
		if j != drop {
			rest += rps[j]
		}
	}
	moved := slices.Clone(rps)
	moved[drop] = 0
	for j, o := range st.options {
		if j == drop {
			continue
		}
		moved[j] += rps[drop] * rps[j] / rest
		if moved[j] > rps[j] && r.work[o.pool.index]+o.work*(moved[j]-rps[j]) > o.pool.capacity {
			return
		}
	}
	for j, o := range st.options {
		r.work[o.pool.index] += o.work * (moved[j] - rps[j])
	}
	r.rps[i] = moved
}

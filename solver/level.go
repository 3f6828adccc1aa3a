package solver

import (
	"cmp"
	"slices"
)

// levelled is the part of a stream's demand below which it is refused like others.
const levelled = 1e-9

// refine does to a routing what a linear program cannot say.
func (r *routing) refine() {
	if r.shortOfCapacity() {
		r.level()
	}
	r.prune(r.model.state.Fleet.Options.MinShare)
}

func (r *routing) shortOfCapacity() bool {
	for i, st := range r.model.streams {
		if st.class.ready() && r.shed[i] > 0 {
			return true
		}
	}
	return false
}

// level refuses the same fraction of all streams of a class. The program prices
// refusals in pieces, and lets equal streams differ by as much as the piece that the
// shortage ends in; here streams that are refused more take places of those that are
// refused less. All may use the pools of their class, and the places are the same, so
// that capacity and other classes are not touched. It costs the difference of their
// networks, which is nothing beside a refusal; that it be little, each gives up its
// farthest places, and takes the nearest that are free.
func (r *routing) level() {
	ofClass := map[*class][]int{}
	for i, st := range r.model.streams {
		if r.demand[i] > 0 && !r.model.bounded(st) {
			ofClass[st.class] = append(ofClass[st.class], i)
		}
	}
	for c, streams := range ofClass {
		r.levelStreams(streams, make([]float64, len(c.options)))
	}
	r.load()
}

// levelStreams levels streams of one class. Places are those that are free, RPS by
// option: none at first.
func (r *routing) levelStreams(streams []int, places []float64) {
	shed, demand := 0.0, 0.0
	for _, i := range streams {
		shed += r.shed[i]
		demand += r.demand[i]
	}
	fair := func(i int) float64 { return shed / demand * r.demand[i] }
	for _, i := range streams {
		if less := fair(i) - r.shed[i]; less > levelled*r.demand[i] {
			far := r.byNetwork(i)
			slices.Reverse(far)
			r.shed[i] += pass(r.rps[i], places, less, far)
		}
	}
	for _, i := range streams {
		if more := r.shed[i] - fair(i); more > 0 {
			r.shed[i] -= pass(places, r.rps[i], more, r.byNetwork(i))
		}
	}
}

// byNetwork lists a stream's options, the nearest first.
func (r *routing) byNetwork(i int) []int {
	options := r.model.streams[i].options
	order := make([]int, len(options))
	for o := range order {
		order[o] = o
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(options[a].network, options[b].network) })
	return order
}

// pass moves so many RPS from one to another, by options in that order, and returns
// how many there were to move.
func pass(from, to []float64, rps float64, order []int) float64 {
	moved := 0.0
	for _, o := range order {
		step := min(rps-moved, from[o])
		from[o] -= step
		to[o] += step
		moved += step
	}
	return moved
}

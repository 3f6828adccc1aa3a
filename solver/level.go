package solver

import "math"

const (
	maxLevelling = 200  // rounds; a handful does for fleets that share their pools
	levelled     = 1e-9 // of a stream's demand
)

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

// level refuses the streams of a class alike, where they share a pool. The program
// prices refusals in pieces, and lets equal streams differ by as much as the piece
// that the shortage ends in; here the one that is refused most takes the other's place
// at a pool that both may use, until the fractions are equal. The places are the same,
// so capacity and other classes are not touched. It costs the difference of their
// networks, which is nothing beside a refusal.
func (r *routing) level() {
	ofClass := map[*class][]int{}
	for i, st := range r.model.streams {
		if r.demand[i] > 0 && !r.model.bounded(st) {
			ofClass[st.class] = append(ofClass[st.class], i)
		}
	}
	for _, streams := range ofClass {
		r.levelStreams(streams)
	}
	r.load()
}

func (r *routing) levelStreams(streams []int) {
	for range maxLevelling {
		gap := 0.0
		for _, i := range streams {
			for _, j := range streams {
				gap = max(gap, r.levelPair(i, j))
			}
		}
		if gap < levelled {
			return
		}
	}
}

// refused is the fraction of a stream's demand that is.
func (r *routing) refused(i int) float64 {
	return r.shed[i] / r.demand[i]
}

// levelPair lets stream i, if it is refused more, take places of stream j. It returns
// how far apart the two were, as far as that could be changed.
func (r *routing) levelPair(i, j int) float64 {
	gap := r.refused(i) - r.refused(j)
	if gap < levelled {
		return 0
	}
	left := gap / (1/r.demand[i] + 1/r.demand[j]) // RPS that make the two alike
	moved := 0.0
	for o := range r.rps[i] { // both have the options of their class, in the same order
		step := min(left, r.rps[j][o])
		r.rps[i][o] += step
		r.rps[j][o] -= step
		left -= step
		moved += step
	}
	r.shed[i] = math.Max(0, r.shed[i]-moved)
	r.shed[j] += moved
	return gap * min(1, moved/dustRps)
}

package gate

// fill shares a total out among wants that have so much already: each comes to the same
// level, or to what it wants in all if that is less (max-min fairness). It returns what
// each has then, and no less than it had.
func fill(wants, have *[Buckets]float64, total float64) [Buckets]float64 {
	out := [Buckets]float64{}
	sum, most := 0.0, 0.0
	for b := range Buckets {
		out[b] = have[b] + wants[b]
		sum += out[b]
		most = max(most, out[b])
	}
	if sum <= total {
		return out
	}
	// What they have may be more than the total: then nobody gets more.
	level := levelOf(&out, have, total, most)
	for b := range Buckets {
		out[b] = max(have[b], min(out[b], level))
	}
	return out
}

// levelOf finds the level by bisection: the sum rises with it.
func levelOf(want, have *[Buckets]float64, total, most float64) float64 {
	low, high := 0.0, most
	for range 40 {
		middle := (low + high) / 2
		sum := 0.0
		for b := range Buckets {
			sum += max(have[b], min(want[b], middle))
		}
		if sum > total {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

// part is which part of what is asked for is granted, and of who has asked for nothing yet.
func part(granted, asked, unasked float64) float64 {
	if asked <= 0 {
		return unasked
	}
	return min(1, max(0, granted/asked))
}

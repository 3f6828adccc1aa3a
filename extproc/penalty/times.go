package penalty

import (
	"math"
	"slices"
	"time"

	"weir/fleet"
)

// Kind is what of a request takes time.
type Kind int

// What is timed. Only the same is compared with one another.
const (
	FirstToken Kind = iota // to the first byte of a stream
	Whole                  // to the first byte of an answer in one piece
	Gap                    // mean time between the tokens of an answer
	Pace                   // seconds for each byte of an answer, over about a second
	kinds
)

var (
	signalOf = [kinds]signal{FirstToken: firstTokens, Whole: firstTokens, Gap: tokens, Pace: tokens}
	faultOf  = [kinds]fleet.Fault{
		FirstToken: fleet.FaultFirstTokens, Whole: fleet.FaultFirstTokens, Gap: fleet.FaultTokens, Pace: fleet.FaultTokens,
	}
	// slack is by how many seconds a time must be longer than usual at the least: less
	// nobody minds.
	slack = [kinds]float64{FirstToken: 0.05, Whole: 0.2, Gap: 0.01}
)

const (
	// slower is how many times as long as usual is bad.
	slower = 3
	// fewest times tell what is usual at an engine, of the last ones that are kept.
	fewest, kept = 3, 41
	// cold is the quantile of peers' times that an engine with cold caches may take:
	// what takes long at its peers is most likely what was not in theirs.
	cold = 0.9
)

// recent are the last times of an engine, in seconds.
type recent struct {
	last   [kept]float32
	n      int  // that were ever added
	stale  bool // what follows is of fewer
	median float64
	high   float64 // the quantile [cold]

	limit float64 // beyond which a time is bad; 0: not known
}

func (r *recent) add(seconds float64) {
	r.last[r.n%kept] = float32(seconds)
	r.n++
	r.stale = true
}

func (r *recent) comparable() bool             { return r.limit > 0 }
func (r *recent) late(seconds float64) bool    { return r.limit > 0 && seconds > r.limit }
func (r *recent) told() bool                   { return r.n >= fewest }
func quantile(of []float32, q float64) float64 { return float64(of[int(q*float64(len(of)-1)+0.5)]) }

func (r *recent) refresh() {
	if !r.stale || !r.told() {
		return
	}
	of := r.last
	some := of[:min(r.n, kept)]
	slices.Sort(some)
	r.median, r.high, r.stale = quantile(some, 0.5), quantile(some, cold), false
}

// limitOf sets from when on a time of an engine is bad, by its peers' medians and high
// quantiles, each in order.
func (e *engine) limitOf(k Kind, medians, highs []float64, now time.Time) {
	r := &e.times[k]
	own := math.NaN()
	if r.told() {
		own = r.median
	}
	usual, ok := middleOfOthers(medians, own)
	if !ok {
		r.limit = 0
		return
	}
	r.limit = max(slower*usual, usual+slack[k])
	if !e.warm(now) {
		if r.told() {
			own = r.high
		}
		high, _ := middleOfOthers(highs, own)
		r.limit = max(r.limit, high)
	}
}

// warm says whether the engine has had time to fill its caches.
func (e *engine) warm(now time.Time) bool {
	return e.value == 1 && now.Sub(e.joined) > graced && now.Sub(e.lifted) > graced
}

// middleOfOthers is the median of sorted values without one of them, the upper one of two;
// NaN is none of them. False: there are no others.
func middleOfOthers(sorted []float64, own float64) (float64, bool) {
	n := len(sorted)
	if math.IsNaN(own) {
		if n == 0 {
			return 0, false
		}
		return sorted[n/2], true
	}
	if n < 2 {
		return 0, false
	}
	middle := (n - 1) / 2
	if place, _ := slices.BinarySearch(sorted, own); middle >= place {
		middle++
	}
	return sorted[middle], true
}

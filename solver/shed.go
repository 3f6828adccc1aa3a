package solver

import (
	"math"
	"slices"
)

// pieces cuts a stream's demand into fractions that are refused at rising prices,
// so that equal streams are refused alike and not one of them entirely: between
// them no more than a piece can be in dispute. Light refusals are cut finest.
var pieces = [...]float64{0.02, 0.03, 0.05, 0.05, 0.05, 0.10, 0.10, 0.15, 0.20, 0.25}

const (
	aboveLatency = 10   // the least shed price, in latencies that routing could avoid
	pieceRise    = 0.1  // of a priority's first price, per piece
	bandRatio    = 4    // between the first prices of two priorities whose works compare alike everywhere
	belowSheds   = 0.9  // what is in doubt is left out before anything is refused, of the least shed price
	minBandRatio = 2    // below this the prices of two priorities would overlap
	maxPrice     = 1e7  // seconds; what the solver handles without loss of digits
	minLatency   = 1e-3 // seconds; a price must be above 0 where every latency is 0
)

// shedPrice is what refusing one request of the class costs, seconds.
func (c *class) shedPrice(piece int) float64 {
	return c.price * (1 + pieceRise*float64(piece))
}

// price sets the first shed price of every class. Prices are per unit of work, so
// that a heavy class is not refused for being heavy. Work is counted in reference
// requests, so that it compares across SKUs; where it does not, the distance
// between prices grows by the disparity, once for the two classes and once for a
// third that is moved to make room.
func (m *model) price() {
	classes := slices.DeleteFunc(slices.Clone(m.classes), func(c *class) bool { return !c.ready() })
	largest, smallest := 0.0, infinite
	var priorities []int
	for _, c := range classes {
		c.size = size(c)
		largest, smallest = max(largest, c.size), min(smallest, c.size)
		priorities = append(priorities, c.Priority)
	}
	slices.Sort(priorities)
	priorities = slices.Compact(priorities)

	if len(classes) == 0 {
		return
	}
	spread := math.Pow(m.disparity(classes), 2)
	first := aboveLatency * spread * m.latency()
	ratio := bandRatio * spread
	if n := len(priorities); n > 1 {
		allowed := math.Pow(maxPrice/(minBandRatio*first*largest), 1/float64(n-1))
		ratio = max(minBandRatio, min(ratio, allowed))
	}
	for _, c := range classes {
		band, _ := slices.BinarySearch(priorities, c.Priority)
		c.price = c.size * first * math.Pow(ratio, float64(band))
		c.doubt = c.size * first * belowSheds
	}
	m.yield, m.lightest = aboveLatency/2*m.latency(), smallest
}

// size is how many reference requests one request of the class weighs, the mean
// of the ready pools that may serve it.
func size(c *class) float64 {
	sum, n := 0.0, 0.0
	for _, o := range c.options {
		if o.ready() {
			sum += o.work * o.pool.Profile.CapacityRps
			n++
		}
	}
	return sum / n
}

// disparity is how differently pools see the relative work of two classes: 1 when
// a class that weighs twice another does so everywhere.
func (m *model) disparity(classes []*class) float64 {
	least, most := make([]float64, len(m.pools)), make([]float64, len(m.pools))
	for _, c := range classes {
		for _, o := range c.options {
			relative := o.work / c.size
			i := o.pool.index
			if least[i] == 0 || relative < least[i] {
				least[i] = relative
			}
			most[i] = max(most[i], relative)
		}
	}
	disparity := 1.0
	for i := range least {
		if least[i] > 0 && m.pools[i].replicas > 0 {
			disparity = max(disparity, most[i]/least[i])
		}
	}
	return disparity
}

// latency is the most that serving a request can cost, seconds per reference
// request: the farthest pool, full.
func (m *model) latency() float64 {
	most := minLatency
	for _, st := range m.streams {
		for _, o := range st.options {
			if o.ready() {
				seconds := o.cost() + o.work*max(0, o.pool.steepest()) + o.move
				most = max(most, seconds/st.class.size)
			}
		}
	}
	return most
}

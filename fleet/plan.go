package fleet

import (
	"cmp"
	"math"
	"slices"
)

// Status says how a plan came about.
type Status string

// The statuses of a plan.
const (
	Optimal  Status = "Optimal"  // all demand is routed at the least cost
	Routed   Status = "Routed"   // all demand is routed, by a policy that does not look for the least cost
	Shedding Status = "Shedding" // capacity is short: part of the demand is refused
	Held     Status = "Held"     // no new plan could be made; this is the last good one
)

// Plan is what was decided: for each class at each front-end the share of its
// admitted traffic that each pool gets. Its JSON form is a stable interface.
type Plan struct {
	Status      Status     `json:"status"`
	Why         string     `json:"why"`
	Policy      string     `json:"policy"`      // that made it; empty: by a Weir that knew one only
	MeanSeconds float64    `json:"meanSeconds"` // network + engine over admitted traffic
	Routes      []Route    `json:"routes"`      // by front-end, then class
	Pools       []PoolPlan `json:"pools"`       // by ID
	// Brakes are the pins and limits that it was made under: a held plan has them still
	// when others are in force.
	Brakes []Brake `json:"brakes,omitempty"`
}

// Route is the plan of one class at one front-end.
type Route struct {
	FrontEnd  FrontEndID `json:"frontEnd"`
	Class     ClassID    `json:"class"`
	DemandRps float64    `json:"demandRps"` // 0: idle; its shares say where a request would go
	ShedRps   float64    `json:"shedRps"`
	Shares    []Share    `json:"shares"` // by pool; zero shares are left out
	// SettledSeconds is how long its traffic has been where it is: the age of the
	// shares, each move taking off the part that it moved.
	SettledSeconds float64 `json:"settledSeconds"`
}

// Share is what one pool gets of a route.
type Share struct {
	Pool           PoolID  `json:"pool"`
	Share          float64 `json:"share"` // 0–1 of the admitted traffic
	Rps            float64 `json:"rps"`
	NetworkSeconds float64 `json:"networkSeconds"` // round trip
	EngineSeconds  float64 `json:"engineSeconds"`  // base + queueing, without the tokens' plain decode time
}

// PoolPlan is what the plan means for one pool.
type PoolPlan struct {
	Pool         PoolID  `json:"pool"`
	CapacityRps  float64 `json:"capacityRps"` // effective, for the planned mix
	Health       float64 `json:"health"`      // the pool's, that the capacity is reckoned by; 0: a Weir made the plan that did not say
	Rps          float64 `json:"rps"`
	Utilisation  float64 `json:"utilisation"`  // work / effective capacity
	PriceSeconds float64 `json:"priceSeconds"` // what one more RPS of capacity takes off Σ rps × seconds; policy optimal alone knows it
}

// Admitted is the fraction of the route's demand that is let in, 0–1.
func (r *Route) Admitted() float64 {
	if r.DemandRps <= 0 {
		return 1
	}
	return max(0, 1-r.ShedRps/r.DemandRps) // rounding may shed a little more than all
}

// Route returns the plan of a stream, or nil.
func (p *Plan) Route(s Stream) *Route {
	i, ok := slices.BinarySearchFunc(p.Routes, s, func(r Route, s Stream) int {
		return cmp.Or(cmp.Compare(r.FrontEnd, s.FrontEnd), cmp.Compare(r.Class, s.Class))
	})
	if !ok {
		return nil
	}
	return &p.Routes[i]
}

// Pool returns the plan of a pool, or nil.
func (p *Plan) Pool(id PoolID) *PoolPlan {
	i, ok := slices.BinarySearchFunc(p.Pools, id, func(q PoolPlan, id PoolID) int { return cmp.Compare(q.Pool, id) })
	if !ok {
		return nil
	}
	return &p.Pools[i]
}

// ShedRps is what the plan refuses in all.
func (p *Plan) ShedRps() float64 {
	sum := 0.0
	for i := range p.Routes {
		sum += p.Routes[i].ShedRps
	}
	return sum
}

// Fullest is the pool with the highest utilisation; the zero PoolPlan if none is used.
func (p *Plan) Fullest() (most PoolPlan) {
	for _, q := range p.Pools {
		if q.Utilisation > most.Utilisation {
			most = q
		}
	}
	return most
}

// Moved is the share of what a plan admits that goes to another pool than by the plan
// before. A stream that had no route then moves nobody.
func Moved(before, after *Plan) float64 {
	moved, total := 0.0, 0.0
	for i := range after.Routes {
		r := &after.Routes[i]
		rps := r.DemandRps - r.ShedRps
		total += rps
		old := before.Route(Stream{FrontEnd: r.FrontEnd, Class: r.Class})
		if old == nil {
			continue
		}
		for _, s := range r.Shares {
			moved += rps * max(0, s.Share-old.ShareOf(s.Pool))
		}
	}
	if total <= 0 {
		return 0
	}
	return moved / total
}

// ShareOf returns the share of a pool in a route, 0 where it has none.
func (r *Route) ShareOf(p PoolID) float64 {
	for _, s := range r.Shares {
		if s.Pool == p {
			return s.Share
		}
	}
	return 0
}

// WeightScale is the sum of the weights of a route's pools. It leaves room below
// the 2³² that Envoy allows for the sum of a cluster's endpoint weights.
const WeightScale = 10_000_000

// Weights turns shares into integers that sum to WeightScale, by largest
// remainder with ties to the lower pool ID, so that equal plans give equal
// weights. A positive share weighs at least 1. The shares must be sorted by pool,
// positive, and sum to 1; without any there is no weight.
func Weights(shares []Share) []uint32 {
	weights := make([]uint32, len(shares))
	order := make([]int, len(shares))
	left := WeightScale
	for i, s := range shares {
		weights[i] = max(1, uint32(s.Share*WeightScale))
		left -= int(weights[i])
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(remainder(shares[b].Share), remainder(shares[a].Share))
	})
	for i := 0; left > 0 && len(order) > 0; i++ {
		weights[order[i%len(order)]]++
		left--
	}
	for ; left < 0; left++ { // shares below one unit were lifted to 1
		weights[slices.Index(weights, slices.Max(weights))]--
	}
	return weights
}

func remainder(share float64) float64 {
	_, frac := math.Modf(share * WeightScale)
	return frac
}

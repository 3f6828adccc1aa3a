package control

import (
	"math"

	"weir/fleet"
)

// change is what a reader wants to know of a new plan. The zero value means that
// nothing moved.
type change struct {
	status bool    // it has another status, or there was no plan
	moved  float64 // fraction of the admitted traffic that goes to another pool
	shed   float64 // RPS refused
}

// unmoved is the fraction of traffic below which nothing moved: one step of a
// weight.
const unmoved = 1.0 / fleet.WeightScale

// noticed is the fraction of traffic from which on a move is one that people ask about.
const noticed = 0.005

// compare says how a plan differs from the one before it, nil if there was none.
func compare(before, after *fleet.Plan) change {
	if before == nil {
		before = &fleet.Plan{}
	}
	var moved, total, shed, shedBefore float64
	for i := range after.Routes {
		r := &after.Routes[i]
		rps := r.DemandRps - r.ShedRps
		total += rps
		shed += r.ShedRps
		if old := before.Route(fleet.Stream{FrontEnd: r.FrontEnd, Class: r.Class}); old != nil {
			moved += rps * movedShare(old, r)
			shedBefore += old.ShedRps
		}
	}
	c := change{status: before.Status != after.Status, shed: shed}
	if total > 0 && moved/total > unmoved {
		c.moved = moved / total
	}
	if c.moved == 0 && !c.status && math.Abs(shed-shedBefore) <= tolerance*max(1, shed) {
		return change{}
	}
	return c
}

// movedShare is the share of a route that goes to another pool than before.
func movedShare(before, after *fleet.Route) float64 {
	gained := 0.0
	for _, s := range after.Shares {
		gained += max(0, s.Share-before.ShareOf(s.Pool))
	}
	return gained
}

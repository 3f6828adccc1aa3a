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

// noticedShed is the part of what is refused by which that must change likewise.
const noticedShed = 0.05

// compare says how a plan differs from the one before it, nil if there was none.
func compare(before, after *fleet.Plan) change {
	if before == nil {
		before = &fleet.Plan{}
	}
	c := change{status: before.Status != after.Status, shed: after.ShedRps(), moved: fleet.Moved(before, after)}
	if c.moved <= unmoved {
		c.moved = 0
	}
	if c.moved == 0 && !c.status && math.Abs(c.shed-before.ShedRps()) <= tolerance*max(1, c.shed) {
		return change{}
	}
	return c
}

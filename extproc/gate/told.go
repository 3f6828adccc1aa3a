package gate

import (
	"math"

	"weir/fleet"
)

// chance is how many standard errors chance may take a rate from what is planned. What it
// does not explain counts whole.
const chance = 3

// Use is what one Envoy has of a class.
type Use struct {
	EnteredRps float64 // as [Gate.EnteredRps] has it
	Open       float64 // requests
}

// NewLimit is what a class is allowed at an Envoy that takes in a share of its front-end's
// requests, by the plan's fraction and by what the control plane told last; nil: it told
// nothing, or too long ago. Of classes that are stepped later, what is used is of one step
// before.
func NewLimit(told *fleet.Admission, id fleet.ClassID, planned, share float64, use func(fleet.ClassID) Use) Limit {
	l := Limit{Planned: planned, CeilingRps: Unknown, Open: use(id).Open}
	if told == nil {
		return l
	}
	if c := told.Class(id); c != nil && c.CeilingRps.Known {
		l.CeilingRps, l.Strict = c.CeilingRps.Value*share, c.Strict()
		l.AheadRps = max(0, aheadRps(told, c, share, use)-c.SpareRps*share)
		l.OpenAhead = c.OpenAhead(func(ahead fleet.ClassID) float64 { return use(ahead).Open })
	}
	return l
}

// aheadRps is what the classes ahead of one take of its ceiling beside what is planned for
// them. What they leave is for the plan to give: there may be a reason for it, as a queue
// that is to drain, and there are peers who would all take it.
func aheadRps(told *fleet.Admission, c *fleet.ClassAdmission, share float64, use func(fleet.ClassID) Use) float64 {
	beside, variance := 0.0, 0.0
	for _, p := range c.Ahead {
		ahead := told.Class(p.Class)
		if ahead == nil || !ahead.PlannedRps.Known {
			continue
		}
		planned, ceiling := ahead.PlannedRps.Value*share, float64(Unknown)
		if ahead.CeilingRps.Known {
			ceiling = ahead.CeilingRps.Value * share
		}
		beside += p.Part * (use(p.Class).EnteredRps - planned)
		variance += p.Part * p.Part * planned / (2 * windowOf(ceiling)) // of an exponential mean of Poisson arrivals
	}
	if beside <= chance*math.Sqrt(variance) {
		return 0
	}
	return beside
}

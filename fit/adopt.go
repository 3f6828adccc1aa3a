package fit

import (
	"errors"
	"fmt"
	"math"

	"weir/fleet"
)

// A fitted profile that is put in force by itself must be better known than one that
// somebody looks at, and comes step by step.
const (
	// adoptWidth is how wide the capacity's interval may be, of the capacity.
	adoptWidth = 0.2
	// adoptReach is how far beyond the highest load the capacity may lie: plans leave
	// a tenth free, so that traffic seldom shows more.
	adoptReach    = 1.15
	adoptResidual = 0.15
	// adoptStep bounds how much a step changes the capacity, and adoptSlower how much
	// TTFT or TBT at any load: either as a part.
	adoptStep, adoptSlower = 0.1, 0.25
	// adoptTrifle is not worth a step.
	adoptTrifle = 0.05
	adoptLoads  = 20 // at which profiles are compared
)

// Adopt returns the profile to use next in place of the one in force, one bounded step
// towards the fit; the error says why there is no such step.
func Adopt(inForce *fleet.Profile, r *Result) (fleet.Profile, error) {
	c := r.Profile.CapacityRps
	highest := r.levels[len(r.levels)-1].load
	switch wide := (r.CapacityRps.High - r.CapacityRps.Low) / c; {
	case !(wide <= adoptWidth): // refuses NaN, too
		return fleet.Profile{}, fmt.Errorf("the fitted capacity is uncertain by ±%.0f %%, and ±%.0f %% is the most", 50*wide, 50*adoptWidth)
	case c > highest*adoptReach:
		return fleet.Profile{}, fmt.Errorf("the fitted capacity of %s rps lies too far beyond the highest load, %s rps", number(c), number(highest))
	case r.TTFTResidual > adoptResidual:
		return fleet.Profile{}, fmt.Errorf("the spans lie %s beside the fitted curve, and %s is the most", percent(r.TTFTResidual), percent(adoptResidual))
	case len(inForce.TBT) > 0 && len(r.Profile.TBT) == 0:
		return fleet.Profile{}, errors.New("TBT is not known of traffic, and the profile in use has it")
	}
	from, to := restated(inForce, &r.Profile), r.Profile
	if len(inForce.TBT) == 0 {
		to.TBT = nil // the pools of a class have it all, or none
	}
	change := unlikeness(&from, &to)
	if change <= adoptTrifle/adoptStep {
		return fleet.Profile{}, fmt.Errorf("the profile in use is as the fit within %.0f %%", 100*adoptTrifle)
	}
	return between(&from, &to, min(1, 1/change)), nil
}

// restated is a profile in requests like those of another one.
func restated(p, like *fleet.Profile) fleet.Profile {
	q := *p
	q.CapacityRps = 1 / p.Work(like.Reference)
	q.Reference, q.CacheStated = like.Reference, like.CacheStated
	return q
}

// unlikeness is how many steps lie between two profiles of the same request.
func unlikeness(from, to *fleet.Profile) float64 {
	most := math.Abs(to.CapacityRps/from.CapacityRps-1) / adoptStep
	for i := range adoptLoads {
		rps := float64(i) / adoptLoads * to.CapacityRps
		for _, c := range [][2]fleet.Curve{{from.TTFT, to.TTFT}, {from.TBT, to.TBT}} {
			if was := c[0].At(rps / from.CapacityRps); was > 0 {
				most = max(most, math.Abs(c[1].At(rps/to.CapacityRps)/was-1)/adoptSlower)
			}
		}
	}
	return most
}

// between lies that part of the way from one profile to another of the same request.
// Its curves bend where the other one's do, so that they have no more points.
func between(from, to *fleet.Profile, part float64) fleet.Profile {
	mid := *to
	mid.CapacityRps = from.CapacityRps + part*(to.CapacityRps-from.CapacityRps)
	mix := func(a, b fleet.Curve) (c fleet.Curve) {
		for _, p := range b {
			rps := p.Utilisation * to.CapacityRps
			c = append(c, fleet.CurvePoint{
				Utilisation: rps / mid.CapacityRps,
				Seconds:     (1-part)*a.At(rps/from.CapacityRps) + part*p.Seconds,
			})
		}
		return c
	}
	mid.TTFT, mid.TBT = mix(from.TTFT, to.TTFT), mix(from.TBT, to.TBT)
	return mid
}

package solver

import "weir/fleet"

// Summary is a plan in the figures by which policies are compared.
type Summary struct {
	Policy         string  `json:"policy"`
	MeanSeconds    float64 `json:"meanSeconds"`    // of what is admitted
	MaxUtilisation float64 `json:"maxUtilisation"` // of the fullest pool; above 1: requests wait ever longer
	ShedRps        float64 `json:"shedRps"`
	AwayShare      float64 `json:"awayShare"` // of the admitted traffic, that does not go to the nearest pool
	Why            string  `json:"why"`       // as the plan has it
	Error          string  `json:"error"`     // why there is no plan; empty: there is one
}

// Summarise sums up a plan of a state.
func Summarise(s *fleet.State, plan *fleet.Plan) Summary {
	out := Summary{
		Policy: plan.Policy, MeanSeconds: plan.MeanSeconds, Why: plan.Why,
		MaxUtilisation: plan.Fullest().Utilisation, ShedRps: plan.ShedRps(),
	}
	admitted, away := 0.0, 0.0
	for i := range plan.Routes {
		r := &plan.Routes[i]
		nearest := nearestSeconds(s, r)
		for _, share := range r.Shares {
			admitted += share.Rps
			if share.NetworkSeconds > nearest {
				away += share.Rps
			}
		}
	}
	if admitted > 0 {
		out.AwayShare = away / admitted
	}
	return out
}

// nearestSeconds is the least round trip to a pool that is ready for a route.
func nearestSeconds(s *fleet.State, r *fleet.Route) float64 {
	class, least := s.Fleet.Class(r.Class), infinite
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		if class.Eligible(p) && s.ReadyEngines(p) > 0 {
			least = min(least, s.RoundTrip(fleet.Link{FrontEnd: r.FrontEnd, Pool: p.ID}))
		}
	}
	return least
}

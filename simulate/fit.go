package simulate

import (
	"fmt"

	"weir/fleet"
)

// fitted are the utilisations at which a profile is measured.
var fitted = [...]float64{0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1}

// fitRequests is how many requests each point rests on, about.
const fitRequests = 4000

// Fit measures what a replica can do with a workload, as an operator would who loads
// one: the profile to believe of it. of makes the workload at a rate, for a fleet of
// one front-end and one class; its conversations all go to the replica, so that what
// its cache saves is in the profile. Utilisation 1 is the load at which the engine's
// own is.
func Fit(e Engine, of func(rps float64) (Workload, error), seed uint64) (fleet.Profile, error) {
	p := fleet.Profile{OutputTokenCost: e.OutputTokenCost, CapacityRps: e.CapacityRps / 4}
	for range 2 { // what is cached depends on the load
		r, err := tryOut(e, of, 0.6*p.CapacityRps, seed)
		if err != nil {
			return p, err
		}
		p.CapacityRps = e.CapacityRps / r.WorkPerRequest
		p.Reference, p.CacheStated = r.Tokens, true
	}
	for _, u := range fitted {
		r, err := tryOut(e, of, u*p.CapacityRps, seed)
		if err != nil {
			return p, err
		}
		p.TTFT = append(p.TTFT, fleet.CurvePoint{Utilisation: u, Seconds: r.TTFT.Mean})
		p.TBT = append(p.TBT, fleet.CurvePoint{Utilisation: u, Seconds: r.TBTSeconds})
	}
	return p, nil
}

// tryOut runs one replica at a rate.
func tryOut(e Engine, of func(rps float64) (Workload, error), rps float64, seed uint64) (*Result, error) {
	w, err := of(rps)
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	const warmUp = 0.25 // of the measured time
	measured := fitRequests / rps
	return Run(Config{
		Fleet: &fleet.Fleet{
			FrontEnds: []fleet.FrontEnd{{ID: "lab"}},
			Pools:     []fleet.Pool{{ID: "lab", Engines: []fleet.EngineID{"lab"}}},
			Classes:   []fleet.Class{{ID: "lab"}},
			Options:   fleet.Options{Tick: seconds(measured)},
		},
		Engines:  map[fleet.PoolID]Engine{"lab": e},
		Workload: w,
		Policy:   allToOne,
		Seed:     seed,
		Seconds:  (1 + warmUp) * measured, WarmUpSeconds: warmUp * measured, DrainSeconds: measured,
	})
}

// allToOne sends everything to the only pool.
func allToOne(s *fleet.State) (*fleet.Plan, error) {
	return &fleet.Plan{Status: fleet.Optimal, Routes: []fleet.Route{{
		FrontEnd: s.Fleet.FrontEnds[0].ID, Class: s.Fleet.Classes[0].ID, DemandRps: 1,
		Shares: []fleet.Share{{Pool: s.Fleet.Pools[0].ID, Share: 1}},
	}}}, nil
}

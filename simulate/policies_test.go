package simulate

import (
	"cmp"
	"slices"
	"time"

	"weir/fleet"
	"weir/solver"
	"weir/solver/clp"
	"weir/solver/lp"
)

// solve solves as the control plane does.
func solve(p *lp.Program) (*lp.Solution, error) { return clp.Solve(p, 10*time.Second) }

// policy is one of the real ones.
func policy(name string) Policy { return Policy(solver.Policies(solve)[name]) }

var (
	optimal = policy(fleet.PolicyOptimal)
	nearest = policy(fleet.PolicyNearest)
	even    = policy(fleet.PolicyEven)
)

// only sends everything to one pool.
func only(id fleet.PoolID) Policy {
	return func(s *fleet.State) (*fleet.Plan, error) {
		plan := &fleet.Plan{Status: fleet.Optimal}
		for stream, d := range s.Demand {
			plan.Routes = append(plan.Routes, fleet.Route{
				FrontEnd: stream.FrontEnd, Class: stream.Class, DemandRps: d.Rps, Shares: []fleet.Share{{Pool: id, Share: 1}},
			})
		}
		slices.SortFunc(plan.Routes, func(a, b fleet.Route) int { return cmp.Compare(a.FrontEnd, b.FrontEnd) })
		return plan, nil
	}
}

// believing plans by the profiles, whatever the evidence: it shows what the capacity
// factor does.
func believing(p Policy) Policy {
	return func(s *fleet.State) (*fleet.Plan, error) {
		for id, pool := range s.Pools {
			pool.CapacityFactor = 0
			s.Pools[id] = pool
		}
		return p(s)
	}
}

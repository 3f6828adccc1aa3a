package control

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"weir/fleet"
)

const (
	// tolerance is the rounding that a plan is allowed, relative and in RPS.
	tolerance = 1e-6
	// fullUtilisation is from where on a pool has no capacity free.
	fullUtilisation = 0.999
)

// guard says why a plan must not be published, or nil. It believes nothing about
// how the plan was made; that it keeps to capacity is asked of the policies that promise
// it. Messages hold no measured numbers, so that a reason that
// lasts reads the same each round.
func guard(s *fleet.State, p *fleet.Plan) error {
	if p == nil {
		return errors.New("there is none")
	}
	if err := sound(p); err != nil {
		return err
	}
	j := newJudge(s, p)
	err := errors.Join(j.complete(), j.placed())
	if fleet.KeepsCapacity(cmp.Or(s.Fleet.Options.Policy, fleet.PolicyOptimal)) {
		err = errors.Join(err, j.fits(), j.needed())
	}
	return err
}

// sound says whether a plan makes sense by itself, for whatever fleet.
func sound(p *fleet.Plan) error {
	if !natural(p.MeanSeconds) {
		return fmt.Errorf("mean latency: %w", errNumber)
	}
	for i := range p.Routes {
		r := &p.Routes[i]
		if i > 0 && compareRoutes(&p.Routes[i-1], r) >= 0 {
			return fmt.Errorf("%s: out of order or twice", name(r))
		}
		if err := soundRoute(r); err != nil {
			return fmt.Errorf("%s: %w", name(r), err)
		}
	}
	for _, q := range p.Pools {
		if !natural(q.CapacityRps, q.Health, q.Rps, q.Utilisation, math.Abs(q.PriceSeconds)) {
			return fmt.Errorf("pool %q: %w", q.Pool, errNumber)
		}
	}
	return nil
}

var errNumber = errors.New("a number is negative or not finite")

func soundRoute(r *fleet.Route) error {
	if !natural(r.DemandRps, r.ShedRps) {
		return errNumber
	}
	if r.ShedRps > r.DemandRps*(1+tolerance) {
		return errors.New("sheds more than is asked for")
	}
	sum := 0.0
	for i, s := range r.Shares {
		if !natural(s.Share, s.Rps, s.NetworkSeconds, s.EngineSeconds) {
			return fmt.Errorf("share of pool %q: %w", s.Pool, errNumber)
		}
		if i > 0 && r.Shares[i-1].Pool >= s.Pool {
			return fmt.Errorf("share of pool %q: out of order or twice", s.Pool)
		}
		sum += s.Share
	}
	if math.Abs(sum-1) > tolerance {
		return errors.New("shares do not sum to 1")
	}
	return nil
}

// natural says whether numbers are finite and at least 0.
func natural(xs ...float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return !(x >= 0 && x <= math.MaxFloat64) })
}

func name(r *fleet.Route) string { return fmt.Sprintf("class %q at %q", r.Class, r.FrontEnd) }

func compareRoutes(a, b *fleet.Route) int {
	return cmp.Or(cmp.Compare(a.FrontEnd, b.FrontEnd), cmp.Compare(a.Class, b.Class))
}

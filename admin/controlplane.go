package admin

import (
	"errors"
	"maps"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// Sources are where the answers of a control plane come from.
type Sources struct {
	Latest       func() fleet.Round
	Clients      func() []fleet.Client // sorted by front-end, node and role
	FleetProblem func() string         // why the fleet file is not in force as it is; empty: it is
	StateProblem func() string         // why plans are not kept; empty: they are
	Metrics      prometheus.Gatherer
	Profiles     func() []fleet.ProfileNews // what traffic says of pools' profiles
	Queries      map[string]Query           // by path: what is reckoned when it is asked for
	// Choose has the control plane work by other policies; nil leaves one as it is, an
	// empty shadow is none.
	Choose func(policy, shadow *string) (fleet.Choice, error)
	// Brake puts a brake on for a time, Release takes one off. Mistakes wrap [fleet.ErrBrake].
	Brake   func(b fleet.Brake, hold time.Duration, force bool) (fleet.Braking, error)
	Release func(t fleet.BrakeTarget, owner string) (fleet.Braking, error)
}

// ControlPlane is what a control plane can be asked.
func ControlPlane(from Sources) Options {
	latest := from.Latest
	queries := map[string]Query{"/profiles": from.profiles}
	maps.Copy(queries, from.Queries)
	return Options{
		Metrics: from.Metrics,
		Queries: queries,
		Actions: map[string]Action{"/policy": chooser(from.Choose), "/brakes": braker(from)},
		Ready:   func() error { return ready(latest()) },
		Pages: map[string]Page{
			"/status": func() (any, error) {
				s := newStatus(time.Now(), latest(), from.Clients(), from.FleetProblem(), from.StateProblem())
				s.addProfiles(from.Profiles())
				return s, nil
			},
			"/clients": func() (any, error) { return from.Clients(), nil },
			"/policy": func() (any, error) {
				r := latest()
				if r.State == nil {
					return nil, planned(r)
				}
				return r.Choice, nil
			},
			"/brakes": func() (any, error) {
				r := latest()
				if r.State == nil {
					return nil, planned(r)
				}
				return newBrakes(time.Now(), r, r.Brakes), nil
			},
			"/plan": func() (any, error) {
				r := latest()
				return r.Plan, planned(r)
			},
			"/beliefs": func() (any, error) {
				r := latest()
				if r.State == nil {
					return nil, planned(r)
				}
				return newBeliefs(r.At, r.State), nil
			},
		},
	}
}

// profiles tells of one pool what it showed, or of all: of thousands that is too much.
func (from *Sources) profiles(q url.Values) (any, error) {
	if err := CheckKeys(q.Encode(), "pool"); err != nil {
		return nil, err
	}
	r := from.Latest()
	if r.State == nil {
		return nil, planned(r)
	}
	return newProfiles(r.State, from.Profiles(), fleet.PoolID(q.Get("pool"))), nil
}

// ready says why the fleet has no plan of this process yet, nil if it has.
func ready(r fleet.Round) error {
	if err := planned(r); err != nil {
		return err
	}
	if r.Unpublished != "" {
		return errors.New("the plan is not published: " + r.Unpublished)
	}
	return nil
}

// planned says why no plan is in force, nil if one is.
func planned(r fleet.Round) error {
	switch {
	case r.State == nil:
		return errors.New("no plan yet: the first round waits for the engines' first health checks")
	case r.Plan == nil:
		return errors.New("no plan yet: " + r.Why)
	}
	return nil
}

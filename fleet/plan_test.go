package fleet_test

import (
	"testing"

	"weir/fleet"
)

func TestAdmitted(t *testing.T) {
	for name, c := range map[string]struct {
		demand, shed, want float64
	}{
		"nothing refused":      {4, 0, 1},
		"a quarter refused":    {4, 1, 0.75},
		"all refused":          {4, 4, 0},
		"all, and rounding":    {4, 4.000001, 0},
		"nothing is asked for": {0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := fleet.Route{DemandRps: c.demand, ShedRps: c.shed}
			if got := r.Admitted(); got != c.want {
				t.Errorf("Admitted = %v, want %v", got, c.want)
			}
		})
	}
}

func TestPlansCompared(t *testing.T) {
	route := func(f fleet.FrontEndID, demand, shed float64, a, b float64) fleet.Route {
		return fleet.Route{FrontEnd: f, Class: "k", DemandRps: demand, ShedRps: shed, Shares: []fleet.Share{{Pool: "a", Share: a}, {Pool: "b", Share: b}}}
	}
	before := &fleet.Plan{Routes: []fleet.Route{route("f", 10, 0, 1, 0), route("g", 30, 0, 0.5, 0.5)}}
	for name, c := range map[string]struct {
		routes      []fleet.Route
		moved, shed float64
	}{
		"nothing":            {before.Routes, 0, 0},
		"one of two":         {[]fleet.Route{route("f", 10, 0, 0, 1), route("g", 30, 0, 0.5, 0.5)}, 0.25, 0},
		"of what is let in":  {[]fleet.Route{route("f", 20, 10, 0, 1), route("g", 40, 10, 0.5, 0.5)}, 0.25, 20},
		"a new one":          {[]fleet.Route{route("f", 10, 0, 1, 0), route("h", 30, 0, 0, 1)}, 0, 0},
		"nobody is let in":   {[]fleet.Route{route("f", 10, 10, 0, 1)}, 0, 10},
		"nobody asks at all": {nil, 0, 0},
	} {
		after := &fleet.Plan{Routes: c.routes}
		if got := fleet.Moved(before, after); got != c.moved {
			t.Errorf("%s: moved %v, want %v", name, got, c.moved)
		}
		if got := after.ShedRps(); got != c.shed {
			t.Errorf("%s: refuses %v, want %v", name, got, c.shed)
		}
	}
}

func TestFullest(t *testing.T) {
	p := &fleet.Plan{Pools: []fleet.PoolPlan{{Pool: "a", Utilisation: 0.3}, {Pool: "b", Utilisation: 0.9}, {Pool: "c"}}}
	if got := p.Fullest().Pool; got != "b" {
		t.Errorf("%q is the fullest, want b", got)
	}
	p.Pools = p.Pools[2:]
	if got := p.Fullest(); got != (fleet.PoolPlan{}) {
		t.Errorf("%+v is the fullest of unused pools, want none", got)
	}
}

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

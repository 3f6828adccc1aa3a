package extproc

import (
	"fmt"
	"testing"

	"weir/extproc/penalty"
	"weir/fleet"
)

// An engine is in a strained pool if requests wait at a third of the others: where two
// engines of eight are sick they do not excuse one another.
func TestStrainedByQueues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engines, wait int
		those, others bool // are strained
	}{
		{1, 1, false, false},
		{2, 0, false, false},
		{2, 1, false, true},
		{2, 2, true, true},
		{3, 1, false, true},
		{3, 2, true, true},
		{4, 1, false, true},
		{4, 2, true, true},
		{5, 1, false, false},
		{5, 2, false, true},
		{5, 3, true, true},
		{6, 2, false, true},
		{7, 2, false, true},
		{8, 2, false, false},
		{8, 3, false, true},
		{8, 4, true, true},
		{20, 5, false, false},
		{20, 7, false, true},
		{20, 8, true, true},
	} {
		s := newScene(t, viewPool("a", 1, c.engines), viewPool("b", 1, 4))
		s.levels(func(pool, engine int) fleet.EngineLevels {
			switch {
			case pool == 0 && engine < c.wait:
				return engineAt(1, 10)
			case engine%2 == 0:
				return engineAt(0, 10)
			default:
				return fleet.EngineLevels{} // of engines that do not tell nothing is known
			}
		})
		got := s.Loads()
		for i, e := range s.pools[0].Engines {
			want := penalty.Load{Queued: i < c.wait, Strained: c.others}
			if want.Queued {
				want.Strained = c.those
			}
			if got[e.ID] != want {
				t.Errorf("%d of %d wait: engine %d has load %+v, want %+v", c.wait, c.engines, i, got[e.ID], want)
			}
		}
		for _, e := range s.pools[1].Engines {
			if got[e.ID] != (penalty.Load{}) {
				t.Errorf("%d of %d wait: an engine of another pool has load %+v", c.wait, c.engines, got[e.ID])
			}
		}
	}
}

// Engines are strained while requests are refused that they cannot serve: in a burst, or
// as the plan says, but not where an operator limits the class.
func TestStrainedByRefusals(t *testing.T) {
	t.Parallel()
	shortOf := &fleet.Admission{Classes: []fleet.ClassAdmission{{Class: "chat", Short: true}}}
	for _, c := range []struct {
		name     string
		admitted float64
		told     *fleet.Admission
		askers   int // in each step
		want     bool
	}{
		{"a burst", 1, ceilingOf(20), 20, true},
		{"within the ceiling", 1, ceilingOf(20), 1, false},
		{"all is let in, whatever is said", 1, shortOf, 1, false},
		{"a limit", 0.5, ceilingOf(20), 1, false},
		{"a limit, and more ask", 0.5, ceilingOf(20), 20, false},
		{"a shortage", 0.5, shortOf, 1, true},
		{"nobody says why", 0.5, nil, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := twoPools()
			v.Classes[0].Admitted = c.admitted
			g := newGated(v, c.told)
			for step := range 30 {
				for i := range c.askers {
					g.ask(fmt.Sprint("x-session: ", step, "-", i))
				}
				g.pass(gateStep)
			}
			n := 0
			for _, load := range g.Loads() {
				if load != (penalty.Load{Strained: true}) {
					t.Errorf("load %+v", load)
				}
				n++
			}
			if all := n == 6; all != c.want || n > 0 && !all {
				t.Errorf("%d of 6 engines are strained, want all: %v", n, c.want)
			}
		})
	}
}

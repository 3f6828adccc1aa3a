package lp

import (
	"fmt"
	"math"
)

// Tolerance is by how much a solution may break a bound or a row, relative to
// the numbers that meet there, and absolutely where those are below 1.
const Tolerance = 1e-6

// Check says whether a solution is one of the program: complete, finite, within
// every bound and row, and worth what it claims. Optimality is not checked.
func Check(p *Program, s *Solution) error {
	if err := complete(p, s); err != nil {
		return err
	}
	activity, scale := make([]float64, len(p.Rows)), make([]float64, len(p.Rows))
	var objective, weight float64
	for i, c := range p.Columns {
		x := s.X[i]
		if beyond(x, c.Lower, c.Upper, math.Abs(x)) {
			return fmt.Errorf("column %d: %v is not within %v to %v", i, x, c.Lower, c.Upper)
		}
		objective += c.Cost * x
		weight += math.Abs(c.Cost * x)
		for _, e := range c.Entries {
			activity[e.Row] += e.Value * x
			scale[e.Row] += math.Abs(e.Value * x)
		}
	}
	for i, r := range p.Rows {
		if beyond(activity[i], r.Lower, r.Upper, scale[i]) {
			return fmt.Errorf("row %d: %v is not within %v to %v", i, activity[i], r.Lower, r.Upper)
		}
	}
	if beyond(s.Objective, objective, objective, weight) {
		return fmt.Errorf("objective %v: the columns are worth %v", s.Objective, objective)
	}
	return nil
}

func complete(p *Program, s *Solution) error {
	parts := []struct {
		name string
		got  []float64
		want int
	}{
		{"values", s.X, len(p.Columns)},
		{"reduced costs", s.ReducedCosts, len(p.Columns)},
		{"row duals", s.RowDuals, len(p.Rows)},
	}
	for _, part := range parts {
		if len(part.got) != part.want {
			return fmt.Errorf("%d %s: want %d", len(part.got), part.name, part.want)
		}
		for i, v := range part.got {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%s: %v at %d", part.name, v, i)
			}
		}
	}
	return nil
}

func beyond(v, lower, upper, scale float64) bool {
	slack := Tolerance * max(1, scale)
	return !(v >= lower-slack && v <= upper+slack)
}

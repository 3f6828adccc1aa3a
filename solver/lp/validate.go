package lp

import (
	"fmt"
	"math"
)

// Largest is the largest finite magnitude that a program may hold. Solvers take
// numbers not far above it for infinite.
const Largest = 1e20

// Validate says what a solver would abort on or silently misread: a number that
// is not finite or too large, bounds that cross, a row that does not exist, a
// coefficient stated twice.
func (p *Program) Validate() error {
	for i, r := range p.Rows {
		if err := bounds(r.Lower, r.Upper); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	seen := make([]int, len(p.Rows)) // 1 + the last column with an entry in the row
	for i := range p.Columns {
		if err := p.column(i, seen); err != nil {
			return fmt.Errorf("column %d: %w", i, err)
		}
	}
	return nil
}

func (p *Program) column(i int, seen []int) error {
	c := &p.Columns[i]
	if !usable(c.Cost) {
		return fmt.Errorf("cost %v: want a finite number up to %g", c.Cost, Largest)
	}
	if err := bounds(c.Lower, c.Upper); err != nil {
		return err
	}
	for _, e := range c.Entries {
		switch {
		case e.Row < 0 || e.Row >= len(p.Rows):
			return fmt.Errorf("row %d: want one of 0–%d", e.Row, len(p.Rows)-1)
		case !usable(e.Value):
			return fmt.Errorf("row %d: coefficient %v: want a finite number up to %g", e.Row, e.Value, Largest)
		case seen[e.Row] == i+1:
			return fmt.Errorf("row %d has two coefficients", e.Row)
		}
		seen[e.Row] = i + 1
	}
	return nil
}

func bounds(lower, upper float64) error {
	if !(usable(lower) || math.IsInf(lower, -1)) || !(usable(upper) || math.IsInf(upper, 1)) {
		return fmt.Errorf("bounds %v to %v: want finite numbers up to %g, or infinite outwards", lower, upper, Largest)
	}
	if lower > upper {
		return fmt.Errorf("bounds %v to %v cross", lower, upper)
	}
	return nil
}

func usable(x float64) bool { return math.Abs(x) <= Largest }

package lp

import (
	"math"
	"strings"
	"testing"
)

var (
	inf = math.Inf(1)
	nan = math.NaN()
)

// program minimises x + 2y with x + y = 3, 0 ≤ x ≤ 2, y ≥ 0: x = 2, y = 1.
func program() *Program {
	p := &Program{}
	row := p.AddRow(3, 3)
	p.AddColumn(Column{Cost: 1, Upper: 2, Entries: []Entry{{row, 1}}})
	p.AddColumn(Column{Cost: 2, Upper: inf, Entries: []Entry{{row, 1}}})
	return p
}

func solution() *Solution {
	return &Solution{X: []float64{2, 1}, RowDuals: []float64{2}, ReducedCosts: []float64{-1, 0}, Objective: 4}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Program)
		want   string // part of the error; empty: none
	}{
		{"as it is", func(*Program) {}, ""},
		{"no rows, no columns", func(p *Program) { *p = Program{} }, ""},
		{"free row", func(p *Program) { p.Rows[0] = Row{-inf, inf} }, ""},
		{"free column", func(p *Program) { p.Columns[0].Lower, p.Columns[0].Upper = -inf, inf }, ""},
		{"cost not a number", func(p *Program) { p.Columns[1].Cost = nan }, "column 1: cost NaN"},
		{"cost infinite", func(p *Program) { p.Columns[1].Cost = -inf }, "column 1: cost -Inf"},
		{"cost too large", func(p *Program) { p.Columns[1].Cost = 1e25 }, "column 1: cost 1e+25"},
		{"coefficient not a number", func(p *Program) { p.Columns[0].Entries[0].Value = nan }, "column 0: row 0: coefficient NaN"},
		{"coefficient infinite", func(p *Program) { p.Columns[0].Entries[0].Value = inf }, "column 0: row 0: coefficient +Inf"},
		{"coefficient too large", func(p *Program) { p.Columns[0].Entries[0].Value = 1e25 }, "column 0: row 0: coefficient 1e+25"},
		{"no such row", func(p *Program) { p.Columns[0].Entries[0].Row = 2_000_000_000 }, "column 0: row 2000000000: want one of 0–0"},
		{"negative row", func(p *Program) { p.Columns[0].Entries[0].Row = -1 }, "column 0: row -1"},
		{"row twice", func(p *Program) { p.Columns[0].Entries = []Entry{{0, 1}, {0, 2}} }, "column 0: row 0 has two coefficients"},
		{"column bounds cross", func(p *Program) { p.Columns[0].Upper = -1 }, "column 0: bounds 0 to -1 cross"},
		{"column bound not a number", func(p *Program) { p.Columns[0].Upper = nan }, "column 0: bounds 0 to NaN"},
		{"lower bound infinite inwards", func(p *Program) { p.Columns[0].Lower, p.Columns[0].Upper = inf, inf }, "column 0: bounds +Inf"},
		{"row not a number", func(p *Program) { p.Rows[0].Lower = nan }, "row 0: bounds NaN"},
		{"row infinite inwards", func(p *Program) { p.Rows[0] = Row{-inf, -inf} }, "row 0: bounds -Inf to -Inf"},
		{"row bounds cross", func(p *Program) { p.Rows[0] = Row{4, 3} }, "row 0: bounds 4 to 3 cross"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := program()
			tt.change(p)
			match(t, p.Validate(), tt.want)
		})
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Solution)
		want   string
	}{
		{"as it is", func(*Solution) {}, ""},
		{"rounding", func(s *Solution) { s.X[0] += 1e-8; s.X[1] -= 2e-8 }, ""},
		{"too few values", func(s *Solution) { s.X = s.X[:1] }, "1 values: want 2"},
		{"no duals", func(s *Solution) { s.RowDuals = nil }, "0 row duals: want 1"},
		{"no reduced costs", func(s *Solution) { s.ReducedCosts = nil }, "0 reduced costs: want 2"},
		{"value not a number", func(s *Solution) { s.X[1] = nan }, "values: NaN at 1"},
		{"dual infinite", func(s *Solution) { s.RowDuals[0] = inf }, "row duals: +Inf at 0"},
		{"below its bound", func(s *Solution) { s.X = []float64{-0.1, 3.1} }, "column 0: -0.1 is not within 0 to 2"},
		{"above its bound", func(s *Solution) { s.X = []float64{2.5, 0.5} }, "column 0: 2.5"},
		{"row broken", func(s *Solution) { s.X[1] = 1.5 }, "row 0: 3.5 is not within 3 to 3"},
		{"objective wrong", func(s *Solution) { s.Objective = 5 }, "objective 5: the columns are worth 4"},
		{"objective not a number", func(s *Solution) { s.Objective = nan }, "objective NaN"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := solution()
			tt.change(s)
			match(t, Check(program(), s), tt.want)
		})
	}
}

func match(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("got error %v, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("got error %v, want one about %q", err, want)
	}
}

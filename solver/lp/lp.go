// Package lp states linear programs, refuses those that a solver must not see,
// and checks what a solver gives back. It solves nothing.
//
// A program minimises Σ cost·x under lower ≤ x ≤ upper for each column and
// lower ≤ Σ value·x ≤ upper for each row.
package lp

import "errors"

// Why a program has no usable solution. Solvers wrap them.
var (
	ErrInfeasible = errors.New("no values satisfy every bound")
	ErrUnbounded  = errors.New("the objective falls without end")
	ErrLimit      = errors.New("the time limit was reached")
	ErrFailed     = errors.New("the solver gave up")
)

// Program is a linear program, column by column.
type Program struct {
	Columns []Column
	Rows    []Row
}

// Column is one variable: its cost per unit, its bounds, and its coefficients.
// A bound may be infinite on its own side.
type Column struct {
	Cost         float64
	Lower, Upper float64
	Entries      []Entry
}

// Entry is one coefficient of a column.
type Entry struct {
	Row   int // index into Program.Rows
	Value float64
}

// Row bounds a sum over columns. A bound may be infinite on its own side; equal
// bounds make an equation.
type Row struct{ Lower, Upper float64 }

// Solution is an optimal solution.
type Solution struct {
	X            []float64 // by column
	RowDuals     []float64 // by row: what the objective gains per unit by which the row's active bound is raised
	ReducedCosts []float64 // by column: the same for the column's active bound; 0 between bounds
	Objective    float64
}

// AddRow appends a row and returns its index.
func (p *Program) AddRow(lower, upper float64) int {
	p.Rows = append(p.Rows, Row{lower, upper})
	return len(p.Rows) - 1
}

// AddColumn appends a column and returns its index.
func (p *Program) AddColumn(c Column) int {
	p.Columns = append(p.Columns, c)
	return len(p.Columns) - 1
}

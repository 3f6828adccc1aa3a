// Package clp solves linear programs with COIN-OR CLP. It is the only package
// that needs cgo, and nothing reaches the C++ side unvalidated: CLP answers some
// bad input by aborting the process and some by a wrong answer.
package clp

// #cgo pkg-config: clp
// int weir_dual(void *model, double wall_seconds);
// const char *weir_clp_version();
import "C"

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/lanl/clp"

	"weir/solver/lp"
)

// Version is that of CLP as it was compiled in.
func Version() string { return C.GoString(C.weir_clp_version()) }

// Solve returns an optimal solution of the program, or an error that wraps one of
// the sentinels of package lp. The limit is wall-clock time and must be
// positive. The same program gives the same solution, bit for bit. Any number of
// calls may run at once.
func Solve(p *lp.Program, limit time.Duration) (*lp.Solution, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("linear program: %w", err)
	}
	if limit <= 0 {
		return nil, fmt.Errorf("time limit %v: want more than 0: %w", limit, lp.ErrLimit)
	}
	simplex := load(p)
	status := dual(simplex, limit)
	if err := statusError(status); err != nil {
		return nil, fmt.Errorf("CLP status %d on %d rows and %d columns: %w", status, len(p.Rows), len(p.Columns), err)
	}
	s := &lp.Solution{
		X:            simplex.PrimalColumnSolution(),
		RowDuals:     simplex.DualRowSolution(),
		ReducedCosts: simplex.DualColumnSolution(),
		Objective:    simplex.ObjectiveValue(),
	}
	runtime.KeepAlive(simplex) // its finalizer frees what the calls above read
	return s, nil
}

func load(p *lp.Program) *clp.Simplex {
	entries := 0
	for i := range p.Columns {
		entries += len(p.Columns[i].Entries)
	}
	matrix := clp.NewPackedMatrix()
	matrix.Reserve(len(p.Columns), entries, false) // appending is quadratic without it
	matrix.SetDimensions(len(p.Rows), 0)           // rows without entries count as well
	bounds := make([]clp.Bounds, len(p.Columns))
	costs := make([]float64, len(p.Columns))
	var column []clp.Nonzero
	for i, c := range p.Columns {
		column = column[:0]
		for _, e := range c.Entries {
			column = append(column, clp.Nonzero{Index: e.Row, Value: e.Value})
		}
		matrix.AppendColumn(column)
		bounds[i] = clp.Bounds{Lower: c.Lower, Upper: c.Upper}
		costs[i] = c.Cost
	}
	rows := make([]clp.Bounds, len(p.Rows))
	for i, r := range p.Rows {
		rows[i] = clp.Bounds(r)
	}
	simplex := clp.NewSimplex()
	simplex.LoadProblem(matrix, bounds, costs, rows, nil)
	return simplex
}

// dual runs the dual simplex method. The binding keeps the C++ model in its first
// field; a test holds it to that.
func dual(simplex *clp.Simplex, limit time.Duration) int {
	model := *(*unsafe.Pointer)(unsafe.Pointer(simplex))
	status := C.weir_dual(model, C.double(limit.Seconds()))
	runtime.KeepAlive(simplex)
	return int(status)
}

func statusError(status int) error {
	switch status {
	case 0:
		return nil
	case 1:
		return lp.ErrInfeasible
	case 2:
		return lp.ErrUnbounded
	case 3:
		return lp.ErrLimit
	}
	return lp.ErrFailed
}

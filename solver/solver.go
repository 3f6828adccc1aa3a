// Package solver turns a state into a plan: for each class at each front-end, the
// share of its traffic that each pool gets, at the least latency over all
// requests that capacity allows. docs/MODEL.md derives the linear program.
//
// It is a pure function. The linear program is solved by a function that the
// caller passes in, and nothing that it answers is believed unchecked.
package solver

import (
	"fmt"

	"weir/fleet"
	"weir/solver/lp"
)

// Solve solves a linear program to optimality or says why not. It must give the
// same solution for the same program.
type Solve func(*lp.Program) (*lp.Solution, error)

// Plan returns the plan of a state. The same state gives the same plan, bit for
// bit. An error names what is wrong with the state, or why there is no solution;
// the caller then goes on with the last plan.
func Plan(s *fleet.State, solve Solve) (*fleet.Plan, error) {
	if err := check(s); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	m := newModel(s)
	p := newProgram(m)
	solution, err := p.solve(solve)
	if err != nil {
		return nil, err
	}
	r := p.read(solution)
	r.refine()
	plan := r.plan()
	plan.Policy = fleet.PolicyOptimal
	if err := r.check(plan); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return plan, nil
}

package clp

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/lanl/clp"

	"weir/solver/lp"
)

const limit = time.Minute

var inf = math.Inf(1)

// dual reads the C++ model out of the binding's first field.
func TestBindingLayout(t *testing.T) {
	f := reflect.TypeFor[clp.Simplex]().Field(0)
	if f.Name != "model" || f.Offset != 0 || f.Type.Kind() != reflect.Pointer {
		t.Errorf("first field of clp.Simplex is %s %v at %d, want the pointer model at 0", f.Name, f.Type, f.Offset)
	}
}

// simple minimises x + 2y with x + y = 3 and 0 ≤ x ≤ 2, y ≥ 0.
func simple() *lp.Program {
	p := &lp.Program{}
	row := p.AddRow(3, 3)
	p.AddColumn(lp.Column{Cost: 1, Upper: 2, Entries: []lp.Entry{{Row: row, Value: 1}}})
	p.AddColumn(lp.Column{Cost: 2, Upper: inf, Entries: []lp.Entry{{Row: row, Value: 1}}})
	return p
}

func TestSolve(t *testing.T) {
	empty := simple()
	empty.AddRow(-inf, 7) // no column has an entry
	tests := []struct {
		name    string
		program *lp.Program
		want    *lp.Solution
	}{
		{"simple", simple(), &lp.Solution{X: []float64{2, 1}, RowDuals: []float64{2}, ReducedCosts: []float64{-1, 0}, Objective: 4}},
		{"a row without entries", empty, &lp.Solution{X: []float64{2, 1}, RowDuals: []float64{2, 0}, ReducedCosts: []float64{-1, 0}, Objective: 4}},
		{
			"no rows",
			&lp.Program{Columns: []lp.Column{{Cost: 1, Lower: -1, Upper: 1}, {Cost: -1, Upper: 5}}},
			&lp.Solution{X: []float64{-1, 5}, ReducedCosts: []float64{1, -1}, Objective: -6},
		},
		{"nothing", &lp.Program{}, &lp.Solution{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Solve(tt.program, limit)
			if err != nil {
				t.Fatal(err)
			}
			opts := []cmp.Option{cmpopts.EquateApprox(0, 1e-12), cmpopts.EquateEmpty()}
			if diff := cmp.Diff(tt.want, got, opts...); diff != "" {
				t.Errorf("solution (-want +got):\n%s", diff)
			}
			if err := lp.Check(tt.program, got); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNoSolution(t *testing.T) {
	infeasible := simple()
	infeasible.Columns[1].Upper = 0.5
	unbounded := simple()
	unbounded.Columns[0].Lower = -inf
	unbounded.Columns[0].Cost = 3
	emptyRow := simple()
	emptyRow.AddRow(1, 1)
	tests := []struct {
		name    string
		program *lp.Program
		limit   time.Duration
		want    error
	}{
		{"infeasible", infeasible, limit, lp.ErrInfeasible},
		{"an equation without entries", emptyRow, limit, lp.ErrInfeasible},
		{"unbounded", unbounded, limit, lp.ErrUnbounded},
		{"no time", simple(), 0, lp.ErrLimit},
		{"too little time", transport(60, 200), time.Nanosecond, lp.ErrLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if s, err := Solve(tt.program, tt.limit); !errors.Is(err, tt.want) {
				t.Errorf("got %v and error %v, want %v", s, err, tt.want)
			}
		})
	}
}

// Each of these ends the process or yields garbage when CLP sees it.
func TestBadInputNeverReachesCLP(t *testing.T) {
	nan := math.NaN()
	tests := map[string]func(*lp.Program){
		"cost not a number":        func(p *lp.Program) { p.Columns[0].Cost = nan },
		"cost infinite":            func(p *lp.Program) { p.Columns[0].Cost = inf },
		"bound not a number":       func(p *lp.Program) { p.Columns[0].Upper = nan },
		"coefficient infinite":     func(p *lp.Program) { p.Columns[0].Entries[0].Value = inf },
		"coefficient not a number": func(p *lp.Program) { p.Columns[0].Entries[0].Value = nan },
		"coefficient too large":    func(p *lp.Program) { p.Columns[0].Entries[0].Value = 1e25 },
		"right side not a number":  func(p *lp.Program) { p.Rows[0] = lp.Row{Lower: nan, Upper: nan} },
		"row index out of range":   func(p *lp.Program) { p.Columns[0].Entries[0].Row = 2_000_000_000 },
		"row index negative":       func(p *lp.Program) { p.Columns[0].Entries[0].Row = -1 },
		"bounds cross":             func(p *lp.Program) { p.Columns[0].Lower = 3 },
		"coefficient twice":        func(p *lp.Program) { p.Columns[0].Entries = append(p.Columns[0].Entries, lp.Entry{Value: 1}) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			p := simple()
			change(p)
			if s, err := Solve(p, limit); err == nil {
				t.Errorf("got %v, want an error", s)
			}
		})
	}
}

// Raising a bound by a little changes the objective by what its dual says.
func TestDualsAreDerivatives(t *testing.T) {
	const step = 1e-4
	p := transport(4, 6)
	at, err := Solve(p, limit)
	if err != nil {
		t.Fatal(err)
	}
	slope := func(shift func(*lp.Program, float64)) float64 {
		var objective [2]float64
		for i, by := range []float64{-step, step} {
			shifted := transport(4, 6)
			shift(shifted, by)
			s, err := Solve(shifted, limit)
			if err != nil {
				t.Fatal(err)
			}
			objective[i] = s.Objective
		}
		return (objective[1] - objective[0]) / (2 * step)
	}
	for i := range p.Rows {
		got := at.RowDuals[i]
		want := slope(func(p *lp.Program, by float64) {
			p.Rows[i].Upper += by
			if !math.IsInf(p.Rows[i].Lower, 0) {
				p.Rows[i].Lower += by
			}
		})
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("dual of row %d: got %v, want %v", i, got, want)
		}
	}
	full := 0
	for i, c := range p.Columns {
		if at.X[i] < c.Upper-1e-9 {
			continue
		}
		full++
		want := slope(func(p *lp.Program, by float64) { p.Columns[i].Upper += by })
		if math.Abs(at.ReducedCosts[i]-want) > 1e-6 || at.ReducedCosts[i] > 0 {
			t.Errorf("reduced cost of full column %d: got %v, want %v", i, at.ReducedCosts[i], want)
		}
	}
	if full == 0 {
		t.Error("no column at its upper bound: nothing was tested")
	}
}

// transport sends from each of n sources to m bounded sinks at random costs; the
// columns are bounded as well, a little below what the cheapest would take.
func transport(n, m int) *lp.Program {
	random := rand.New(rand.NewPCG(1, 2))
	p := &lp.Program{}
	for range n {
		supply := 5 + random.Float64()
		p.AddRow(supply, supply)
	}
	for range m {
		p.AddRow(-inf, 6.5*float64(n)/float64(m)+random.Float64())
	}
	for i := range n {
		for j := range m {
			p.AddColumn(lp.Column{Cost: random.Float64(), Upper: 2 + random.Float64(), Entries: []lp.Entry{
				{Row: i, Value: 1}, {Row: n + j, Value: 1},
			}})
		}
	}
	return p
}

func TestSameProgramSameSolution(t *testing.T) {
	want, err := Solve(transport(20, 30), limit)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			got, err := Solve(transport(20, 30), limit)
			if err != nil {
				t.Error(err)
				return
			}
			runtime.GC() // finalizers of the solved models run between
			if !reflect.DeepEqual(got, want) {
				t.Error("another solution of the same program")
			}
		})
	}
	all.Wait()
}

package solver

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/fleet"
)

func mustExplain(t rapid.TB, s *fleet.State) *fleet.Explanation {
	t.Helper()
	e, err := Explain(s, solve)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What is said adds up: network, engine, price, move and limits are the dual of the
// demand and the reduced cost of the pool's column; the pools in use cost alike but for
// traffic that stays; and no pool that is not used is better.
func TestExplanationsAddUp(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		s.Fleet.Options.MinShare = 0
		m := newModel(s)
		p := newProgram(m)
		solution, err := p.solve(solve)
		if err != nil {
			t.Fatal(err)
		}
		e := newExplanation(p, solution, nil)
		for i, why := range mustExplain(t, s).Streams {
			if p.demand[i] == none {
				continue
			}
			last := solution.RowDuals[p.demand[i]]
			margin := 1e-6 * (1 + math.Abs(last))
			for j, o := range why.Options {
				if o.Why == "no engine is ready" {
					continue
				}
				f, _ := e.flowOf(i, j)
				if got, want := o.Cost(), last+solution.ReducedCosts[f.column]; math.Abs(got-want) > margin {
					t.Errorf("%s at %s: %s adds up to %v, want %v", why.Class, why.FrontEnd, o.Pool, got, want)
				}
				if plan.ShedRps() > 0 {
					continue // who is let in where was levelled after the program
				}
				if o.Share == 0 && o.WorseSeconds < -margin {
					t.Errorf("%s at %s: %s is %v better and not used", why.Class, why.FrontEnd, o.Pool, -o.WorseSeconds)
				}
				if o.Share > 0 && (o.WorseSeconds > margin || o.WorseSeconds < -margin && !m.streams[i].settled()) {
					t.Errorf("%s at %s: %s is used and worse by %v", why.Class, why.FrontEnd, o.Pool, o.WorseSeconds)
				}
				checkEngine(t, e, o, why.Class)
			}
		}
	})
}

// checkEngine holds an engine's part against the pool's own curve: what one more
// request adds is the slope of the piece in which the pool's load ends, at least that
// of every piece in use and at most that of any with room.
func checkEngine(t *rapid.T, e *explanation, o fleet.OptionWhy, id fleet.ClassID) {
	pool := e.model.pool(o.Pool)
	of := e.model.classes[slices.IndexFunc(e.model.classes, func(c *class) bool { return c.ID == id })]
	x := of.options[slices.IndexFunc(of.options, func(x option) bool { return x.pool == pool })]
	slope := (o.EngineSeconds - x.base) / x.work
	margin := 1e-6 * (1 + math.Abs(slope))
	for _, f := range e.fills {
		piece, filled := &e.Columns[f.column], e.solution.X[f.column]
		if f.pool != pool.index {
			continue
		}
		if filled > margin && slope < piece.Cost-margin {
			t.Errorf("%s: one more adds %v, a piece of %v is in use", o.Pool, slope, piece.Cost)
		}
		if filled < piece.Upper-margin && slope > piece.Cost+margin {
			t.Errorf("%s: one more adds %v, a piece of %v has room", o.Pool, slope, piece.Cost)
		}
	}
}

// A marginal cost is a slope of the least cost, which is convex in demand: the line
// through the present cost lies below it everywhere, and touches it where there is no
// kink.
func TestMarginalCosts(t *testing.T) {
	law(t, func(t *rapid.T, s *fleet.State, plan *fleet.Plan) {
		s.Fleet.Options.MinShare = 0
		streams := slices.DeleteFunc(mustExplain(t, s).Streams, func(w fleet.StreamWhy) bool { return w.DemandRps == 0 })
		if len(streams) == 0 {
			return
		}
		why := rapid.SampledFrom(streams).Draw(t, "stream")
		at := fleet.Stream{FrontEnd: why.FrontEnd, Class: why.Class}
		now := objective(t, s)
		for _, factor := range []float64{0.9, 0.999, 1.001, 1.1} {
			other := *s
			other.Demand = maps.Clone(s.Demand)
			d := other.Demand[at]
			step := d.Rps * (factor - 1)
			d.Rps += step
			other.Demand[at] = d
			cost := objective(t, &other)
			margin := 1e-6 * (1 + math.Abs(now) + math.Abs(cost))
			if line := now + why.MarginalSeconds*step; cost < line-margin {
				t.Errorf("%v with %v RPS more costs %v, its marginal cost promises %v", at, step, cost, line)
			}
		}
	})
}

// The talk's example, by hand: docs/MODEL.md.
func TestExplanationOfTheTalk(t *testing.T) {
	e := mustExplain(t, talk())
	fromB := e.Streams[1]
	want := map[fleet.PoolID]struct{ network, worse float64 }{
		"A": {0.080, 0.080 + 0.2 + 0.0906 - (0.060 + 0.2 + 0.0750)},
		"B": {0.002, 0},
		"C": {0.060, 0},
	}
	for _, o := range fromB.Options {
		w := want[o.Pool]
		if o.NetworkSeconds != w.network || math.Abs(o.WorseSeconds-w.worse) > 0.0032 {
			t.Errorf("from B to %s: %+v, want network %v and worse by %v", o.Pool, o, w.network, w.worse)
		}
	}
	// An RPS more at B goes to C as well. C's load is where two pieces meet, of 71.9 and
	// of 78.1 ms, so that the price is one of an interval.
	if got := fromB.MarginalSeconds; got < 0.3318 || got > 0.3382 {
		t.Errorf("one more request at B costs %v, want 0.3319 to 0.3381", got)
	}
	if b := e.Pools[1]; !b.Binds || b.ReplicaGain < 50*0.0798 || b.ReplicaGain > 50*0.0862 {
		t.Errorf("pool B: %+v, want it to bind, and 50 RPS of it to save 4 request-seconds a second", b)
	}
	if e.Pools[0].Binds || e.Pools[2].Binds {
		t.Errorf("pools A and C have room: %+v", e.Pools)
	}
}

func TestWhy(t *testing.T) {
	type whys = map[fleet.PoolID]string
	flat := func(s *fleet.State) { // no queueing: network alone decides
		for i := range s.Fleet.Pools {
			s.Fleet.Pools[i].Profile.TTFT = fleet.Curve{{Seconds: 0.2}}
		}
	}
	toA := fleet.Link{FrontEnd: "B", Pool: "A"}
	for name, c := range map[string]struct {
		before, change func(*fleet.State)
		want           whys // of B's options; what moving must gain, 20 ms, is in
	}{
		"full, and more than that":  {flat, func(*fleet.State) {}, whys{"A": "40.00 ms worse", "B": "used, and full", "C": "used"}},
		"a pool without engines":    {flat, func(s *fleet.State) { ask(s, "A", "chat", 0); ready(s, "A", fleet.Unready) }, whys{"A": "no engine is ready", "B": "used, and full", "C": "used"}},
		"too little to be moved":    {flat, func(s *fleet.State) { s.Fleet.Network.RoundTripSeconds[toA] = 0.055 }, whys{"A": "not enough better to move: 15.00 ms short", "B": "used, and full", "C": "used"}},
		"another front-end's place": {flat, func(s *fleet.State) { ask(s, "A", "chat", 100) }, whys{"A": "full with requests for which it is worth more: 40.00 ms worse here", "B": "used, and full", "C": "used"}},
		"nobody asks":               {func(s *fleet.State) { flat(s); ask(s, "B", "chat", 0) }, func(*fleet.State) {}, whys{"A": "98.00 ms worse", "B": "nobody asks for it: a request would go here", "C": "78.00 ms worse"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := talk()
			s.Fleet.Options.ChurnSeconds = 0.010
			c.before(s)
			s.Previous = mustPlan(t, s)
			c.change(s)
			got := whys{}
			for _, o := range mustExplain(t, s).Streams[1].Options {
				got[o.Pool] = o.Why
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("B's options (-want +got):\n%s", diff)
			}
		})
	}
}

// What operators have put on is named as that: who has pinned, limited and drained.
func TestBrakesAreExplained(t *testing.T) {
	s := talk()
	s.Brake([]fleet.Brake{
		{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakePin, FrontEnd: "B", Pool: "B"}, Share: 0.25, Owner: "ann@ops"},
		{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeLimit, Class: "chat"}, Rps: 130, Owner: "bob@ops"},
		{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeDrain, Pool: "A"}, Owner: "eve@ops"},
	})
	e := mustExplain(t, s)
	fromB := e.Streams[1]
	for i, want := range []string{"no engine is ready: 2 of 2 engines drained by eve@ops", "pinned to 25 % by ann@ops: used", "used"} {
		if got := fromB.Options[i].Why; got != want {
			t.Errorf("B to %s: %q, want %q", fromB.Options[i].Pool, got, want)
		}
	}
	if want := "limited by bob@ops to 130 RPS over all front-ends: refuses 57.6 RPS here"; fromB.Limit != want {
		t.Errorf("the limit at B: %q, want %q", fromB.Limit, want)
	}
	if got := e.Pools[0].Limits; len(got) != 1 || got[0] != "2 of 2 engines drained by eve@ops" {
		t.Errorf("pool A: %q", got)
	}
	for i := range s.Brakes {
		if s.Brakes[i].Kind == fleet.BrakeLimit {
			s.Brakes[i].Rps = 0
		}
	}
	if got := mustExplain(t, s).Streams[1].Options[2].Why; got != "the limit lets nobody in: a request would go here" {
		t.Errorf("with a limit of 0: %q", got)
	}
}

// A drain by hand is a brake and no loss of capacity, when it begins and when it ends;
// an engine that dies beside it is one.
func TestADrainIsTheCause(t *testing.T) {
	drained := talk()
	drained.Brake([]fleet.Brake{{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeDrain, Pool: "A"}, Owner: "eve@ops"}})
	dead := talk()
	ready(dead, "A", fleet.Unready)
	for name, c := range map[string]struct {
		before, after *fleet.State
		want          string
	}{
		"begins": {talk(), drained, InputBrakes},
		"ends":   {drained, talk(), InputBrakes},
		"dies":   {talk(), dead, InputCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cause := range Causes(c.before, c.after, func(s *fleet.State) (*fleet.Plan, error) { return Plan(s, solve) }) {
				if moves := cause.Moved > 0 || cause.Shed != 0; moves != (cause.Input == c.want) {
					t.Errorf("%s moves %v and refuses %v more, want %s alone to", cause.Input, cause.Moved, cause.Shed, c.want)
				}
			}
		})
	}
}

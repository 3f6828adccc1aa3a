package solver

import (
	"fmt"
	"testing"
	"time"

	"weir/fleet"
	"weir/solver/clp"
	"weir/solver/lp"
)

// solve is CLP with a limit that no test comes near.
func solve(p *lp.Program) (*lp.Solution, error) { return clp.Solve(p, time.Minute) }

func mustPlan(t testing.TB, s *fleet.State) *fleet.Plan {
	t.Helper()
	plan, err := Plan(s, solve)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// ask sets the demand of a class at a front-end, RPS.
func ask(s *fleet.State, f fleet.FrontEndID, c fleet.ClassID, rps float64) {
	s.Demand[fleet.Stream{FrontEnd: f, Class: c}] = fleet.Demand{Rps: rps, Source: fleet.SourceArrivals}
}

func engines(p fleet.PoolID, n int) []fleet.EngineID {
	out := make([]fleet.EngineID, n)
	for i := range out {
		out[i] = fleet.EngineID(fmt.Sprintf("%s:%d", p, i+1))
	}
	return out
}

// shallow is a profile whose TTFT rises from 200 ms to 250 ms.
func shallow(capacityRps float64) fleet.Profile {
	return fleet.Profile{
		CapacityRps:     capacityRps,
		Reference:       fleet.Tokens{Prompt: 1000, Output: 200},
		OutputTokenCost: 5,
		TTFT:            fleet.Curve{{Utilisation: 0, Seconds: 0.2}, {Utilisation: 1, Seconds: 0.25}},
	}
}

// talk is the example of the talk: A is asked for 90 of its 100 RPS, B for 120 of
// 100, C for 40 of 80, and C is nearer to B than A is.
func talk() *fleet.State {
	pool := func(id fleet.PoolID, capacityRps float64) fleet.Pool {
		return fleet.Pool{ID: id, Models: []string{"llama"}, Engines: engines(id, 2), Profile: shallow(capacityRps)}
	}
	s := &fleet.State{
		Fleet: &fleet.Fleet{
			FrontEnds: []fleet.FrontEnd{{ID: "A"}, {ID: "B"}, {ID: "C"}},
			Pools:     []fleet.Pool{pool("A", 50), pool("B", 50), pool("C", 40)},
			Classes: []fleet.Class{{
				ID:      "chat",
				Match:   []fleet.Rule{{Model: "llama"}},
				Tokens:  fleet.Tokens{Prompt: 1000, Output: 200},
				Weights: fleet.LatencyWeight{TTFT: 1, TBT: 1},
			}},
			Network: fleet.Network{RoundTripSeconds: map[fleet.Link]float64{
				{FrontEnd: "A", Pool: "A"}: 0.002, {FrontEnd: "A", Pool: "B"}: 0.080, {FrontEnd: "A", Pool: "C"}: 0.120,
				{FrontEnd: "B", Pool: "A"}: 0.080, {FrontEnd: "B", Pool: "B"}: 0.002, {FrontEnd: "B", Pool: "C"}: 0.060,
				{FrontEnd: "C", Pool: "A"}: 0.120, {FrontEnd: "C", Pool: "B"}: 0.060, {FrontEnd: "C", Pool: "C"}: 0.002,
			}},
		},
		Demand: map[fleet.Stream]fleet.Demand{},
		Pools:  map[fleet.PoolID]fleet.PoolState{},
	}
	ask(s, "A", "chat", 90)
	ask(s, "B", "chat", 120)
	ask(s, "C", "chat", 40)
	return s
}

// ready sets what health checks say of all engines of a pool.
func ready(s *fleet.State, p fleet.PoolID, r fleet.Readiness) {
	st := s.Pools[p]
	st.Engines = map[fleet.EngineID]fleet.Readiness{}
	for _, e := range s.Fleet.Pool(p).Engines {
		st.Engines[e] = r
	}
	s.Pools[p] = st
}

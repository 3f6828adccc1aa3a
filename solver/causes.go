package solver

import (
	"maps"

	"weir/fleet"
)

// Inputs name the parts of a state that a plan can change for.
const (
	InputDemand   = "demand"
	InputCapacity = "capacity" // readiness but for drains by hand, health and capacity factors
	InputNetwork  = "network"
	InputSizes    = "sizes of requests"
	InputFleet    = "fleet file"
	InputPolicy   = "policy" // the file's or an operator's
	InputBrakes   = "brakes" // drains, pins and limits by hand
	InputTime     = "time"   // small gains that have lasted
)

// Cause is what the change of one input alone does to a plan.
type Cause struct {
	Input string  `json:"input"`
	Moved float64 `json:"movedShare"` // of the admitted traffic
	Shed  float64 `json:"shedRps"`    // more than before; below 0: less
	Error string  `json:"error,omitempty"`
}

// Causes says which input's change moves how much: the earlier state with that input
// alone as it is later. What two inputs do together is in neither. Nil:
// the earlier state cannot be planned.
func Causes(before, after *fleet.State, plan func(*fleet.State) (*fleet.Plan, error)) []Cause {
	base, err := plan(before)
	if err != nil {
		return nil
	}
	var out []Cause
	for _, input := range []struct {
		name string
		take func(*fleet.State)
	}{
		{InputDemand, func(s *fleet.State) { s.Demand = after.Demand }},
		{InputCapacity, func(s *fleet.State) { s.Pools = drainedAs(before, before, after, after) }},
		{InputNetwork, func(s *fleet.State) { s.Network, s.NetworkNoise = after.Network, after.NetworkNoise }},
		{InputSizes, func(s *fleet.State) { s.Tokens = after.Tokens }},
		{InputFleet, func(s *fleet.State) { s.Fleet = withPolicy(after.Fleet, before.Fleet) }},
		{InputPolicy, func(s *fleet.State) { s.Fleet = withPolicy(before.Fleet, after.Fleet) }},
		{InputBrakes, func(s *fleet.State) {
			s.Brakes, s.Pools = after.Brakes, drainedAs(after, before, after, before)
		}},
		{InputTime, func(s *fleet.State) { s.Previous, s.ElapsedSeconds = after.Previous, after.ElapsedSeconds }},
	} {
		s := *before
		input.take(&s)
		out = append(out, causeOf(input.name, base, &s, plan))
	}
	return out
}

// drainedAs is what a state believes of pools, but of the engines that are drained by hand
// before or after a change what another one does.
func drainedAs(one, before, after, of *fleet.State) map[fleet.PoolID]fleet.PoolState {
	out := maps.Clone(of.Pools)
	if out == nil {
		out = map[fleet.PoolID]fleet.PoolState{}
	}
	for i := range before.Fleet.Pools {
		p := &before.Fleet.Pools[i]
		for _, e := range p.Engines {
			if before.DrainedBy(p.ID, e) == nil && after.DrainedBy(p.ID, e) == nil {
				continue
			}
			st := out[p.ID]
			engines := map[fleet.EngineID]fleet.Readiness{}
			maps.Copy(engines, st.Engines)
			engines[e] = one.Readiness(p.ID, e)
			st.Engines = engines
			out[p.ID] = st
		}
	}
	return out
}

// withPolicy is a fleet with the policy of another one.
func withPolicy(f, of *fleet.Fleet) *fleet.Fleet {
	out := *f
	out.Options.Policy = of.Options.Policy
	return &out
}

func causeOf(name string, base *fleet.Plan, s *fleet.State, plan func(*fleet.State) (*fleet.Plan, error)) Cause {
	p, err := plan(s)
	if err != nil {
		return Cause{Input: name, Error: err.Error()}
	}
	return Cause{Input: name, Moved: fleet.Moved(base, p), Shed: p.ShedRps() - base.ShedRps()}
}

package fleet

import "slices"

// Penalty is what a weir-extproc multiplies an engine's weight by while its requests go
// wrong there, and why.
type Penalty struct {
	Pool   PoolID
	Engine EngineID
	Value  float64 // 0 < value < 1
	Fault  Fault
	// AgeSeconds is since it began, ClearsSeconds until it is gone if nothing more is
	// heard of the engine. Good answers to the few requests that it still gets clear it
	// sooner, bad ones begin that time anew.
	AgeSeconds    float64
	ClearsSeconds float64
}

// Penalises says whether the reporter penalises an engine.
func (r *LoadReport) Penalises(e EngineID) bool {
	return slices.ContainsFunc(r.Penalties, func(p Penalty) bool { return p.Engine == e })
}

// Fault is what an engine is penalised for.
type Fault string

// Faults that are not outcomes: those have the outcomes' names.
const (
	FaultFirstTokens Fault = "ttft"    // first tokens come late, compared with the pool's other engines
	FaultTokens      Fault = "tbt"     // tokens come slowly, likewise
	FaultStalled     Fault = "stalled" // answers began, and nothing more came for long
)

// FaultOf returns what an engine is to blame for whose attempt ended so; false: nothing.
func FaultOf(o Outcome) (f Fault, blamed bool) {
	switch o {
	case ServerError, Refused, Reset, Truncated, Slow:
		return Fault(o.String()), true
	default:
		return "", false
	}
}

// Faults are all that there are.
func Faults() []Fault {
	faults := []Fault{FaultFirstTokens, FaultTokens, FaultStalled}
	for o := range outcomes {
		if f, blamed := FaultOf(o); blamed {
			faults = append(faults, f)
		}
	}
	return faults
}

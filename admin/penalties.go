package admin

import (
	"weir/fleet"
)

// Penalty is an engine that gets less than its part, since its requests go wrong.
type Penalty struct {
	Pool    fleet.PoolID   `json:"pool"`
	Engine  fleet.EngineID `json:"engine"`
	Penalty float64        `json:"penalty"` // its weight is multiplied by; of several the least
	Fault   fleet.Fault    `json:"fault"`   // of that one
	For     string         `json:"for"`     // the same in words
	By      int            `json:"by"`      // weir-extprocs, each by its own requests
	// AgeSeconds is since the first of them began, ClearsSeconds until the last is gone
	// if nothing more is heard of the engine.
	AgeSeconds    float64 `json:"ageSeconds"`
	ClearsSeconds float64 `json:"clearsSeconds"`
}

// maxPenalties bounds the list: more of them say no more.
const maxPenalties = 100

// newPenalties are those of a pool, by engine.
func newPenalties(p *fleet.Pool, s *fleet.State) (out []Penalty) {
	for _, seen := range s.Pools[p.ID].Signals.Penalties { // those of one engine come together
		n := len(out)
		if n == 0 || out[n-1].Engine != seen.Engine {
			out = append(out, Penalty{Pool: p.ID, Engine: seen.Engine, Penalty: 1})
			n++
		}
		last := &out[n-1]
		last.By++
		last.AgeSeconds = max(last.AgeSeconds, seen.AgeSeconds)
		last.ClearsSeconds = max(last.ClearsSeconds, seen.ClearsSeconds)
		if seen.Value < last.Penalty {
			last.Penalty, last.Fault, last.For = seen.Value, seen.Fault, inWords(seen.Fault)
		}
	}
	return out
}

func inWords(f fleet.Fault) string {
	switch f {
	case fleet.FaultFirstTokens:
		return "first tokens come late"
	case fleet.FaultTokens:
		return "tokens come slowly"
	case fleet.FaultStalled:
		return "streams stand still"
	case fleet.Fault(fleet.Slow.String()):
		return "no answer begins in time"
	case fleet.Fault(fleet.ServerError.String()):
		return "it answers 5xx"
	case fleet.Fault(fleet.Refused.String()):
		return "no connection"
	case fleet.Fault(fleet.Reset.String()):
		return "connections are lost before an answer"
	case fleet.Fault(fleet.Truncated.String()):
		return "answers are cut"
	default:
		return string(f)
	}
}

// penalties has a line for each pool.
func (s *Status) penalties(a *list) {
	for i := range s.Pools {
		p := &s.Pools[i]
		n, first := 0, Penalty{}
		for _, of := range s.Penalties {
			if of.Pool != p.Pool {
				continue
			}
			if n++; n == 1 || of.Penalty < first.Penalty {
				first = of
			}
		}
		if n > 0 {
			a.add("pool %q: %d of %d engines are penalised, the most %s for %v, to %.0f %% of its part: %s", p.Pool, n, p.Engines,
				first.Engine, seconds(first.AgeSeconds), 100*first.Penalty, first.For)
		}
	}
}

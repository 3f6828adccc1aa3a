package dialect

import "encoding/json"

// State says how a value is known.
type State uint8

// The states of a value.
const (
	Unknown State = iota
	Stale         // it was so, and nothing newer is known
	Known
)

func (s State) String() string { return [...]string{"unknown", "stale", "known"}[s] }

// Value is a number and how it is known. The zero value is unknown. In JSON an
// unknown value is null.
type Value struct {
	X     float64
	State State
	// series identifies the set of series that X is made of: counters are
	// comparable only over the same set.
	series uint64
}

// Is returns a known value.
func Is(x float64) Value { return Value{X: x, State: Known} }

// Known says whether the value is known, and fresh.
func (v Value) Known() bool { return v.State == Known }

// MarshalJSON writes the number, or null if it is unknown.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.State == Unknown {
		return []byte("null"), nil
	}
	return json.Marshal(v.X)
}

func (v Value) stale() Value {
	v.State = min(v.State, Stale)
	return v
}

// since is how much a counter grew. A counter that fell began anew, and counted
// all that it shows since.
func (v Value) since(before Value) (grown Value, reset bool) {
	switch {
	case !v.Known() || !before.Known() || v.series != before.series:
		return Value{}, false
	case v.X < before.X:
		return Is(v.X), true
	}
	return Is(v.X - before.X), false
}

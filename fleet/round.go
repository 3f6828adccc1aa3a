package fleet

import "time"

// Round is what the control plane believed and decided in the last round of its
// loop. The zero value is that of a loop that has made none yet.
type Round struct {
	At          time.Time
	State       *State
	Brakes      []Brake   // in force, or from the next round on; the state has those of this round
	Plan        *Plan     // in force; nil: there was never one
	Planned     time.Time // when the plan in force was made; zero: by an earlier process
	Why         string    // why the round made no new plan; empty: it made one
	Unpublished string    // why the fleet could not be told; empty: it was
	Turn        *Turn     // the last one; nil: none since the process began
	Choice      Choice    // of policies
	Shadow      *Shadow   // what the second policy did last; nil: nothing yet, or there is none
}

// Turn is a change of plan that people notice: traffic moved, or other amounts are
// refused.
type Turn struct {
	At            time.Time
	Before, After *State // what was believed in the round before, and in that of the change
	From, To      *Plan
}

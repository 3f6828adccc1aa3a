package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The policies: how a plan is made. docs/MODEL.md says what each does, and what it
// is there for.
const (
	PolicyOptimal      = "optimal"      // the least latency over all requests, within capacity
	PolicyWaterfall    = "waterfall"    // the nearest pool until it is full, then the next
	PolicyLocal        = "local"        // each front-end's own optimum, as if it were alone
	PolicyNearest      = "nearest"      // the nearest pool, whatever its load
	PolicyEven         = "even"         // every ready engine alike
	PolicyProportional = "proportional" // a feedback loop on measured latency
)

// NoPolicy is the name of no shadow, for people; in values it is empty.
const NoPolicy = "none"

// Policies lists their names, the default first.
func Policies() []string {
	return []string{PolicyOptimal, PolicyWaterfall, PolicyLocal, PolicyNearest, PolicyEven, PolicyProportional}
}

// KeepsCapacity says whether a policy promises to ask no pool for more than it can
// do, and to refuse nothing while a pool has room. The others refuse nothing, and ask
// for whatever comes.
func KeepsCapacity(policy string) bool {
	return policy == PolicyOptimal || policy == PolicyWaterfall
}

// HeedsCapacity says whether a policy gives pools less where they can do less.
func HeedsCapacity(policy string) bool { return KeepsCapacity(policy) || policy == PolicyLocal }

// CheckPolicy says what is wrong with the name of a policy, nil if nothing.
func CheckPolicy(name string) error {
	if !slices.Contains(Policies(), name) {
		return fmt.Errorf("there is no policy %.100q: name one of %s", name, strings.Join(Policies(), ", "))
	}
	return nil
}

// Choice is which policies a control plane works with.
type Choice struct {
	Policy Chosen `json:"policy"` // makes the plans in force
	Shadow Chosen `json:"shadow"` // plans beside it, and nothing is done with its plans
}

// Chosen is a policy, and what the fleet file says in its place. They differ where an
// operator chose at run time.
type Chosen struct {
	Name string `json:"name"` // empty: none
	File string `json:"file"` // likewise
}

// ByCommand says whether an operator chose the policy at run time.
func (c Chosen) ByCommand() bool { return c.Name != c.File }

// Shadow is what a second policy would have done in a round.
type Shadow struct {
	Policy string
	At     time.Time // of the round
	Why    string    // why it has no plan, or one that would be refused; empty: it has a good one
	// Difference is what its plan would change of the one in force; nil: it has none.
	Difference *Difference
}

// Difference is what one plan would change of another.
type Difference struct {
	MeanSeconds    float64 `json:"meanSeconds"`    // by which the mean latency is higher
	MovedShare     float64 `json:"movedShare"`     // of the admitted traffic, that goes to another pool
	ShedRps        float64 `json:"shedRps"`        // by which more is refused
	MaxUtilisation float64 `json:"maxUtilisation"` // of the fullest pool, not a difference
}

package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// BrakeKind is what a brake does.
type BrakeKind string

// The kinds of brakes.
const (
	BrakeDrain  BrakeKind = "drain"  // engines end what they have and get nothing new
	BrakeFreeze BrakeKind = "freeze" // the plan in force stays
	BrakePin    BrakeKind = "pin"    // a pool gets a fixed share of a stream
	BrakeLimit  BrakeKind = "limit"  // no more of a class is admitted, over all front-ends
)

// BrakeKinds lists them.
func BrakeKinds() []BrakeKind {
	return []BrakeKind{BrakeDrain, BrakeFreeze, BrakePin, BrakeLimit}
}

const (
	// MaxBrakes is how many brakes may be in force at once.
	MaxBrakes = 100
	// MaxBrakeTime is how long a brake may be put on for: it is renewed, not forgotten.
	MaxBrakeTime = 24 * time.Hour
	// Beyond these a number is a slip: smaller ones Envoy cannot tell from 0, and larger
	// ones nobody serves.
	leastPin              = 1e-4
	leastLimit, mostLimit = 1e-3, 1e7 // RPS

	maxOwner = 100 // bytes
	maxNote  = 300 // bytes
)

// ErrBrake is what an error wraps that says why a brake cannot be put on or taken off
// as it was asked for.
var ErrBrake = errors.New("brake refused")

// BrakeTarget is what a brake is put on. There is one brake on a target at most.
type BrakeTarget struct {
	Kind     BrakeKind  `json:"kind"`
	FrontEnd FrontEndID `json:"frontEnd,omitempty"` // pin
	Class    ClassID    `json:"class,omitempty"`    // limit; pin: empty: of each class that may use the pool
	Pool     PoolID     `json:"pool,omitempty"`     // pin; drain: all of its engines
	Engine   EngineID   `json:"engine,omitempty"`   // drain: this one, in whatever pool
}

// String names the target as people do.
func (t BrakeTarget) String() string {
	switch t.Kind {
	case BrakeDrain:
		if t.Engine != "" {
			return fmt.Sprintf("drain of engine %s", t.Engine)
		}
		return fmt.Sprintf("drain of pool %q", t.Pool)
	case BrakePin:
		return fmt.Sprintf("pin of %s to pool %q", t.Streams(), t.Pool)
	case BrakeLimit:
		return fmt.Sprintf("limit of class %q", t.Class)
	}
	return string(t.Kind)
}

// Streams writes whose traffic a pin speaks of: FRONTEND or FRONTEND/CLASS.
func (t BrakeTarget) Streams() string {
	if t.Class == "" {
		return string(t.FrontEnd)
	}
	return fmt.Sprintf("%s/%s", t.FrontEnd, t.Class)
}

func compareTargets(a, b BrakeTarget) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.FrontEnd, b.FrontEnd), cmp.Compare(a.Class, b.Class),
		cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Engine, b.Engine))
}

// Brake is what an operator has put on by hand, for a time.
type Brake struct {
	BrakeTarget
	Share float64   `json:"share"` // pin: 0–1 of the admitted traffic; others: 0
	Rps   float64   `json:"rps"`   // limit: the most that is admitted; others: 0
	Owner string    `json:"owner"` // who has put it on
	Note  string    `json:"note"`  // why; empty: that was not said
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Braking is what came of an order to put a brake on or take one off.
type Braking struct {
	Was    *Brake  // stood on the target before; nil: none did
	Brakes []Brake // in force from the next round on
}

// BrakeOn is the brake on a target, or nil.
func BrakeOn(brakes []Brake, t BrakeTarget) *Brake {
	i := slices.IndexFunc(brakes, func(b Brake) bool { return b.BrakeTarget == t })
	if i < 0 {
		return nil
	}
	was := brakes[i]
	return &was
}

// misfits gathers what does not go together in a brake.
type misfits struct {
	kind BrakeKind
	errs []error
}

func (m *misfits) add(format string, values ...any) {
	m.errs = append(m.errs, fmt.Errorf("%s: "+format, append([]any{m.kind}, values...)...))
}

// want demands a part of a brake, or that it be left out.
func (m *misfits) want(name string, given, wanted bool) {
	switch {
	case wanted && !given:
		m.add("it needs a %s", name)
	case given && !wanted:
		m.add("it takes no %s", name)
	}
}

// Sound says what is wrong with a brake by itself, for whatever fleet; nil: nothing.
func (b *Brake) Sound() error {
	if !slices.Contains(BrakeKinds(), b.Kind) {
		return fmt.Errorf("there is no brake %.100q", b.Kind)
	}
	m := &misfits{kind: b.Kind}
	switch {
	case b.Kind != BrakeDrain:
		m.want("pool", b.Pool != "", b.Kind == BrakePin)
		m.want("engine", b.Engine != "", false)
	case (b.Pool == "") == (b.Engine == ""):
		m.add("name either a pool or an engine")
	}
	m.want("front-end", b.FrontEnd != "", b.Kind == BrakePin)
	m.want("class", b.Class != "", b.Kind == BrakeLimit || b.Kind == BrakePin && b.Class != "")
	if b.Share != 0 && (b.Kind != BrakePin || !within(b.Share, leastPin, 1)) {
		m.add("share %v: want 0, or %v to 1, of a pin", b.Share, leastPin)
	}
	if b.Rps != 0 && (b.Kind != BrakeLimit || !within(b.Rps, leastLimit, mostLimit)) {
		m.add("%v RPS: want 0, or %v to %.0f, of a limit", b.Rps, leastLimit, mostLimit)
	}
	if d := b.Until.Sub(b.Since); !(d > 0 && d <= MaxBrakeTime) {
		m.add("for %v: want more than 0 and %v at most; a brake can be renewed", d, MaxBrakeTime)
	}
	if b.Owner == "" || len(b.Owner) > maxOwner {
		m.add("an owner of 1 to %d bytes is needed", maxOwner)
	}
	if len(b.Note) > maxNote {
		m.add("the note has %d bytes: %d are allowed", len(b.Note), maxNote)
	}
	return errors.Join(m.errs...)
}

// within says whether x is a number in those bounds.
func within(x, least, most float64) bool { return x >= least && x <= most }

// WithBrake returns brakes with one more, in order; one on the same target is replaced.
func WithBrake(brakes []Brake, b Brake) []Brake {
	out := append(WithoutBrake(brakes, b.BrakeTarget), b)
	slices.SortFunc(out, func(a, b Brake) int { return compareTargets(a.BrakeTarget, b.BrakeTarget) })
	return out
}

// WithoutBrake returns brakes without that on a target.
func WithoutBrake(brakes []Brake, t BrakeTarget) []Brake {
	return slices.DeleteFunc(slices.Clone(brakes), func(b Brake) bool { return b.BrakeTarget == t })
}

// PlanningBrakes are those of them that plans are made under: pins and limits. Drains
// are heeded whatever the plan.
func PlanningBrakes(brakes []Brake) []Brake {
	return slices.DeleteFunc(slices.Clone(brakes), func(b Brake) bool { return b.Kind != BrakePin && b.Kind != BrakeLimit })
}

// SameBrake says whether one of the brakes does what this one does, whoever has put it on
// and for however long.
func SameBrake(brakes []Brake, b *Brake) bool {
	same := BrakeOn(brakes, b.BrakeTarget)
	return same != nil && same.Share == b.Share && same.Rps == b.Rps
}

// Brake has the state heed brakes, and drains their engines in it. What the state
// shares with others is not changed.
func (s *State) Brake(brakes []Brake) {
	s.Brakes = brakes
	var pools map[PoolID]PoolState
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		if drained := DrainedEngines(brakes, p, s.Pools[p.ID].Engines); drained != nil {
			if pools == nil {
				pools = make(map[PoolID]PoolState, len(s.Pools))
				maps.Copy(pools, s.Pools)
			}
			st := pools[p.ID]
			st.Engines = drained
			pools[p.ID] = st
		}
	}
	if pools != nil {
		s.Pools = pools
	}
}

// DrainedEngines is what is known of a pool's engines with those draining that would
// serve and are to drain; nil: none is. Others are in a worse way already.
func DrainedEngines(brakes []Brake, p *Pool, known map[EngineID]Readiness) map[EngineID]Readiness {
	var out map[EngineID]Readiness
	for i := range brakes {
		b := &brakes[i]
		for _, e := range p.Engines {
			if !b.drains(p.ID, e) || !known[e].Serves() {
				continue
			}
			if out == nil {
				out = make(map[EngineID]Readiness, len(p.Engines))
				maps.Copy(out, known)
			}
			out[e] = Draining
		}
	}
	return out
}

// drains says whether the brake is a drain of that engine of a pool.
func (b *Brake) drains(p PoolID, e EngineID) bool {
	return b.Kind == BrakeDrain && (b.Pool == p || b.Engine == e)
}

// DrainedBy is the drain that keeps an engine of a pool from serving, or nil.
func (s *State) DrainedBy(p PoolID, e EngineID) *Brake {
	if s.Readiness(p, e) != Draining {
		return nil
	}
	return s.drainOf(p, e)
}

// drainOf is the drain of an engine of a pool, be it ready or not, or nil.
func (s *State) drainOf(p PoolID, e EngineID) *Brake {
	return s.brake(func(b *Brake) bool { return b.drains(p, e) })
}

// Frozen is the brake that holds the plan, or nil.
func (s *State) Frozen() *Brake {
	return s.brake(func(b *Brake) bool { return b.Kind == BrakeFreeze })
}

// PinOf is the pin of a stream to a pool, or nil. One of its class stands before one of
// all.
func (s *State) PinOf(st Stream, p PoolID) *Brake {
	of := func(c ClassID) *Brake {
		want := BrakeTarget{Kind: BrakePin, FrontEnd: st.FrontEnd, Class: c, Pool: p}
		return s.brake(func(b *Brake) bool { return b.BrakeTarget == want })
	}
	if b := of(st.Class); b != nil {
		return b
	}
	return of("")
}

// LimitOf is the limit of a class, or nil.
func (s *State) LimitOf(c ClassID) *Brake {
	return s.brake(func(b *Brake) bool { return b.Kind == BrakeLimit && b.Class == c })
}

// AdmittedByLimit is the fraction of each front-end's demand for a class that its limit
// lets in; 1: there is none, or it is not reached.
func (s *State) AdmittedByLimit(c ClassID) float64 {
	limit := s.LimitOf(c)
	if limit == nil {
		return 1
	}
	total := 0.0
	for i := range s.Fleet.FrontEnds { // in order, so that the sum is the same each time
		total += s.Demand[Stream{s.Fleet.FrontEnds[i].ID, c}].Rps
	}
	if total <= limit.Rps {
		return 1
	}
	return limit.Rps / total
}

func (s *State) brake(is func(*Brake) bool) *Brake {
	for i := range s.Brakes {
		if is(&s.Brakes[i]) {
			return &s.Brakes[i]
		}
	}
	return nil
}

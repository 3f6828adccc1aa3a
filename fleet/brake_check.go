package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CheckBrake says why a brake must not be put on a fleet in this state, which has those
// that are in force; nil: it may be. An error wraps [ErrBrake]. By force, a drain may
// leave a class without an engine.
func CheckBrake(s *State, b *Brake, force bool) error {
	err := b.Sound()
	if err == nil {
		err = s.checkTarget(b)
	}
	if err == nil && !slices.ContainsFunc(s.Brakes, func(x Brake) bool { return x.BrakeTarget == b.BrakeTarget }) && len(s.Brakes) >= MaxBrakes {
		err = fmt.Errorf("%d brakes are in force, more are not possible: take some off", len(s.Brakes))
	}
	if err == nil && b.Kind == BrakeDrain && !force {
		err = s.checkDrain(b)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrBrake, err)
}

// CheckRelease says why a brake cannot be taken off; nil: it can.
func CheckRelease(brakes []Brake, t BrakeTarget) error {
	var of []string
	for i := range brakes {
		if brakes[i].BrakeTarget == t {
			return nil
		}
		if brakes[i].Kind == t.Kind {
			of = append(of, brakes[i].String())
		}
	}
	if of == nil {
		return fmt.Errorf("%w: no %s is in force", ErrBrake, t.Kind)
	}
	return fmt.Errorf("%w: there is no %s; in force: %s", ErrBrake, t, strings.Join(of, ", "))
}

// checkTarget says whether what a brake speaks of exists, and goes together.
func (s *State) checkTarget(b *Brake) error {
	f := s.Fleet
	var errs []error
	if b.Pool != "" && f.Pool(b.Pool) == nil {
		errs = append(errs, unknown("pool", b.Pool, f.Pools, func(p *Pool) PoolID { return p.ID }))
	}
	if b.FrontEnd != "" && f.FrontEnd(b.FrontEnd) == nil {
		errs = append(errs, unknown("front-end", b.FrontEnd, f.FrontEnds, func(x *FrontEnd) FrontEndID { return x.ID }))
	}
	if b.Class != "" && f.Class(b.Class) == nil {
		errs = append(errs, unknown("class", b.Class, f.Classes, func(c *Class) ClassID { return c.ID }))
	}
	if b.Engine != "" && !slices.Contains(f.engines(), b.Engine) {
		errs = append(errs, unknown("engine", b.Engine, f.engines(), func(e *EngineID) EngineID { return *e }))
	}
	if errs == nil && b.Kind == BrakePin {
		return s.checkPin(b)
	}
	return errors.Join(errs...)
}

func (f *Fleet) engines() []EngineID {
	var all []EngineID
	for i := range f.Pools {
		all = append(all, f.Pools[i].Engines...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkPin says whether the pool may serve what is pinned to it, and whether no stream
// is pinned to more than there is of it.
func (s *State) checkPin(b *Brake) error {
	then := *s
	then.Brakes = WithBrake(s.Brakes, *b)
	pool := s.Fleet.Pool(b.Pool)
	pinned := false
	for i := range s.Fleet.Classes {
		c := &s.Fleet.Classes[i]
		if b.Class != "" && b.Class != c.ID || !c.Eligible(pool) {
			continue
		}
		pinned = true
		if sum := then.pinned(Stream{b.FrontEnd, c.ID}); sum > 1+1e-9 {
			return fmt.Errorf("with it class %q at %q has %.4g %% of its traffic pinned: 100 %% is all there is", c.ID, b.FrontEnd, 100*sum)
		}
	}
	switch {
	case pinned:
		return nil
	case b.Class != "":
		return fmt.Errorf("pool %q may not serve class %q", b.Pool, b.Class)
	}
	return fmt.Errorf("pool %q may serve no class", b.Pool)
}

// pinned sums the shares to which a stream is pinned.
func (s *State) pinned(st Stream) float64 {
	sum := 0.0
	class := s.Fleet.Class(st.Class)
	for i := range s.Fleet.Pools {
		if pin := s.PinOf(st, s.Fleet.Pools[i].ID); pin != nil && class.Eligible(&s.Fleet.Pools[i]) {
			sum += pin.Share
		}
	}
	return sum
}

// checkDrain says whether every class that has an engine keeps one: one that serves now, if
// there is one, and one that can.
func (s *State) checkDrain(b *Brake) error {
	then := *s
	then.Brake(WithBrake(s.Brakes, *b))
	var left []string
	for i := range s.Fleet.Classes {
		if c := &s.Fleet.Classes[i]; s.serves(c) && !then.serves(c) || s.spares(c) && !then.spares(c) {
			left = append(left, fmt.Sprintf("%q", c.ID))
		}
	}
	if left == nil {
		return nil
	}
	return fmt.Errorf("the %s would leave no engine for class %s: its requests would get 503; force it if that is meant", b.BrakeTarget, strings.Join(left, ", "))
}

// serves says whether any engine may serve a class.
func (s *State) serves(c *Class) bool {
	return slices.ContainsFunc(s.Fleet.Pools, func(p Pool) bool { return c.Eligible(&p) && s.ReadyEngines(&p) > 0 })
}

// spares says whether drains leave any engine to a class, be it ready or not.
func (s *State) spares(c *Class) bool {
	return slices.ContainsFunc(s.Fleet.Pools, func(p Pool) bool {
		return c.Eligible(&p) && slices.ContainsFunc(p.Engines, func(e EngineID) bool { return s.drainOf(p.ID, e) == nil })
	})
}

// suggested is how many names are suggested in place of an unknown one.
const suggested = 3

// unknown tells of a name that nothing has, and what was perhaps meant.
func unknown[T any, ID ~string](what string, name ID, all []T, id func(*T) ID) error {
	names := make([]string, len(all))
	for i := range all {
		names[i] = string(id(&all[i]))
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(distance(string(name), a), distance(string(name), b))
	})
	if len(names) == 0 {
		return fmt.Errorf("there is no %s %.100q", what, name)
	}
	more := ""
	if len(names) > suggested {
		names, more = names[:suggested], ", …"
	}
	return fmt.Errorf("there is no %s %.100q: name one of %s%s", what, name, strings.Join(names, ", "), more)
}

// distance is the least number of bytes to put in, take out or change to make one name
// of the other. Of a long name the beginning counts.
func distance(a, b string) int {
	const most = 100
	a, b = a[:min(len(a), most)], b[:min(len(b), most)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		corner := row[0]
		row[0] = i + 1
		for j := range b {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}

package control

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

// chooseWait is how long an operator waits for the loop to hear him: longer than it
// may take over a plan.
const chooseWait = 10 * time.Second

var errNotHeard = errors.New("the loop is too busy to hear: ask again")

// override is a policy that an operator chose at run time. It stands in for what the
// fleet file says until that says something else.
type override struct {
	set        bool
	name, file string // file is what the file said when it was chosen
}

// chosen is the override as it is kept, nil if there is none.
func (o *override) chosen() *fleet.Chosen {
	if !o.set {
		return nil
	}
	return &fleet.Chosen{Name: o.name, File: o.file}
}

func overrideOf(c *fleet.Chosen) override {
	if c == nil {
		return override{}
	}
	return override{true, c.Name, c.File}
}

// over is what is in force where the file says that. Of a file that has changed its
// mind, the override has ended and is forgotten.
func (o *override) over(file string) fleet.Chosen {
	if o.set && o.file == file {
		return fleet.Chosen{Name: o.name, File: file}
	}
	*o = override{}
	return fleet.Chosen{Name: file, File: file}
}

// Choose has the loop work by other policies from its next round on, until the fleet
// file names another one; it returns what will be in force. Nil
// leaves a policy as it is, and an empty shadow is none; [fleet.CheckPolicy] says whether
// a name is one. Any goroutine may ask.
func (l *Loop) Choose(policy, shadow *string) (fleet.Choice, error) {
	return ask(l, func(now time.Time) (fleet.Choice, error) {
		file := filed(l.config.State(now, l.plan))
		if policy != nil {
			l.policy = override{true, *policy, file.Policy.File}
		}
		if shadow != nil {
			l.shadowed = override{true, *shadow, file.Shadow.File}
		}
		l.keepOrders()
		return l.over(file), nil
	})
}

// ask has the loop do something before its next round, and waits for what comes of it.
// Either it is done, or who asked is told that nobody heard: never both.
func ask[T any](l *Loop, do func(now time.Time) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	heard := make(chan answer, 1)
	var settled atomic.Bool // the loop has begun, or who asked has given up
	posted := l.Post(func(now time.Time) {
		if !settled.CompareAndSwap(false, true) {
			return
		}
		value, err := do(now)
		heard <- answer{value, err}
	})
	var none T
	if !posted {
		return none, errNotHeard
	}
	select {
	case a := <-heard:
		return a.value, a.err
	case <-time.After(chooseWait):
	}
	if settled.CompareAndSwap(false, true) {
		return none, errNotHeard
	}
	a := <-heard // it is about to be done
	return a.value, a.err
}

// filed is what the fleet file says.
func filed(s *fleet.State) fleet.Choice {
	o := &s.Fleet.Options
	policy := cmp.Or(o.Policy, fleet.PolicyOptimal)
	return fleet.Choice{Policy: fleet.Chosen{Name: policy, File: policy}, Shadow: fleet.Chosen{Name: o.Shadow, File: o.Shadow}}
}

// over is what an operator makes of what the file says.
func (l *Loop) over(file fleet.Choice) fleet.Choice {
	return fleet.Choice{Policy: l.policy.over(file.Policy.File), Shadow: l.shadowed.over(file.Shadow.File)}
}

// choose settles which policies a round works by, and writes them into the options of
// its state: what is planned from that, now or later, is planned by them.
func (l *Loop) choose(s *fleet.State) fleet.Choice {
	c := l.over(filed(s))
	f := *s.Fleet
	f.Options.Policy, f.Options.Shadow = c.Policy.Name, c.Shadow.Name
	s.Fleet = &f
	if c != l.choice {
		l.logChoice(c)
	}
	l.choice = c
	return c
}

// logChoice logs other policies than those of the last round, or in the first round
// other ones than the default.
func (l *Loop) logChoice(c fleet.Choice) {
	usual := fleet.Chosen{Name: fleet.PolicyOptimal, File: fleet.PolicyOptimal}
	if l.choice == (fleet.Choice{}) && c == (fleet.Choice{Policy: usual}) {
		return
	}
	by := map[bool]string{false: "fleet file", true: "command"}
	l.config.Log.Info("policies",
		zap.String("policy", c.Policy.Name), zap.String("policyBy", by[c.Policy.ByCommand()]),
		zap.String("shadow", c.Shadow.Name), zap.String("shadowBy", by[c.Shadow.ByCommand()]))
}

// failed tells of a policy that made no plan. No other one is tried in its place: that
// would move traffic for a reason that nobody asked for.
func failed(policy, what string, err error) error {
	if policy == fleet.PolicyOptimal {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: policy %q: %w (optimal may do, and is not tried unasked: weir policy optimal)", what, policy, err)
}

package control

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

// chooseWait is how long an operator waits for the loop to hear him: longer than it
// may take over a plan.
const chooseWait = 10 * time.Second

var (
	errNoRound  = errors.New("nothing is planned yet: ask again in some seconds")
	errNotHeard = errors.New("the loop is too busy to hear: ask again")
)

// override is a policy that an operator chose at run time. It stands in for what the
// fleet file says until that says something else.
type override struct {
	set, bound bool
	name       string
	file       string // what the file said in the first round of it, if it is bound
}

// over is what is in force where the file says that.
func (o *override) over(file string) fleet.Chosen {
	switch {
	case !o.set:
	case !o.bound:
		o.bound, o.file = true, file
	case o.file != file:
		*o = override{}
	}
	if o.set {
		return fleet.Chosen{Name: o.name, File: file}
	}
	return fleet.Chosen{Name: file, File: file}
}

// Choose has the loop work by other policies from its next round on, until the fleet
// file names another one or the process ends; it returns what will be in force. Nil
// leaves a policy as it is, and an empty shadow is none; [fleet.KnownPolicy] says whether
// a name is one. Any goroutine may ask.
func (l *Loop) Choose(policy, shadow *string) (fleet.Choice, error) {
	if l.Latest().State == nil {
		return fleet.Choice{}, errNoRound
	}
	heard := make(chan fleet.Choice, 1)
	posted := l.Post(func(time.Time) {
		choice := l.Latest().Choice
		if policy != nil {
			l.policy, choice.Policy.Name = override{set: true, name: *policy}, *policy
		}
		if shadow != nil {
			l.shadowed, choice.Shadow.Name = override{set: true, name: *shadow}, *shadow
		}
		heard <- choice
	})
	if !posted {
		return fleet.Choice{}, errNotHeard
	}
	select {
	case choice := <-heard:
		return choice, nil
	case <-time.After(chooseWait):
		return fleet.Choice{}, errNotHeard
	}
}

// choose settles which policies a round works by, and writes them into the options of
// its state: what is planned from that, now or later, is planned by them.
func (l *Loop) choose(s *fleet.State) fleet.Choice {
	f := *s.Fleet
	c := fleet.Choice{
		Policy: l.policy.over(cmp.Or(f.Options.Policy, fleet.PolicyOptimal)),
		Shadow: l.shadowed.over(f.Options.Shadow),
	}
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

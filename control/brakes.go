package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

var errNoPlan = fmt.Errorf("%w: there is no plan yet that could be held", fleet.ErrBrake)

// Brake puts a brake on from the next round on and for that time. One on the same target
// is replaced, whoever has put it on, and its note stays where there is no new one. What
// is wrong with it wraps [fleet.ErrBrake]. Any goroutine may ask.
func (l *Loop) Brake(b fleet.Brake, hold time.Duration, force bool) (fleet.Braking, error) {
	return ask(l, func(now time.Time) (fleet.Braking, error) {
		now = now.Round(0) // it is kept over restarts, which know the wall clock alone
		l.expire(now)
		b.Since, b.Until = now, now.Add(hold)
		was := fleet.BrakeOn(l.brakes, b.BrakeTarget)
		if was != nil {
			b.Note = cmp.Or(b.Note, was.Note)
		}
		s := l.config.State(now, l.plan)
		s.Brake(l.brakes)
		if err := fleet.CheckBrake(s, &b, force); err != nil {
			return fleet.Braking{}, err
		}
		if b.Kind == fleet.BrakeFreeze && l.plan == nil {
			return fleet.Braking{}, errNoPlan
		}
		l.setBrakes(fleet.WithBrake(l.brakes, b))
		l.Counters.BrakesPut.Add(1)
		l.config.Log.Info("brake put on", append(brakeFields(&b), replacedFields(was)...)...)
		return fleet.Braking{Was: was, Brakes: l.brakes}, nil
	})
}

// Release takes a brake off, from the next round on.
func (l *Loop) Release(t fleet.BrakeTarget, owner string) (fleet.Braking, error) {
	return ask(l, func(now time.Time) (fleet.Braking, error) {
		l.expire(now)
		if err := fleet.CheckRelease(l.brakes, t); err != nil {
			return fleet.Braking{}, err
		}
		was := fleet.BrakeOn(l.brakes, t)
		l.setBrakes(fleet.WithoutBrake(l.brakes, t))
		l.Counters.BrakesReleased.Add(1)
		l.config.Log.Info("brake taken off", append([]zap.Field{zap.Stringer("brake", t), zap.String("by", owner)}, replacedFields(was)...)...)
		return fleet.Braking{Was: was, Brakes: l.brakes}, nil
	})
}

// expire takes off the brakes whose time is up.
func (l *Loop) expire(now time.Time) {
	left := slices.DeleteFunc(slices.Clone(l.brakes), func(b fleet.Brake) bool {
		over := !now.Before(b.Until)
		if over {
			l.Counters.BrakesExpired.Add(1)
			l.config.Log.Info("brake expired", brakeFields(&b)...)
		}
		return over
	})
	if len(left) != len(l.brakes) {
		l.setBrakes(left)
	}
}

// setBrakes is the one place where they change: whoever must know is told.
func (l *Loop) setBrakes(brakes []fleet.Brake) {
	l.brakes = brakes
	if r := l.latest.Load(); r != nil {
		told := *r
		told.Brakes = brakes
		l.latest.Store(&told) // whoever looks before the next round is to see them
	}
	if l.config.Braked != nil {
		l.config.Braked(brakes)
	}
	l.keepOrders()
}

func brakeFields(b *fleet.Brake) []zap.Field {
	return []zap.Field{
		zap.Stringer("brake", b), zap.Float64("share", b.Share), zap.Float64("rps", b.Rps),
		zap.String("owner", b.Owner), zap.String("note", b.Note), zap.Time("until", b.Until),
	}
}

// replacedFields tell of the brake that stood on a target before, so that it can be put
// back; nil: there was none.
func replacedFields(was *fleet.Brake) []zap.Field {
	if was == nil {
		return nil
	}
	return []zap.Field{
		zap.Float64("shareBefore", was.Share), zap.Float64("rpsBefore", was.Rps), zap.String("ownerBefore", was.Owner),
		zap.String("noteBefore", was.Note), zap.Time("untilBefore", was.Until),
	}
}

// frozen says who holds the plan.
func frozen(b *fleet.Brake) error {
	note := ""
	if b.Note != "" {
		note = fmt.Sprintf(" (%s)", b.Note)
	}
	return fmt.Errorf("frozen by %s until %s%s", b.Owner, b.Until.UTC().Format(time.DateTime+" UTC"), note)
}

// Orders are what operators have ordered at run time, and is kept over restarts.
type Orders struct {
	Policy *fleet.Chosen `json:"policy"` // null: the fleet file's
	Shadow *fleet.Chosen `json:"shadow"` // likewise
	Brakes []fleet.Brake `json:"brakes"`
}

// sound are the orders that make sense by themselves, for whatever fleet, and why the
// others do not. One that another Weir knew is no reason to end the drains.
func (o *Orders) sound() (kept Orders, dropped []error) {
	for i := range o.Brakes {
		err := o.Brakes[i].Sound()
		if err == nil && len(kept.Brakes) == fleet.MaxBrakes {
			err = fmt.Errorf("%d brakes are possible", fleet.MaxBrakes)
		}
		if err != nil {
			dropped = append(dropped, fmt.Errorf("%v: %w", o.Brakes[i].BrakeTarget, err))
			continue
		}
		kept.Brakes = append(kept.Brakes, o.Brakes[i])
	}
	known := func(c *fleet.Chosen) *fleet.Chosen {
		if c == nil || c == o.Shadow && c.Name == "" {
			return c
		}
		if err := fleet.CheckPolicy(c.Name); err != nil {
			dropped = append(dropped, err)
			return nil
		}
		return c
	}
	kept.Policy, kept.Shadow = known(o.Policy), known(o.Shadow)
	return kept, dropped
}

// orders are those in force.
func (l *Loop) orders() Orders {
	return Orders{Policy: l.policy.chosen(), Shadow: l.shadowed.chosen(), Brakes: l.brakes}
}

// restoreOrders has those of an earlier process in force, as far as they make sense.
func (l *Loop) restoreOrders(of *Orders) {
	o, dropped := of.sound()
	for _, err := range dropped {
		l.Counters.OrdersDropped.Add(1)
		l.config.Log.Error("restored order dropped: give it again if it is wanted", zap.Error(err))
	}
	l.policy, l.shadowed = overrideOf(o.Policy), overrideOf(o.Shadow)
	for _, b := range o.Brakes {
		l.brakes = fleet.WithBrake(l.brakes, b)
	}
	if l.config.Braked != nil {
		l.config.Braked(l.brakes)
	}
}

func (l *Loop) keepOrders() {
	if l.config.Keep != nil {
		l.config.Keep(l.orders())
	}
}

// limitedAway says whether a stream's refusal is what the limit of its class takes off
// the demand that a state believes in.
func limitedAway(s *fleet.State, r *fleet.Route) bool {
	demand := s.Demand[fleet.Stream{FrontEnd: r.FrontEnd, Class: r.Class}].Rps
	away := (1 - s.AdmittedByLimit(r.Class)) * demand
	return r.ShedRps <= away+tolerance*max(1, r.DemandRps)
}

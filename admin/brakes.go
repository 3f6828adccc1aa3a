package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/fleet"
)

// BrakeOrder is what an operator wants put on or taken off.
type BrakeOrder struct {
	fleet.BrakeTarget
	Share   *float64 `json:"share,omitempty"`   // of a pin
	Rps     *float64 `json:"rps,omitempty"`     // of a limit
	Seconds *float64 `json:"seconds,omitempty"` // how long it is to last; none: half an hour
	Owner   string   `json:"owner,omitempty"`   // who orders it; needed, but to take one off
	Note    string   `json:"note,omitempty"`    // why
	Force   bool     `json:"force,omitempty"`   // a drain may leave a class without an engine
	Lift    bool     `json:"lift,omitempty"`    // take it off
}

// DefaultBrakeTime is how long a brake lasts where nobody says.
const DefaultBrakeTime = 30 * time.Minute

// Brakes are those in force. Its JSON form is a stable interface.
type Brakes struct {
	Brakes []Brake `json:"brakes"`
	// Replaced stood on the target that was just ordered, and is not in force any more;
	// left out: there was none, or nothing was ordered.
	Replaced *Brake `json:"replaced,omitempty"`
}

// Brake is one in force, and what comes of it.
type Brake struct {
	fleet.Brake
	SecondsLeft float64 `json:"secondsLeft"`
	Effect      string  `json:"effect"` // what it does now, or why it does not; empty: there is nothing to say
}

// FetchBrakes asks the control plane which brakes are in force.
func FetchBrakes(ctx context.Context, address string) (*Brakes, error) {
	b := &Brakes{}
	return b, fetch(ctx, address, "/brakes", b)
}

// OrderBrake has it put one on or take one off, and returns those in force from the next
// round on.
func OrderBrake(ctx context.Context, address string, o BrakeOrder) (*Brakes, error) {
	b := &Brakes{}
	return b, send(ctx, address, "/brakes", o, b)
}

// braker is the action that takes a BrakeOrder.
func braker(from Sources) Action {
	return func(body []byte) (any, error) {
		var o BrakeOrder
		err := decode(body, &o)
		if err == nil {
			err = o.check()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrQuery, err)
		}
		var done fleet.Braking
		if o.Lift {
			done, err = from.Release(o.BrakeTarget, o.Owner)
		} else {
			b, hold := o.brake()
			done, err = from.Brake(b, hold, o.Force)
		}
		if err != nil {
			return nil, err
		}
		return newBraking(time.Now(), from.Latest(), done), nil
	}
}

// check says what is missing in an order, or does not belong there; whether what is
// there makes sense the control plane says.
func (o *BrakeOrder) check() error {
	var errs []error
	belongs := func(name string, given, may bool) {
		if given && !may {
			errs = append(errs, fmt.Errorf("%s does not belong to what is ordered", name))
		}
	}
	belongs("share", o.Share != nil, o.Kind == fleet.BrakePin && !o.Lift)
	belongs("rps", o.Rps != nil, o.Kind == fleet.BrakeLimit && !o.Lift)
	belongs("seconds", o.Seconds != nil, !o.Lift)
	belongs("note", o.Note != "", !o.Lift)
	belongs("force", o.Force, o.Kind == fleet.BrakeDrain && !o.Lift)
	if !slices.Contains(fleet.BrakeKinds(), o.Kind) {
		errs = append(errs, fmt.Errorf("there is no brake %.100q: name one of drain, freeze, pin, limit as kind", o.Kind))
	}
	if !o.Lift && o.Kind == fleet.BrakePin && o.Share == nil {
		errs = append(errs, errors.New("a pin needs a share, 0 to 1"))
	}
	if !o.Lift && o.Kind == fleet.BrakeLimit && o.Rps == nil {
		errs = append(errs, errors.New("a limit needs rps"))
	}
	if s := o.Seconds; s != nil && !(*s > 0 && *s <= fleet.MaxBrakeTime.Seconds()) {
		errs = append(errs, fmt.Errorf("seconds: %v: want more than 0 and %v at most", *s, fleet.MaxBrakeTime.Seconds()))
	}
	return errors.Join(errs...)
}

// brake is what is ordered, and for how long.
func (o *BrakeOrder) brake() (fleet.Brake, time.Duration) {
	b := fleet.Brake{BrakeTarget: o.BrakeTarget, Owner: o.Owner, Note: o.Note}
	if o.Share != nil {
		b.Share = *o.Share + 0 // -0 is 0
	}
	if o.Rps != nil {
		b.Rps = *o.Rps + 0
	}
	hold := DefaultBrakeTime
	if o.Seconds != nil {
		hold = time.Duration(*o.Seconds * float64(time.Second))
	}
	return b, hold
}

func newBrakes(now time.Time, r fleet.Round, brakes []fleet.Brake) *Brakes {
	out := &Brakes{Brakes: []Brake{}}
	for i := range brakes {
		b := &brakes[i]
		out.Brakes = append(out.Brakes, Brake{*b, max(0, b.Until.Sub(now).Seconds()), effect(r, b)})
	}
	return out
}

// newBraking is what came of an order.
func newBraking(now time.Time, r fleet.Round, done fleet.Braking) *Brakes {
	out := newBrakes(now, r, done.Brakes)
	if done.Was != nil {
		out.Replaced = &Brake{*done.Was, max(0, done.Was.Until.Sub(now).Seconds()), ""}
	}
	return out
}

// brakesInForce tells of each brake: none must be forgotten.
func brakesInForce(brakes []Brake, a *list) {
	for i := range brakes {
		b := &brakes[i]
		text := b.Text()
		if b.Effect != "" {
			text += ": " + b.Effect
		}
		a.add("%s; `weir %s` ends it", text, undo(b.BrakeTarget))
	}
}

// Amount says how much of it a brake is.
func (b *Brake) Amount() string {
	switch b.Kind {
	case fleet.BrakePin:
		return fmt.Sprintf(", %.4g %%", 100*b.Share)
	case fleet.BrakeLimit:
		return fmt.Sprintf(", %.4g RPS", b.Rps)
	}
	return ""
}

// Text says on one line what it is, whose, for how long, and why.
func (b *Brake) Text() string {
	text := fmt.Sprintf("%s%s by %s, %s left", b.BrakeTarget, b.Amount(), b.Owner, seconds(b.SecondsLeft).Round(time.Second))
	if b.Note != "" {
		text += fmt.Sprintf(" (%s)", b.Note)
	}
	return text
}

// undo is the command that takes a brake off.
func undo(t fleet.BrakeTarget) string {
	switch t.Kind {
	case fleet.BrakeDrain:
		return "undrain " + strings.TrimSpace(string(t.Pool)+" "+string(t.Engine))
	case fleet.BrakePin:
		return fmt.Sprintf("unpin %s %s", t.Streams(), t.Pool)
	case fleet.BrakeLimit:
		return "unlimit " + string(t.Class)
	}
	return "unfreeze"
}

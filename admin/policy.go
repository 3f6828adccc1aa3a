package admin

import (
	"context"
	"errors"
	"fmt"

	"weir/fleet"
)

// PolicyOrder is which policies an operator wants; null: as it is.
type PolicyOrder struct {
	Policy *string `json:"policy,omitempty"`
	Shadow *string `json:"shadow,omitempty"` // "none": there is to be none
}

// FetchChoice asks the control plane which policies it works by.
func FetchChoice(ctx context.Context, address string) (*fleet.Choice, error) {
	c := &fleet.Choice{}
	return c, fetch(ctx, address, "/policy", c)
}

// Choose has it work by other ones, and returns which these will be.
func Choose(ctx context.Context, address string, o PolicyOrder) (*fleet.Choice, error) {
	c := &fleet.Choice{}
	return c, send(ctx, address, "/policy", o, c)
}

// chooser is the action that takes a PolicyOrder.
func chooser(choose func(policy, shadow *string) (fleet.Choice, error)) Action {
	return func(body []byte) (any, error) {
		o, err := readOrder(body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrQuery, err)
		}
		return choose(o.Policy, o.Shadow)
	}
}

// readOrder reads an order whose names are known ones; an empty shadow is none.
func readOrder(body []byte) (o PolicyOrder, err error) {
	if err := decode(body, &o); err != nil {
		return o, fmt.Errorf(`send {"policy": NAME, "shadow": NAME or %q} or one of the two: %w`, fleet.NoPolicy, err)
	}
	if o.Policy == nil && o.Shadow == nil {
		return o, errors.New("name a policy, a shadow or both")
	}
	if o.Policy != nil {
		err = fleet.CheckPolicy(*o.Policy)
	}
	if err == nil && o.Shadow != nil {
		if *o.Shadow == fleet.NoPolicy {
			none := ""
			o.Shadow = &none
			return o, nil
		}
		if err = fleet.CheckPolicy(*o.Shadow); err != nil {
			err = fmt.Errorf("shadow: %w, or %s", err, fleet.NoPolicy)
		}
	}
	return o, err
}

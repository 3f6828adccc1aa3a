package main

import (
	"strings"
	"testing"
	"text/tabwriter"

	"weir/admin"
	"weir/fleet"
)

// An operator who orders a brake is shown whose it was before.
func TestOrderedTable(t *testing.T) {
	freeze := fleet.Brake{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeFreeze}, Owner: "ann@ops", Note: "the final"}
	was := &admin.Brake{Brake: freeze, SecondsLeft: 3600}
	for _, c := range []struct {
		lifted   bool
		replaced *admin.Brake
		want     string
	}{
		{false, nil, "no brakes are in force\n"},
		{false, was, "replaced: freeze by ann@ops, 1h0m0s left (the final)\n\nno brakes are in force\n"},
		{true, was, "ended: freeze by ann@ops, 1h0m0s left (the final)\n\nno brakes are in force\n"},
	} {
		var out strings.Builder
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		orderedTable(w, c.lifted, &admin.Brakes{Replaced: c.replaced})
		if err := w.Flush(); err != nil || out.String() != c.want {
			t.Errorf("lifted %v: %q (%v), want %q", c.lifted, out.String(), err, c.want)
		}
	}
}

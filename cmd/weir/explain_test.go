package main

import (
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/solver"
)

func TestTurnTable(t *testing.T) {
	turn := func(causes ...solver.Cause) *turnExplained {
		return &turnExplained{At: time.Now().Add(-3 * time.Second), From: "Optimal", To: "Shedding", MovedShare: 0.25, Causes: causes}
	}
	for name, c := range map[string]struct {
		turn *turnExplained
		want string
	}{
		"none": {nil, "\nNo traffic has moved since the control plane started.\n"},
		"no cause": {turn(), "\nLast change, 3s ago: 25.0% of the traffic moved, Optimal → Shedding\n" +
			"What changed it cannot be told: the state before cannot be planned again.\n"},
		"causes": {
			turn(solver.Cause{Input: solver.InputDemand, Moved: 0.2, Shed: 5}, solver.Cause{Input: solver.InputFleet, Error: "no luck"}),
			"\nLast change, 3s ago: 25.0% of the traffic moved, Optimal → Shedding\n" +
				"BY ITSELF THE CHANGE OF  MOVES    REFUSES\n" +
				"demand                   20.0%    +5.00 RPS\n" +
				"fleet file               no luck  \n",
		},
	} {
		var out strings.Builder
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		turnTable(w, c.turn)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

package main

import (
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"

	"weir/admin"
	"weir/fleet"
)

func TestShadowLine(t *testing.T) {
	for name, c := range map[string]struct {
		shadow string
		made   *admin.Shadow
		want   string
	}{
		"none":            {"", nil, ""},
		"nothing yet":     {"even", nil, "shadow even: nothing yet"},
		"another one yet": {"even", &admin.Shadow{Policy: "local"}, "shadow even: nothing yet"},
		"failed": {
			"even", &admin.Shadow{Policy: "even", AgeSeconds: 2, Why: "planning failed:\nno luck"},
			"shadow even: no plan, 2.0s ago: planning failed: no luck",
		},
		"faster": {
			"nearest", &admin.Shadow{Policy: "nearest", AgeSeconds: 1.2, Difference: &fleet.Difference{
				MeanSeconds: -0.00084, MovedShare: 0.08, ShedRps: -2.5, MaxUtilisation: 1.2,
			}},
			"shadow nearest: mean latency -840µs, fullest pool 120.0%, 8.0% of the traffic elsewhere, refused -2.50 RPS, 1.2s ago",
		},
		"the same": {
			"waterfall", &admin.Shadow{Policy: "waterfall", Difference: &fleet.Difference{MaxUtilisation: 0.9}},
			"shadow waterfall: mean latency +0s, fullest pool 90.0%, 0.0% of the traffic elsewhere, refused +0.00 RPS, 0.0s ago",
		},
	} {
		s := &admin.Status{Shadow: c.made, Policies: fleet.Choice{Shadow: fleet.Chosen{Name: c.shadow}}}
		if got := shadowLine(s); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestChoiceTable(t *testing.T) {
	nearest := "nearest"
	for name, c := range map[string]struct {
		choice fleet.Choice
		order  admin.PolicyOrder
		want   string
	}{
		"asked": {
			fleet.Choice{Policy: fleet.Chosen{Name: "optimal", File: "optimal"}},
			admin.PolicyOrder{},
			"        IN FORCE  FLEET FILE  BY\n" +
				"policy  optimal   optimal     fleet file\n" +
				"shadow  none      none        fleet file\n",
		},
		"chosen": {
			fleet.Choice{Policy: fleet.Chosen{Name: "nearest", File: "optimal"}, Shadow: fleet.Chosen{Name: "", File: "even"}},
			admin.PolicyOrder{Policy: &nearest},
			"        FROM THE NEXT ROUND ON  FLEET FILE  BY\n" +
				"policy  nearest                 optimal     command, until the file says something else\n" +
				"shadow  none                    even        command, until the file says something else\n",
		},
	} {
		var out strings.Builder
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		choiceTable(w, &c.choice, c.order)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A plan by another policy than the default says so in the first line of the status.
func TestStatusNamesThePolicy(t *testing.T) {
	s := aStatus()
	s.Plan.Status, s.Plan.Policy, s.Plan.Why = fleet.Routed, fleet.PolicyEven, ""
	s.Policies.Shadow.Name = fleet.PolicyOptimal
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	statusTable(w, s)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "Routed, policy even: mean latency 200ms, made 1.2s ago\nshadow optimal: nothing yet\n\nFRONT-END"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("status:\n%s\nwant it to begin with:\n%s", out.String(), want)
	}
}

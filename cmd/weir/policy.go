package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/admin"
	"weir/fleet"
)

func newPolicy() *cobra.Command {
	var address, shadow string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "policy [NAME]",
		Short: "Show by which policy the control plane plans, or have it plan by another one",
		Long: `Show by which policy the control plane plans, or have it plan by another one.

Policies: ` + strings.Join(fleet.Policies(), ", ") + `.
What is chosen here stands in for what the fleet file says, until that is changed;
weir status reminds of it. The shadow plans beside the
policy in force and is only compared. Ask on the control plane's own machine.`,
		Example: `  weir policy
  weir policy nearest
  weir policy --shadow waterfall
  weir policy --shadow none`,
		Args: func(c *cobra.Command, a []string) error {
			if len(a) > 1 {
				return usage("weir policy takes one NAME at most, not %q", a)
			}
			return nil
		},
	}
	format := outputFlag(c)
	c.Flags().StringVar(&address, "admin", adminAddress, "`host:port` of the control plane's admin API")
	c.Flags().StringVar(&shadow, "shadow", "", "have `NAME` plan in the shadow; none: no policy")
	timeoutFlag(c, &timeout, 15*time.Second, "the control plane")
	c.RunE = func(c *cobra.Command, a []string) error {
		var order admin.PolicyOrder
		if len(a) > 0 {
			order.Policy = &a[0]
		}
		if c.Flags().Changed("shadow") {
			order.Shadow = &shadow
		}
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		choice, err := chooseOrAsk(ctx, address, order)
		if err != nil {
			return err
		}
		return show(c.OutOrStdout(), *format, choice, func(w *tabwriter.Writer) { choiceTable(w, choice, order) })
	}
	return c
}

func chooseOrAsk(ctx context.Context, address string, o admin.PolicyOrder) (*fleet.Choice, error) {
	if o == (admin.PolicyOrder{}) {
		return admin.FetchChoice(ctx, address)
	}
	return admin.Choose(ctx, address, o)
}

func choiceTable(w *tabwriter.Writer, c *fleet.Choice, o admin.PolicyOrder) {
	head := "IN FORCE"
	if o != (admin.PolicyOrder{}) {
		head = "FROM THE NEXT ROUND ON"
	}
	row(w, "\t%s\tFLEET FILE\tBY", head)
	row(w, "policy\t%s\t%s\t%s", c.Policy.Name, c.Policy.File, by(c.Policy))
	row(w, "shadow\t%s\t%s\t%s", cmp.Or(c.Shadow.Name, fleet.NoPolicy), cmp.Or(c.Shadow.File, fleet.NoPolicy), by(c.Shadow))
}

func by(c fleet.Chosen) string {
	if c.ByCommand() {
		return "command, until the file says something else"
	}
	return "fleet file"
}

// shadowLine says in one line what the shadow would change.
func shadowLine(s *admin.Status) string {
	name := s.Policies.Shadow.Name
	sh := s.Shadow
	switch {
	case name == "":
		return ""
	case sh == nil || sh.Policy != name:
		return fmt.Sprintf("shadow %s: nothing yet", name)
	case sh.Difference == nil:
		return fmt.Sprintf("shadow %s: no plan, %s ago: %s", name, seconds(sh.AgeSeconds), plain(sh.Why))
	}
	d := sh.Difference
	return fmt.Sprintf("shadow %s: mean latency %s, fullest pool %.1f%%, %.1f%% of the traffic elsewhere, refused %+.2f RPS, %s ago",
		name, signed(d.MeanSeconds), 100*d.MaxUtilisation, 100*d.MovedShare, d.ShedRps, seconds(sh.AgeSeconds))
}

// signed prints a difference of latencies.
func signed(s float64) string {
	if s < 0 {
		return ms(s)
	}
	return "+" + ms(s)
}

package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/fleet"
	"weir/solver"
	"weir/solver/clp"
	"weir/solver/lp"
)

const (
	// solveLimit bounds all that is solved for one plan; one that takes longer is worth
	// less than the last one.
	solveLimit = 5 * time.Second
	// queryLimit bounds all that is solved for one question, so that its answer can
	// still be written.
	queryLimit = 20 * time.Second
)

// makePlan plans a state by the policy that stands in its options.
func makePlan(s *fleet.State) (*fleet.Plan, error) { return planBy(time.Now().Add(solveLimit))(s) }

// planBy makes plans as makePlan does, all of them until a deadline.
func planBy(deadline time.Time) solver.Policy {
	policies := solver.Policies(solveBy(deadline))
	return func(s *fleet.State) (*fleet.Plan, error) {
		name := cmp.Or(s.Fleet.Options.Policy, fleet.PolicyOptimal)
		if policies[name] == nil {
			return nil, fleet.CheckPolicy(name)
		}
		return policies[name](s)
	}
}

func solveBy(deadline time.Time) solver.Solve {
	return func(p *lp.Program) (*lp.Solution, error) { return clp.Solve(p, time.Until(deadline)) }
}

func newPlan() *cobra.Command {
	var policy string
	var compare bool
	c := &cobra.Command{
		Use:   "plan FILE|-",
		Short: "Plan a fleet offline, from its declared demand",
		Args:  args("FILE"),
	}
	format := outputFlag(c)
	c.Flags().StringVar(&policy, "policy", "", "plan by `NAME` and not as the file says: "+strings.Join(fleet.Policies(), ", "))
	c.Flags().BoolVar(&compare, "compare", false, "show what all policies make of it, side by side")
	c.RunE = func(c *cobra.Command, a []string) error {
		if compare && c.Flags().Changed("policy") {
			return usage("--compare shows every policy: say either --policy or --compare")
		}
		if policy != "" && fleet.CheckPolicy(policy) != nil {
			return usage("--policy: %w", fleet.CheckPolicy(policy))
		}
		f, _, err := loadFleet(c, a[0])
		if err != nil {
			return err
		}
		if compare {
			rows := comparePolicies(f)
			return show(c.OutOrStdout(), *format, rows, func(w *tabwriter.Writer) { compareTable(w, rows) })
		}
		_, plan, err := planOffline(f, cmp.Or(policy, f.Options.Policy))
		if err != nil {
			return err
		}
		return show(c.OutOrStdout(), *format, plan, func(w *tabwriter.Writer) { planTable(w, plan) })
	}
	return c
}

func planTable(w *tabwriter.Writer, p *fleet.Plan) {
	row(w, "%s: mean latency %s%s", decided(p.Status, p.Policy), ms(p.MeanSeconds), because(p.Why))
	row(w, "\nFRONT-END\tCLASS\tDEMAND\tSHED\tPOOL\tSHARE\tRPS\tNETWORK\tENGINE")
	for _, r := range p.Routes {
		head := fmt.Sprintf("%s\t%s\t%.2f\t%.2f", r.FrontEnd, r.Class, r.DemandRps, r.ShedRps)
		for _, s := range r.Shares {
			row(w, "%s\t%s\t%.2f%%\t%.2f\t%s\t%s", head, s.Pool, 100*s.Share, s.Rps, ms(s.NetworkSeconds), ms(s.EngineSeconds))
			head = "\t\t\t"
		}
		if len(r.Shares) == 0 {
			row(w, "%s\t-\t\t\t\t", head)
		}
	}
	row(w, "\nPOOL\tCAPACITY\tRPS\tUTILISATION\tPRICE")
	for _, q := range p.Pools {
		row(w, "%s\t%.2f\t%.2f\t%.1f%%\t%s", q.Pool, q.CapacityRps, q.Rps, 100*q.Utilisation, priceOf(p, &q))
	}
	row(w, "\n%s", legend)
}

func priceOf(p *fleet.Plan, q *fleet.PoolPlan) string {
	if p.Policy != fleet.PolicyOptimal {
		return "-"
	}
	return fmt.Sprintf("%.4f s", q.PriceSeconds)
}

// legend explains the columns that do not speak for themselves.
const legend = `NETWORK      round trip
ENGINE       TTFT of an idle engine and queueing; of decoding only what a faster pool would save
CAPACITY     RPS that may be planned for, of this mix of requests, with the headroom taken off
UTILISATION  of that capacity
PRICE        what one more RPS of capacity would save, in request-seconds a second; while requests are shed, it says only where capacity is short; -: of policy optimal alone it is known`

// decided says how a plan came about; the default policy goes without saying.
func decided(status fleet.Status, policy string) string {
	if policy == "" || policy == fleet.PolicyOptimal {
		return string(status)
	}
	return fmt.Sprintf("%s, policy %s", status, policy)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// ms prints seconds in the unit in which people think of latency.
func ms(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(10 * time.Microsecond).String()
}

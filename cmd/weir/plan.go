package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/fleet"
	"weir/solver"
	"weir/solver/clp"
	"weir/solver/lp"
)

// solveLimit bounds one solve; a plan that takes longer is worth less than the
// last one.
const solveLimit = 5 * time.Second

func solve(p *lp.Program) (*lp.Solution, error) { return clp.Solve(p, solveLimit) }

func makePlan(s *fleet.State) (*fleet.Plan, error) { return solver.Plan(s, solve) }

func newPlan() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan FILE|-",
		Short: "Plan a fleet offline, from its declared demand",
		Args:  args("FILE"),
	}
	format := outputFlag(c)
	c.RunE = func(c *cobra.Command, a []string) error {
		f, _, err := loadFleet(c, a[0])
		if err != nil {
			return err
		}
		plan, err := makePlan(fleet.Declared(f))
		if err != nil {
			return err
		}
		return show(c.OutOrStdout(), *format, plan, func(w *tabwriter.Writer) { planTable(w, plan) })
	}
	return c
}

func planTable(w *tabwriter.Writer, p *fleet.Plan) {
	row(w, "%s: mean latency %s%s", p.Status, ms(p.MeanSeconds), because(p.Why))
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
		row(w, "%s\t%.2f\t%.2f\t%.1f%%\t%.4f s", q.Pool, q.CapacityRps, q.Rps, 100*q.Utilisation, q.PriceSeconds)
	}
	row(w, "\n%s", legend)
}

// legend explains the columns that do not speak for themselves.
const legend = `NETWORK      round trip
ENGINE       TTFT of an idle engine and queueing; of decoding only what a faster pool would save
CAPACITY     RPS that may be planned for, of this mix of requests, with the headroom taken off
UTILISATION  of that capacity
PRICE        what one more RPS of capacity would save, in request-seconds a second; while requests are shed, it says only where capacity is short`

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

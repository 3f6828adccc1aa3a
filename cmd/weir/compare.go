package main

import (
	"text/tabwriter"

	"weir/fleet"
	"weir/solver"
)

// settlingRounds is how often a policy that feeds back on its own plans is asked: two
// minutes of the default tick.
const settlingRounds = 60

// planOffline plans a fleet's declared demand by a policy. What the feedback loop makes
// of it is where that is after some rounds, from even shares.
func planOffline(f *fleet.Fleet, policy string) (*fleet.State, *fleet.Plan, error) {
	named := *f
	named.Options.Policy = policy
	s := fleet.Declared(&named)
	plan, err := makePlan(s)
	for range settlingRounds {
		if err != nil || policy != fleet.PolicyProportional {
			break
		}
		s.Previous = plan
		plan, err = makePlan(s)
	}
	return s, plan, err
}

// comparePolicies sums up what each policy makes of a fleet's declared demand, in the
// order of their names. One that fails says why, and has no figures.
func comparePolicies(f *fleet.Fleet) []solver.Summary {
	var rows []solver.Summary
	for _, policy := range fleet.Policies() {
		s, plan, err := planOffline(f, policy)
		if err != nil {
			rows = append(rows, solver.Summary{Policy: policy, Error: err.Error()})
			continue
		}
		rows = append(rows, solver.Summarise(s, plan))
	}
	return rows
}

func compareTable(w *tabwriter.Writer, rows []solver.Summary) {
	row(w, "POLICY\tMEAN LATENCY\tFULLEST POOL\tSHED\tNOT NEAREST\tBECAUSE")
	for _, r := range rows {
		if r.Error != "" {
			row(w, "%s\t-\t-\t-\t-\t%s", r.Policy, plain(r.Error))
			continue
		}
		mean := ms(r.MeanSeconds)
		if r.MaxUtilisation > 1+1e-6 {
			mean = "> " + mean
		}
		row(w, "%s\t%s\t%.1f%%\t%.2f\t%.1f%%\t%s", r.Policy, mean, 100*r.MaxUtilisation, r.ShedRps, 100*r.AwayShare, dash(plain(r.Why)))
	}
	row(w, "\n%s", compareLegend)
}

// compareLegend explains the columns that do not speak for themselves.
const compareLegend = `>             at least: at a pool above 100 % requests wait ever longer, which no profile says
FULLEST POOL  its utilisation
SHED          RPS refused
NOT NEAREST   part of the admitted traffic that goes to another pool than the nearest`

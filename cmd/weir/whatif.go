package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/admin"
	"weir/fleet"
	"weir/solver"
)

// imagined is a plan beside the one that something imagined would lead to.
type imagined struct {
	Before     *fleet.Plan `json:"before"`
	After      *fleet.Plan `json:"after"`
	MovedShare float64     `json:"movedShare"` // of the traffic that is admitted then
	Note       string      `json:"note"`       // what else lies between the two; empty: nothing
}

// whatIfOf reads what is imagined from a query; queryOf writes it.
func whatIfOf(q url.Values) solver.WhatIf {
	return solver.WhatIf{
		Drain: q["drain"], Lose: q["lose"], Demand: q["demand"], Replicas: q["replicas"], Policy: q.Get("policy"),
	}
}

func queryOf(w *solver.WhatIf) url.Values {
	q := url.Values{"drain": w.Drain, "lose": w.Lose, "demand": w.Demand, "replicas": w.Replicas}
	if w.Policy != "" {
		q.Set("policy", w.Policy)
	}
	return q
}

// imagineRound plans from the plan in force, with and without what is imagined. A held
// plan stays as it is without.
func imagineRound(r fleet.Round, w solver.WhatIf) (*imagined, error) {
	if r.State == nil {
		return nil, errNoRound
	}
	if w.Empty() {
		return nil, fmt.Errorf("%w: say what if: drain, lose, demand, replicas or policy", admin.ErrQuery)
	}
	now := *r.State
	if r.Plan != nil {
		now.Previous = r.Plan
	}
	then, err := w.Apply(&now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", admin.ErrQuery, err)
	}
	plan := planBy(time.Now().Add(queryLimit))
	before, note, errBefore := withoutChange(r, &now, plan)
	after, errAfter := plan(then)
	if err := errors.Join(errBefore, errAfter); err != nil {
		return nil, err
	}
	return &imagined{before, after, fleet.Moved(before, after), note}, nil
}

// withoutChange is the plan that is in force, or that one made of the state now would be.
func withoutChange(r fleet.Round, now *fleet.State, plan func(*fleet.State) (*fleet.Plan, error)) (before *fleet.Plan, note string, err error) {
	if r.Plan != nil && r.Plan.Status == fleet.Held {
		return r.Plan, "NOW is the plan that is held, THEN one that would be made if plans were made again", nil
	}
	before, err = plan(now)
	return before, "", err
}

func newWhatIf() *cobra.Command {
	var from string
	var timeout time.Duration
	var w solver.WhatIf
	c := &cobra.Command{
		Use:   "whatif [FILE|-]",
		Short: "Plan what is not so: of the running control plane, or of a file's declared demand; nothing is changed",
		Example: `  weir whatif --drain eu-h100
  weir whatif fleet.yaml --lose eu-west --demand paris=+30%
  weir whatif --replicas us-a100=+2 --policy waterfall`,
		Args: cobra.MaximumNArgs(1),
	}
	c.Flags().StringVar(&from, "admin", adminAddress, "`host:port` of the control plane's admin API")
	timeoutFlag(c, &timeout, queryTimeout, "the control plane")
	c.Flags().StringArrayVar(&w.Drain, "drain", nil, "`POOL` serves nobody")
	c.Flags().StringArrayVar(&w.Lose, "lose", nil, "`REGION` is lost with all its pools")
	c.Flags().StringArrayVar(&w.Demand, "demand", nil, "`FRONTEND=+30%`, or FRONTEND/CLASS=120rps")
	c.Flags().StringArrayVar(&w.Replicas, "replicas", nil, "`POOL=+2`, POOL=-1 or POOL=8")
	c.Flags().StringVar(&w.Policy, "policy", "", "plan by `NAME`")
	format := outputFlag(c)
	c.RunE = func(c *cobra.Command, a []string) error {
		i, err := imagineFrom(c, a, from, timeout, w)
		if err != nil {
			return err
		}
		return show(c.OutOrStdout(), *format, i, func(t *tabwriter.Writer) { imaginedTable(t, i) })
	}
	return c
}

func imagineFrom(c *cobra.Command, files []string, address string, timeout time.Duration, w solver.WhatIf) (*imagined, error) {
	if len(files) == 0 {
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		i := &imagined{}
		return i, admin.Fetch(ctx, address, "/whatif", queryOf(&w), i)
	}
	f, _, err := loadFleet(c, files[0])
	if err != nil {
		return nil, err
	}
	s := fleet.Declared(f)
	plan, err := makePlan(s)
	if err != nil {
		return nil, err
	}
	return imagineRound(fleet.Round{State: s, Plan: plan}, w)
}

func imaginedTable(w *tabwriter.Writer, i *imagined) {
	b, a := i.Before, i.After
	if i.Note != "" {
		row(w, "%s\n", i.Note)
	}
	row(w, "\tNOW\tTHEN")
	row(w, "status\t%s\t%s", b.Status, a.Status)
	row(w, "mean latency\t%s\t%s", ms(b.MeanSeconds), ms(a.MeanSeconds))
	row(w, "refused\t%.2f RPS\t%.2f RPS", b.ShedRps(), a.ShedRps())
	row(w, "fullest pool\t%s\t%s", fullest(b), fullest(a))
	row(w, "traffic moved\t\t%.1f%%", 100*i.MovedShare)
	if a.Why != "" {
		row(w, "because\t\t%s", a.Why)
	}
	row(w, "\nPOOL\tRPS NOW\tTHEN\tUTILISATION NOW\tTHEN")
	for _, q := range a.Pools {
		was := b.Pool(q.Pool)
		if was == nil {
			was = &fleet.PoolPlan{}
		}
		row(w, "%s\t%.2f\t%.2f\t%.1f%%\t%.1f%%", q.Pool, was.Rps, q.Rps, 100*was.Utilisation, 100*q.Utilisation)
	}
	row(w, "\nFRONT-END\tCLASS\tSHARES NOW\tTHEN")
	for k := range a.Routes {
		r := &a.Routes[k]
		row(w, "%s\t%s\t%s\t%s", r.FrontEnd, r.Class, shares(b.Route(fleet.Stream{FrontEnd: r.FrontEnd, Class: r.Class})), shares(r))
	}
}

func fullest(p *fleet.Plan) string {
	most := p.Fullest()
	if most.Pool == "" {
		return "none is used"
	}
	return fmt.Sprintf("%s %.1f%%", most.Pool, 100*most.Utilisation)
}

// shares writes those of a route on a line.
func shares(r *fleet.Route) string {
	if r == nil {
		return "-"
	}
	var parts []string
	for _, s := range r.Shares {
		parts = append(parts, fmt.Sprintf("%s %.1f%%", s.Pool, 100*s.Share))
	}
	text := strings.Join(parts, ", ")
	if admitted := r.Admitted(); admitted < 1 {
		text += fmt.Sprintf(" of the %.1f%% admitted", 100*admitted)
	}
	return text
}

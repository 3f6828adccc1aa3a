package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/admin"
)

// errAttention marks a status that somebody should look at.
var errAttention = errors.New("attention")

func newStatus() *cobra.Command {
	var address string
	var timeout time.Duration
	var signals, ready bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show whether all is well, and what is not",
		Long: `Show whether all is well, and what is not.

Exit codes: 0 all is well, 3 something needs attention, 1 the control plane does
not answer.`,
		Args: args(),
	}
	format := outputFlag(c)
	c.Flags().StringVar(&address, "admin", adminAddress, "`host:port` of the control plane's admin API")
	timeoutFlag(c, &timeout, 5*time.Second, "the control plane")
	c.Flags().BoolVar(&signals, "signals", false, "show what is believed of engines, demand and network: by what error, how old and from where")
	c.Flags().BoolVar(&ready, "ready", false, "show nothing: exit code 0 if a plan is published, else 1; for health checks")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		if ready {
			return admin.AskReady(ctx, address)
		}
		if signals {
			b, err := admin.FetchBeliefs(ctx, address)
			if err != nil {
				return err
			}
			return show(c.OutOrStdout(), *format, b, func(w *tabwriter.Writer) { beliefsTable(w, b) })
		}
		s, err := admin.FetchStatus(ctx, address)
		if err != nil {
			return err
		}
		err = show(c.OutOrStdout(), *format, s, func(w *tabwriter.Writer) { statusTable(w, s) })
		if err == nil && len(s.Attention) > 0 {
			return silent{errAttention}
		}
		return err
	}
	return c
}

func statusTable(w *tabwriter.Writer, s *admin.Status) {
	planLine(w, &s.Plan)
	if len(s.Brakes) > 0 {
		row(w, "\nBRAKES IN FORCE: %d", len(s.Brakes))
		brakesTable(w, s.Brakes)
		row(w, "")
	}
	if line := shadowLine(s); line != "" {
		row(w, "%s", line)
	}
	row(w, "\nFRONT-END\tENVOYS\tEXT_PROCS\tIN SYNC\tLAG\tNACKS\tCLASS\tDEMAND\tSOURCE\tSHED\tRETRIES\tFOR")
	for i := range s.FrontEnds {
		frontEndRows(w, &s.FrontEnds[i])
	}
	row(w, "\nPOOL\tREADY\tCAPACITY\tRPS\tUTILISATION")
	for i := range s.Pools {
		poolRow(w, &s.Pools[i])
	}
	sourceRows(w, s.Pools)
	profileRows(w, s.Profiles)
	if len(s.Penalties) > 0 {
		row(w, "\nPENALISED\tPOOL\tGETS\tFOR\tSINCE\tBY\tCLEARS")
		for i := range s.Penalties {
			penaltyRow(w, &s.Penalties[i])
		}
	}
	if len(s.UnknownFrontEnds) > 0 {
		row(w, "\nUNKNOWN FRONT-END\tCLIENTS")
		for _, u := range s.UnknownFrontEnds {
			row(w, "%s\t%d", plain(string(u.FrontEnd)), u.Clients)
		}
	}
	if len(s.Attention) == 0 {
		row(w, "\nall is well")
		return
	}
	row(w, "\nneeds attention:")
	for _, a := range s.Attention {
		row(w, "- %s", plain(a))
	}
}

func planLine(w *tabwriter.Writer, p *admin.PlanStatus) {
	if p.Status == "" {
		row(w, "%s", plain(p.Why))
		return
	}
	age := "made by an earlier process"
	if p.AgeSeconds != nil {
		age = "made " + seconds(*p.AgeSeconds) + " ago"
	}
	row(w, "%s: mean latency %s, %s%s", decided(p.Status, p.Policy), ms(*p.MeanSeconds), age, plain(because(p.Why)))
}

func frontEndRows(w *tabwriter.Writer, f *admin.FrontEnd) {
	clients := f.Envoys + f.ExtProcs
	head := fmt.Sprintf("%s\t%d\t%d\t%d/%d\t%s\t%d", f.FrontEnd, f.Envoys, f.ExtProcs, clients-f.Behind, clients, seconds(f.LagSeconds), len(f.Nacks))
	for _, st := range f.Streams {
		row(w, "%s\t%s\t%.2f\t%s\t%.2f\t%.3g%%, %d\t%s", head, st.Class, st.DemandRps, st.Source, st.ShedRps, st.Retries.Percent, st.Retries.Floor, plain(st.Retries.Why))
		head = strings.Repeat("\t", strings.Count(head, "\t"))
	}
}

func poolRow(w *tabwriter.Writer, p *admin.Pool) {
	ready := fmt.Sprintf("%d/%d", p.Ready, p.Engines)
	if p.Draining > 0 {
		ready += fmt.Sprintf(", %d draining", p.Draining)
	}
	if p.Plan == nil {
		row(w, "%s\t%s\t-\t-\t-", p.Pool, ready)
		return
	}
	row(w, "%s\t%s\t%.2f\t%.2f\t%.1f%%", p.Pool, ready, p.Plan.CapacityRps, p.Plan.Rps, 100*p.Plan.Utilisation)
}

// sourceRows shows where the engines come from that do not stand in the fleet file.
func sourceRows(w *tabwriter.Writer, pools []admin.Pool) {
	head := "\nENGINES OF\tFROM\tFOUND\tLEAVING\tREFUSED\tHEARD\tPROBLEM"
	for i := range pools {
		p := &pools[i]
		if p.Source == nil {
			continue
		}
		if head != "" {
			row(w, "%s", head)
			head = ""
		}
		heard, problem := "never", "-"
		if p.Source.HeardSeconds != nil {
			heard = seconds(*p.Source.HeardSeconds) + " ago"
		}
		if p.Source.Problem != "" {
			problem = plain(p.Source.Problem)
		}
		row(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s", p.Pool, plain(p.Source.From), p.Source.Found, p.Source.Leaving, p.Source.Refused, heard, problem)
	}
}

// profileRows shows profiles that are not true any more, and those for which one that
// was fitted to traffic stands in.
func profileRows(w *tabwriter.Writer, all []admin.Profile) {
	all = slices.DeleteFunc(slices.Clone(all), func(p admin.Profile) bool { return len(p.Words) == 0 && !p.Adopted }) // why they cannot be judged is for those who ask
	if len(all) == 0 {
		return
	}
	row(w, "\nPROFILE OF\tCAPACITY\tIN THE FILE\tBY TRAFFIC\tIN FULL BY")
	var notes []string
	for i := range all {
		p := &all[i]
		traffic := "-"
		if f := p.Fitted; f != nil {
			traffic = fmt.Sprintf("%.4g rps (%.4g to %.4g)", f.CapacityRps, f.LowRps, f.HighRps)
		}
		row(w, "%s\t%.4g rps\t%.4g rps\t%s\t%s", p.Pool, p.CapacityRps, p.FileRps, traffic, p.Command)
		notes = append(notes, profileNotes(p)...)
	}
	for _, n := range notes {
		row(w, "- %s", plain(n))
	}
}

// profileNotes says in words what is to be known of a profile.
func profileNotes(p *admin.Profile) (notes []string) {
	add := func(text string) { notes = append(notes, fmt.Sprintf("%s: %s", p.Pool, text)) }
	for _, words := range p.Words {
		add(words)
	}
	if p.Unfitted != "" {
		add("not fitted: " + p.Unfitted)
	}
	if p.Adopted {
		add("a profile that was fitted to traffic is in use, as the fleet file allows")
	}
	if p.Adopting != "" {
		add("no further step: " + p.Adopting)
	}
	return notes
}

func penaltyRow(w *tabwriter.Writer, p *admin.Penalty) {
	row(w, "%s\t%s\t%.0f%%\t%s\t%s\t%d\tby good answers, else in %s", p.Engine, p.Pool, 100*p.Penalty, p.For, seconds(p.AgeSeconds), p.By, seconds(p.ClearsSeconds))
}

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', 1, 64) + "s" }

// plain replaces what could confuse a terminal: some of it was written by clients.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

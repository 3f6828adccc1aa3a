package main

import (
	"cmp"
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

// explained is the answer to why a plan is as it is.
type explained struct {
	*fleet.Explanation
	Note string         `json:"note"` // what this does not explain; empty: nothing
	Turn *turnExplained `json:"turn"` // the last change of plan; null: none since the start
}

type turnExplained struct {
	At         time.Time      `json:"at"`
	From       string         `json:"from"` // statuses
	To         string         `json:"to"`
	MovedShare float64        `json:"movedShare"` // of the admitted traffic
	Causes     []solver.Cause `json:"causes"`     // what each input's change does alone
}

// queryTimeout is how long the command line waits for an answer that must be reckoned.
const queryTimeout = queryLimit + 10*time.Second

// queries are what the control plane reckons when it is asked.
func (p *plane) queries() map[string]admin.Query {
	return map[string]admin.Query{
		"/explain": func(q url.Values) (any, error) {
			if err := admin.CheckKeys(q.Encode()); err != nil {
				return nil, err
			}
			return explainRound(p.loop.Latest())
		},
		"/whatif": func(q url.Values) (any, error) {
			if err := admin.CheckKeys(q.Encode(), "drain", "lose", "demand", "replicas", "policy"); err != nil {
				return nil, err
			}
			return imagineRound(p.loop.Latest(), whatIfOf(q))
		},
	}
}

var errNoRound = errors.New("nothing is planned yet: ask again in some seconds")

func explainRound(r fleet.Round) (*explained, error) {
	if r.State == nil {
		return nil, errNoRound
	}
	deadline := time.Now().Add(queryLimit)
	e, err := solver.Explain(r.State, solveBy(deadline))
	if err != nil {
		return nil, err
	}
	out := &explained{Explanation: e, Note: notOptimal(r.State)}
	if t := r.Turn; t != nil {
		out.Turn = &turnExplained{
			At: t.At, From: string(t.From.Status), To: string(t.To.Status),
			MovedShare: fleet.Moved(t.From, t.To), Causes: solver.Causes(t.Before, t.After, planBy(deadline)),
		}
	}
	return out, nil
}

// notOptimal says what an explanation is of where another policy makes the plans; empty:
// none does.
func notOptimal(s *fleet.State) string {
	policy := cmp.Or(s.Fleet.Options.Policy, fleet.PolicyOptimal)
	if policy == fleet.PolicyOptimal {
		return ""
	}
	return fmt.Sprintf("policy %s makes the plans: this says what optimal would do, and why", policy)
}

func newExplain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain",
		Short: "Say why a plan is as it is",
		Args: func(c *cobra.Command, a []string) error {
			if len(a) > 0 {
				return usage("there is no %q to explain: run 'weir explain plan'", a[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newExplainPlan())
	return c
}

func newExplainPlan() *cobra.Command {
	var from, frontEnd, class string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "plan [FILE|-]",
		Short: "Why each pool has its share, what binds, and what changed: of the running control plane, or of a file's declared demand",
		Args:  cobra.MaximumNArgs(1),
	}
	c.Flags().StringVar(&from, "admin", adminAddress, "`host:port` of the control plane's admin API")
	timeoutFlag(c, &timeout, queryTimeout, "the control plane")
	c.Flags().StringVar(&frontEnd, "front-end", "", "only of this front-end")
	c.Flags().StringVar(&class, "class", "", "only of this class")
	format := outputFlag(c)
	c.RunE = func(c *cobra.Command, a []string) error {
		e, err := explainFrom(c, a, from, timeout)
		if err != nil {
			return err
		}
		if err := e.narrow(frontEnd, class); err != nil {
			return err
		}
		return show(c.OutOrStdout(), *format, e, func(w *tabwriter.Writer) {
			explainTable(w, e)
			if len(a) == 0 {
				turnTable(w, e.Turn)
			}
			row(w, "\n%s", explainLegend)
		})
	}
	return c
}

// explainFrom asks the control plane, or explains a file.
func explainFrom(c *cobra.Command, files []string, address string, timeout time.Duration) (*explained, error) {
	if len(files) == 0 {
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		e := &explained{}
		return e, admin.Fetch(ctx, address, "/explain", nil, e)
	}
	f, _, err := loadFleet(c, files[0])
	if err != nil {
		return nil, err
	}
	return explainRound(fleet.Round{State: fleet.Declared(f)})
}

// narrow leaves the streams of one front-end or class.
func (e *explained) narrow(frontEnd, class string) error {
	streams := []fleet.StreamWhy{}
	for _, s := range e.Streams {
		if (frontEnd == "" || string(s.FrontEnd) == frontEnd) && (class == "" || string(s.Class) == class) {
			streams = append(streams, s)
		}
	}
	if len(streams) == 0 && len(e.Streams) > 0 {
		return fmt.Errorf("nothing is planned for --front-end %q and --class %q: leave one out to see what is", frontEnd, class)
	}
	e.Streams = streams
	return nil
}

func explainTable(w *tabwriter.Writer, e *explained) {
	if e.Note != "" {
		row(w, "%s\n", e.Note)
	}
	row(w, "FRONT-END\tCLASS\tNEXT REQUEST\tPOOL\tSHARE\tNETWORK\tENGINE\tOTHER\tCOST\tWHY")
	for _, s := range e.Streams {
		head := fmt.Sprintf("%s\t%s\t%s", s.FrontEnd, s.Class, ms(s.MarginalSeconds))
		for _, o := range s.Options {
			other := o.PriceSeconds + o.MoveSeconds + o.LimitSeconds
			row(w, "%s\t%s\t%.2f%%\t%s\t%s\t%s\t%s\t%s", head, o.Pool, 100*o.Share,
				ms(o.NetworkSeconds), ms(o.EngineSeconds), ms(other), ms(o.Cost()), plain(o.Why))
			head = "\t\t"
		}
	}
	for _, s := range e.Streams {
		if s.Limit != "" {
			row(w, "%s/%s: %s", s.FrontEnd, s.Class, plain(s.Limit))
		}
	}
	row(w, "\nPOOL\tCAPACITY\tRPS\tUTILISATION\tONE MORE REPLICA SAVES\tLIMITS")
	for _, p := range e.Pools {
		row(w, "%s\t%.2f\t%.2f\t%.1f%%%s\t%s a request\t%s", p.Pool, p.CapacityRps, p.Rps, 100*p.Utilisation,
			full(p.Binds), ms(p.ReplicaGainSeconds), dash(plain(strings.Join(p.Limits, "; "))))
	}
}

func full(binds bool) string {
	if binds {
		return " full"
	}
	return ""
}

func turnTable(w *tabwriter.Writer, t *turnExplained) {
	if t == nil {
		row(w, "\nNo traffic has moved since the control plane started.")
		return
	}
	row(w, "\nLast change, %s ago: %.1f%% of the traffic moved, %s → %s", since(t.At), 100*t.MovedShare, t.From, t.To)
	if len(t.Causes) == 0 {
		row(w, "What changed it cannot be told: the state before cannot be planned again.")
		return
	}
	row(w, "BY ITSELF THE CHANGE OF\tMOVES\tREFUSES")
	for _, c := range t.Causes {
		if c.Error != "" {
			row(w, "%s\t%s\t", c.Input, c.Error)
			continue
		}
		row(w, "%s\t%.1f%%\t%+.2f RPS", c.Input, 100*c.Moved, c.Shed)
	}
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

// explainLegend explains the columns that do not speak for themselves.
const explainLegend = `NEXT REQUEST  what one more request costs the whole fleet; while requests are refused, the price of that
ENGINE        on an idle replica, and by how much the next request delays others or takes their place
OTHER         the pool's price, what a move must gain, and what limits make of it
COST          of the next request to that pool; pools in use cost alike, others more`

package main

import (
	"cmp"
	"context"
	"math"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/admin"
	"weir/fleet"
)

// brakeVerbs put brakes on and take them off.
func brakeVerbs() []*cobra.Command {
	drain := brakeVerb("drain POOL|ENGINE", "Have the engines of a pool, or one, end what they have and get nothing new", `Have the engines of a pool, or one engine (ip:port), end what they have and get nothing
new. It is refused where a class would be left without an engine that serves.`, drainOrder)
	force := drain.cmd.Flags().Bool("force", false, "leave a class without an engine, if it comes to that")
	drain.finish = func(o *admin.BrakeOrder) { o.Force = *force }
	return []*cobra.Command{
		drain.cmd,
		brakeVerb("freeze", "Hold the plan as it is", `Hold the plan as it is: shares and refusals stay, whatever is measured. News of engines
goes on: who is not ready or drains gets nothing, and so do penalties and diversions in
front-ends. Classes, front-ends and pools that the fleet file adds meanwhile have no part
in the plan; pins and limits wait.`, freezeOrder).cmd,
		brakeVerb("pin FRONTEND[/CLASS] POOL=SHARE", "Have a pool get a fixed share of a front-end's traffic", `Have a pool get exactly that share (0.3 or 30%) of the admitted traffic of a class at a
front-end; without CLASS, of each class that may go there. It yields to capacity under
policies that heed that, and weir status says so; the others overload the pool.`, pinOrder).cmd,
		brakeVerb("limit CLASS=RPS", "Let in no more of a class than that, over all front-ends", `Let in no more of a class than that, over all front-ends; the rest is refused, the same
part of it at each.`, limitOrder).cmd,
		liftVerb("undrain POOL|ENGINE", "End a drain", drainOrder),
		liftVerb("unfreeze", "Have plans made again", freezeOrder),
		liftVerb("unpin FRONTEND[/CLASS] POOL", "End a pin", unpinOrder),
		liftVerb("unlimit CLASS", "End a limit", unlimitOrder),
		newBrakes(),
	}
}

// verb is a command that puts a brake on.
type verb struct {
	cmd    *cobra.Command
	finish func(*admin.BrakeOrder) // nil: there is nothing more to read
}

// read makes an order of a command's arguments.
type read func(args []string) (admin.BrakeOrder, error)

func brakeVerb(use, short, long string, of read) *verb {
	var hold time.Duration
	var note string
	v := &verb{}
	v.cmd = ordering(use, short, func(a []string) (admin.BrakeOrder, error) {
		o, err := of(a)
		if hold <= 0 || hold > fleet.MaxBrakeTime {
			return o, usage("--for %v: want more than 0 and %v at most; repeat the command to renew it", hold, fleet.MaxBrakeTime)
		}
		seconds := hold.Seconds()
		o.Seconds, o.Note = &seconds, note
		if v.finish != nil {
			v.finish(&o)
		}
		return o, err
	})
	v.cmd.Long = long + `

It ends by itself after --for, and is kept over restarts of the control plane that has a
--state directory. Ask on the control plane's own machine.`
	v.cmd.Flags().DurationVar(&hold, "for", admin.DefaultBrakeTime, "how `long`, at most "+fleet.MaxBrakeTime.String())
	v.cmd.Flags().StringVar(&note, "note", "", "`why`, for whoever looks at weir status")
	return v
}

func liftVerb(use, short string, of read) *cobra.Command {
	return ordering(use, short, func(a []string) (admin.BrakeOrder, error) {
		o, err := of(a)
		return admin.BrakeOrder{BrakeTarget: o.BrakeTarget, Lift: true}, err
	})
}

// ordering is a command that orders something and shows the brakes in force.
func ordering(use, short string, of read) *cobra.Command {
	var address string
	var timeout time.Duration
	c := &cobra.Command{Use: use, Short: short, Args: args(strings.Fields(use)[1:]...)}
	format := outputFlag(c)
	c.Flags().StringVar(&address, "admin", adminAddress, "`host:port` of the control plane's admin API")
	timeoutFlag(c, &timeout, 15*time.Second, "the control plane")
	c.RunE = func(c *cobra.Command, a []string) error {
		o, err := of(a)
		if err != nil {
			return err
		}
		o.Owner = whoami()
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		b, err := admin.OrderBrake(ctx, address, o)
		if err != nil {
			return err
		}
		return show(c.OutOrStdout(), *format, b, func(w *tabwriter.Writer) { orderedTable(w, o.Lift, b) })
	}
	return c
}

// orderedTable shows the brakes in force, and first the one that an order took the place
// of: it may be somebody else's.
func orderedTable(w *tabwriter.Writer, lifted bool, b *admin.Brakes) {
	if was := b.Replaced; was != nil {
		what := "replaced: "
		if lifted {
			what = "ended: "
		}
		row(w, "%s%s\n", what, plain(was.Text()))
	}
	brakesTable(w, b.Brakes)
}

func newBrakes() *cobra.Command {
	var address string
	var timeout time.Duration
	c := &cobra.Command{Use: "brakes", Short: "Show the brakes in force: drains, freezes, pins and limits", Args: args()}
	format := outputFlag(c)
	c.Flags().StringVar(&address, "admin", adminAddress, "`host:port` of the control plane's admin API")
	timeoutFlag(c, &timeout, 5*time.Second, "the control plane")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		b, err := admin.FetchBrakes(ctx, address)
		if err != nil {
			return err
		}
		return show(c.OutOrStdout(), *format, b, func(w *tabwriter.Writer) { brakesTable(w, b.Brakes) })
	}
	return c
}

// whoami is user@host, as far as the machine tells.
func whoami() string {
	name := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"))
	if u, err := user.Current(); err == nil && name == "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return cmp.Or(name, "unknown") + "@" + host
}

func drainOrder(a []string) (o admin.BrakeOrder, err error) {
	o.Kind = fleet.BrakeDrain
	if _, err := netip.ParseAddrPort(a[0]); err == nil {
		o.Engine = fleet.EngineID(a[0])
	} else {
		o.Pool = fleet.PoolID(a[0])
	}
	return o, nil
}

func freezeOrder([]string) (o admin.BrakeOrder, err error) {
	o.Kind = fleet.BrakeFreeze
	return o, nil
}

func pinOrder(a []string) (admin.BrakeOrder, error) {
	pool, share, ok := strings.Cut(a[1], "=")
	o, err := unpinOrder([]string{a[0], pool})
	if err != nil {
		return o, err
	}
	value, percent := strings.CutSuffix(share, "%")
	v, err := strconv.ParseFloat(value, 64)
	if percent {
		v /= 100
	}
	if !ok || err != nil || !(v >= 0 && v <= 1) {
		return o, usage("%q: want POOL=SHARE, a share of 0 to 1 or of 0%% to 100%%", a[1])
	}
	o.Share = &v
	return o, nil
}

func unpinOrder(a []string) (o admin.BrakeOrder, err error) {
	frontEnd, class, hasClass := strings.Cut(a[0], "/")
	if frontEnd == "" || hasClass && class == "" {
		return o, usage("%q: want FRONTEND or FRONTEND/CLASS", a[0])
	}
	o.BrakeTarget = fleet.BrakeTarget{Kind: fleet.BrakePin, FrontEnd: fleet.FrontEndID(frontEnd), Class: fleet.ClassID(class), Pool: fleet.PoolID(a[1])}
	return o, nil
}

func limitOrder(a []string) (admin.BrakeOrder, error) {
	class, rps, ok := strings.Cut(a[0], "=")
	o, err := unlimitOrder([]string{class})
	if err != nil {
		return o, err
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(rps, "rps"), 64)
	if !ok || err != nil || !(v >= 0) || math.IsInf(v, 1) {
		return o, usage("%q: want CLASS=RPS, a number of at least 0", a[0])
	}
	o.Rps = &v
	return o, nil
}

func unlimitOrder(a []string) (o admin.BrakeOrder, err error) {
	o.BrakeTarget = fleet.BrakeTarget{Kind: fleet.BrakeLimit, Class: fleet.ClassID(a[0])}
	return o, nil
}

func brakesTable(w *tabwriter.Writer, brakes []admin.Brake) {
	if len(brakes) == 0 {
		row(w, "no brakes are in force")
		return
	}
	row(w, "BRAKE\tLEFT\tBY\tNOTE\tNOW")
	for i := range brakes {
		b := &brakes[i]
		left := time.Duration(b.SecondsLeft * float64(time.Second)).Round(time.Second)
		row(w, "%s%s\t%s\t%s\t%s\t%s", plain(b.BrakeTarget.String()), b.Amount(), left, plain(b.Owner), plain(cmp.Or(b.Note, "-")), plain(b.Effect))
	}
}

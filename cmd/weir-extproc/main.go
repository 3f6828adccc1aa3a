// Command weir-extproc stands beside one Envoy and tells it which engine each
// request belongs to.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"weir/admin"
	"weir/envoy"
	"weir/extproc"
	"weir/extproc/outcome"
	"weir/extproc/roundtrip"
	"weir/fleet"
	"weir/xds"
)

type options struct {
	frontEnd, nodeID, xds, listen, admin string
	slowAfter                            time.Duration
	bodyBudgetMiB                        int64
	ready                                bool // ask another process instead of serving
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "weir-extproc:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work := serve
	if o.ready {
		work = askReady
	}
	if err := work(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "weir-extproc:", err)
		return 1
	}
	return 0
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("weir-extproc", flag.ContinueOnError)
	f.StringVar(&o.frontEnd, "front-end", "", "`name` of the front-end in the fleet file")
	f.StringVar(&o.nodeID, "node-id", "", "`id` of the Envoy beside it")
	f.StringVar(&o.xds, "xds", "", "`host:port` of the control plane")
	f.StringVar(&o.listen, "listen", "", "`ip:port` to serve Envoy on, or the absolute path of a Unix socket, which only its owner and group may open: Envoy's user must be one of them")
	f.StringVar(&o.admin, "admin", "", "`ip:port` of the admin API; empty: none")
	f.DurationVar(&o.slowAfter, "slow-after", outcome.DefaultSlowAfter, "`time` after which an attempt without a first token is slow; more than a second")
	f.Int64Var(&o.bodyBudgetMiB, "body-budget", extproc.DefaultBudget>>20, "`MiB` of request bodies to hold at once: beyond them a request is decided by its headers alone, or gets a 503 that asks it to come again")
	f.BoolVar(&o.ready, "ready", false, "do not serve, but ask the weir-extproc whose admin API is at --admin whether it is ready: exit code 0 or 1; for health checks")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: there are flags only", f.Arg(0))
	}
	if o.ready && o.admin != "" {
		return o, nil // nothing is served
	}
	if o.ready {
		return o, errors.New("--ready needs --admin")
	}
	if o.frontEnd == "" || o.nodeID == "" || o.xds == "" || o.listen == "" {
		return o, errors.New("needs --front-end, --node-id, --xds and --listen")
	}
	if err := envoy.CheckControlPlane(o.xds); err != nil {
		return o, fmt.Errorf("--xds: %w", err)
	}
	if err := checkListen(o.listen); err != nil {
		return o, fmt.Errorf("--listen: %w", err)
	}
	if o.slowAfter <= time.Second {
		return o, errors.New("--slow-after: want more than 1s, which is how often Envoy tells of attempts")
	}
	if o.bodyBudgetMiB < 1 || o.bodyBudgetMiB > maxBodyBudgetMiB {
		return o, fmt.Errorf("--body-budget: want 1 to %d MiB", maxBodyBudgetMiB)
	}
	return o, nil
}

// maxBodyBudgetMiB is beyond any machine: a larger budget is a slip.
const maxBodyBudgetMiB = 1 << 20

// parts are what Envoy and the control plane speak to.
type parts struct {
	server   *extproc.Server
	outcomes *outcome.Recorder
	prober   *roundtrip.Prober
	node     string           // its name
	taken    *envoy.Resources // what the view in force was made of
}

func newParts(o options, log *zap.Logger) *parts {
	server := extproc.New(log.Named("extproc"))
	server.SetBudget(o.bodyBudgetMiB << 20)
	outcomes := outcome.New(o.slowAfter, log.Named("penalties"))
	outcomes.OnAnswer = func(a outcome.Answer) { server.Answered(a.ID, a.Engine, a.Key) }
	return &parts{node: o.nodeID, server: server, outcomes: outcomes, prober: roundtrip.New()}
}

// swap has all parts go by what the control plane says. Each round tells how full the
// engines are; the rest changes seldom, and only then a view is made of it.
func (p *parts) swap(r *envoy.Resources) error {
	plan := r.WithoutLevels()
	if p.taken == nil || !p.taken.Same(plan) {
		v, err := envoy.Decode(plan)
		if err != nil {
			return err
		}
		if v.TellDecision {
			v.Plan = plan.PlanVersion()
		}
		p.outcomes.Swap(v)
		p.prober.Swap(v)
		p.server.Swap(extproc.NewTable(v))
		p.taken = plan
	}
	p.server.SwapLevels(envoy.DecodeLevels(r.Runtimes))
	switch a, ok := envoy.DecodeAdmission(r.Runtimes); {
	case !ok:
		p.server.CountUnread()
	case a != nil:
		p.server.SwapAdmission(a, a.ShareOf(p.node))
	}
	return nil
}

// take is what was counted since it was last taken.
func (p *parts) take() fleet.LoadReport {
	return fleet.LoadReport{
		Classes:    append(p.server.Take(), p.outcomes.Take()...),
		RoundTrips: p.prober.Take(),
		Open:       p.server.Open(),
		Penalties:  p.outcomes.Penalties(),
	}
}

// heapFloor is memory that is never touched, and so never resident, but counts for
// the garbage collector: it waits until as much again was allocated. Little lives
// here but what is in flight; without the floor it would run every 4 MiB, which is
// every few hundred requests.
const heapFloor = 16 << 20 // bytes

// serve runs until the context ends. A control plane that is not there yet is
// waited for; meanwhile Envoy is told that this process is not serving.
func serve(ctx context.Context, o options) error {
	defer runtime.KeepAlive(make([]byte, heapFloor))
	log, err := newLogger()
	if err != nil {
		return err
	}
	l, err := listen(o.listen)
	if err != nil {
		return err
	}
	asked, err := admin.Listen(o.admin)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	conn, err := xds.Dial(o.xds, nil)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer conn.Close()
	parts := newParts(o, log)
	node := envoy.Node(fleet.FrontEndID(o.frontEnd), o.nodeID, fleet.RoleExtProc)
	client := xds.NewClient(conn, node, parts.swap, log.Named("xds"))
	reporter := xds.NewReporter(conn, node, parts.take, log.Named("load"))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return client.Run(ctx) })
	group.Go(func() error { return reporter.Run(ctx) })
	group.Go(func() error { return parts.prober.Run(ctx) })
	group.Go(func() error { return parts.server.Run(ctx) })
	group.Go(func() error { return parts.outcomes.Penalise(ctx, parts.server.Loads, parts.server.SetPenalties) })
	group.Go(func() error { return parts.answer(ctx, l) })
	group.Go(func() error { o.watchSilence(ctx, &client.Counters, log); return nil })
	group.Go(func() error { return serveAdmin(ctx, asked, parts, client, reporter, log.Named("admin")) })
	log.Info("serving Envoy", zap.String("listen", o.listen), zap.String("frontEnd", o.frontEnd), zap.String("node", o.nodeID))
	return group.Wait()
}

// silence is how long the control plane may tell nothing before somebody should look.
const silence = 5 * time.Second

// watchSilence says once what may be wrong where the control plane tells nothing.
func (o *options) watchSilence(ctx context.Context, c *xds.ClientCounters, log *zap.Logger) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(silence):
	}
	switch {
	case c.Updates.Load() > 0:
	case c.Connected.Load():
		log.Warn("the control plane tells nothing of this front-end, and until it does Envoy is told that this process does not serve: is it in the fleet file? weir status lists those that are not", zap.String("frontEnd", o.frontEnd))
	default:
		log.Warn("the control plane does not answer, and until it does Envoy is told that this process does not serve", zap.String("xds", o.xds))
	}
}

// patience is how long requests under way may take to be answered at the end.
const patience = time.Second

func (p *parts) answer(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer(extproc.ServerOptions()...)
	p.server.Register(g)
	p.outcomes.Register(g)
	ended := context.AfterFunc(ctx, func() {
		p.server.Drain()
		time.AfterFunc(patience, g.Stop) // streams last as long as their requests
	})
	defer ended()
	return g.Serve(l)
}

func newLogger() (*zap.Logger, error) {
	c := zap.NewProductionConfig()
	c.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	c.DisableStacktrace = true
	c.DisableCaller = true
	return c.Build()
}

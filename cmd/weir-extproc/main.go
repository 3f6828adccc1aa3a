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
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"weir/admin"
	"weir/envoy"
	"weir/extproc"
	"weir/fleet"
	"weir/xds"
)

type options struct {
	frontEnd, nodeID, xds, listen, admin string
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
	if err := serve(ctx, o); err != nil {
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
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: there are flags only", f.Arg(0))
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
	return o, nil
}

// serve runs until the context ends. A control plane that is not there yet is
// waited for; meanwhile Envoy is told that this process is not serving.
func serve(ctx context.Context, o options) error {
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
	server := extproc.New(log.Named("extproc"))
	node := envoy.Node(fleet.FrontEndID(o.frontEnd), o.nodeID, fleet.RoleExtProc)
	client := xds.NewClient(conn, node, swap(server), log.Named("xds"))
	reporter := xds.NewReporter(conn, node, server.Take, log.Named("load"))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return client.Run(ctx) })
	group.Go(func() error { return reporter.Run(ctx) })
	group.Go(func() error { return answer(ctx, server, l) })
	group.Go(func() error { return serveAdmin(ctx, asked, server, client, reporter, log.Named("admin")) })
	log.Info("serving Envoy", zap.String("listen", o.listen), zap.String("frontEnd", o.frontEnd), zap.String("node", o.nodeID))
	return group.Wait()
}

func swap(server *extproc.Server) func(*envoy.Resources) error {
	return func(r *envoy.Resources) error {
		v, err := envoy.Decode(r)
		if err != nil {
			return err
		}
		server.Swap(extproc.NewTable(v))
		return nil
	}
}

// patience is how long requests under way may take to be answered at the end.
const patience = time.Second

func answer(ctx context.Context, server *extproc.Server, l net.Listener) error {
	g := grpc.NewServer(extproc.ServerOptions()...)
	server.Register(g)
	ended := context.AfterFunc(ctx, func() {
		server.Drain()
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

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"weir/admin"
	"weir/control"
	"weir/envoy"
	"weir/fit/watch"
	"weir/fleet"
	"weir/signals"
	"weir/signals/discover"
	"weir/signals/scrape"
	"weir/xds"
)

func newServe() *cobra.Command {
	var address, state, adminAt, kubeconfig string
	c := &cobra.Command{
		Use:   "serve FILE",
		Short: "Run the control plane",
		Args:  args("FILE"),
		RunE: func(c *cobra.Command, a []string) error {
			log, err := newLogger()
			if err != nil {
				return err
			}
			begin, err := beginWith(a[0], state, log)
			if err != nil {
				return err
			}
			if kubeconfig != "" {
				if err := discover.CheckKubeconfig(kubeconfig); err != nil {
					return fmt.Errorf("--kubeconfig: %w", err)
				}
			}
			l, err := net.Listen("tcp", address)
			if err != nil {
				return fmt.Errorf("--xds: %w: is another weir serve running?", err)
			}
			log.Info("serving xDS", zap.Stringer("listen", l.Addr()), zap.String("fleet", a[0]))
			asked, err := admin.Listen(adminAt)
			if err != nil {
				return err
			}
			p := newPlane(a[0], begin, state, log)
			p.finder.Kubeconfig = kubeconfig
			return p.run(c.Context(), l, asked)
		},
	}
	c.Flags().StringVar(&address, "xds", "127.0.0.1:18000", "`ip:port` on which Envoys and weir-extprocs find the control plane")
	c.Flags().StringVar(&adminAt, "admin", adminAddress, "`ip:port` of the admin API; empty: none")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "`file` that names the Kubernetes cluster whose Services pools take their engines from; empty: $KUBECONFIG, ~/.kube/config, or that of the pod")
	c.Flags().StringVar(&state, "state", "", "`directory` that keeps the last plan, and operators' orders, over restarts")
	return c
}

// maxReports bounds the load reports that wait for the loop.
const maxReports = 1024

// plane wires the rooms of the control plane together.
type plane struct {
	file    string
	log     *zap.Logger
	tracker *signals.Tracker
	prober  *signals.Prober
	scraper *scrape.Scraper
	server  *xds.Server
	reports chan fleet.LoadReport
	loop    *control.Loop
	keeper  *control.Keeper // nil: plans are not kept
	finder  *discover.Finder
	book    *discover.Book // belongs to the loop's goroutine, as the tracker does
	found   *fleet.Fleet   // what of it the others have, but for profiles that stand in; likewise
	watcher *watch.Watcher // of profiles

	adopted       map[fleet.PoolID]fleet.Adoption // profiles that stand in for the file's; likewise
	historiesKept time.Time                       // when they last were; likewise
	adoptedAnew   bool                            // since the others were told; likewise

	unkept string // why not; empty: nobody asked for it

	fleetText string                 // what is in force; only the loop's goroutine changes it
	complaint atomic.Pointer[string] // why the fleet file is not in force; nil: it is
	counters  planeCounters
}

func newPlane(file string, begin beginning, state string, log *zap.Logger) *plane {
	p := &plane{file: file, fleetText: begin.text, log: log, reports: make(chan fleet.LoadReport, maxReports), adopted: map[fleet.PoolID]fleet.Adoption{}}
	if begin.problem != nil {
		complaint := begin.problem.Error()
		p.complaint.Store(&complaint)
	}
	p.server = xds.New(xds.Options{Reports: p.reports}, log.Named("xds"))
	restored, ordered := p.restore(state, log.Named("state"))
	p.book = discover.NewBook(begin.fleet, restored.Engines)
	f := p.book.Fleet()
	p.found, p.tracker = f, signals.NewTracker(f)
	p.remember(state, log.Named("state"))
	p.loop = control.New(control.Config{
		State:    p.state,
		Plan:     makePlan,
		Publish:  p.publish,
		Restored: restored.Plan,
		Ordered:  ordered,
		Braked:   p.tracker.Brake,
		Keep:     p.keepOrders,
		Log:      log.Named("control"),
	})
	p.watcher = watch.New(p.loop.Latest, p.adopt, log.Named("profile"))
	p.prober = signals.NewProber(log.Named("probe"), f, func(probe signals.Probe) {
		p.loop.Post(func(now time.Time) { p.tracker.ObserveProbe(now, probe) })
	})
	p.scraper = scrape.New(log.Named("scrape"), f, signals.NewEngineClient, func(s scrape.Sample) {
		p.loop.Post(func(time.Time) { p.tracker.ObserveSample(s) })
	})
	p.scraper.Override = override
	p.finder = discover.NewFinder(log.Named("discover"), begin.fleet, p.takeAnswer)
	p.server.SetFrontEnds(frontEnds(f))
	return p
}

// run serves xDS on one listener and, unless it is nil, the admin API on the other.
func (p *plane) run(ctx context.Context, l, asked net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.server.Run(ctx, l) })
	group.Go(func() error { return p.prober.Run(ctx) })
	group.Go(func() error { return p.scraper.Run(ctx) })
	group.Go(func() error { return p.finder.Run(ctx) })
	group.Go(func() error { return p.loop.Run(ctx) })
	group.Go(func() error { return p.watcher.Run(ctx) })
	group.Go(func() error { return p.takeReports(ctx) })
	group.Go(func() error { return p.watch(ctx) })
	group.Go(func() error { return p.serveAdmin(ctx, asked) })
	if p.keeper != nil {
		group.Go(func() error { return p.keeper.Run(ctx) })
	}
	return group.Wait()
}

func (p *plane) takeReports(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-p.reports:
			p.loop.Post(func(now time.Time) { p.tracker.ObserveLoad(now, r) })
		}
	}
}

// publish tells every front-end its part of a plan, and all of them how full the
// engines are. One that cannot be told does not keep the others from it.
func (p *plane) publish(s *fleet.State, plan *fleet.Plan) error {
	var errs []error
	for i := range s.Fleet.FrontEnds {
		id := s.Fleet.FrontEnds[i].ID
		r, err := envoy.Encode(fleet.NewView(s, plan, id))
		if err == nil {
			err = p.server.Publish(id, r)
		}
		errs = append(errs, err)
	}
	errs = append(errs, p.publishLevels(s, plan))
	p.keep(plan)
	return errors.Join(errs...)
}

// publishLevels tells the weir-extprocs what changes each round.
func (p *plane) publishLevels(s *fleet.State, plan *fleet.Plan) error {
	levels, err := envoy.EncodeLevels(fleet.NewLevels(s, plan, time.Now()))
	if err != nil {
		return err
	}
	own, err := envoy.EncodeAdmissions(fleet.NewAdmissions(s, plan))
	if err != nil {
		return err
	}
	return p.server.PublishLevels(levels, own)
}

func frontEnds(f *fleet.Fleet) []fleet.FrontEndID {
	ids := make([]fleet.FrontEndID, len(f.FrontEnds))
	for i := range f.FrontEnds {
		ids[i] = f.FrontEnds[i].ID
	}
	return ids
}

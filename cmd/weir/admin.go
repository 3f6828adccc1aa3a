package main

import (
	"context"
	"errors"
	"net"

	"go.uber.org/zap"

	"weir/admin"
	"weir/signals"
	"weir/signals/discover"
)

// adminAddress is where the admin API of a control plane is, unless told otherwise.
const adminAddress = "127.0.0.1:18001"

// serveAdmin answers what people and programs ask of the control plane; without an
// address nobody can ask.
func (p *plane) serveAdmin(ctx context.Context, l net.Listener) error {
	if l == nil {
		return nil
	}
	p.log.Info("serving the admin API", zap.Stringer("listen", l.Addr()))
	if warning := admin.Warning(l.Addr()); warning != "" {
		p.log.Warn(warning, zap.Stringer("listen", l.Addr()))
	}
	metrics := admin.NewRegistry()
	err := errors.Join(
		p.registerMetrics(metrics),
		p.tracker.Counters.RegisterMetrics(metrics),
		p.prober.Counters.RegisterMetrics(metrics),
		p.scraper.Counters.RegisterMetrics(metrics),
		signals.RegisterBeliefs(metrics, p.loop.Latest),
		p.book.Counters.RegisterMetrics(metrics),
		discover.RegisterSources(metrics, p.loop.Latest),
		p.server.RegisterMetrics(metrics),
		p.watcher.RegisterMetrics(metrics),
		p.loop.RegisterMetrics(metrics),
	)
	if p.keeper != nil {
		err = errors.Join(err, p.keeper.RegisterMetrics(metrics))
	}
	if err != nil {
		return err
	}
	return admin.Serve(ctx, l, admin.Handler(admin.ControlPlane(admin.Sources{
		Latest:       p.loop.Latest,
		Clients:      p.server.Clients,
		FleetProblem: p.fleetProblem,
		StateProblem: p.stateProblem,
		Metrics:      metrics,
		Queries:      p.queries(),
		Profiles:     p.watcher.News,
		Choose:       p.loop.Choose,
		Brake:        p.loop.Brake,
		Release:      p.loop.Release,
	})))
}

// stateProblem says why plans are not kept; empty: they are, or nobody asked for it.
func (p *plane) stateProblem() string {
	if p.keeper == nil {
		return p.unkept
	}
	return p.keeper.Problem()
}

// fleetProblem says why the fleet file is not in force as it is; empty: it is.
func (p *plane) fleetProblem() string {
	if complaint := p.complaint.Load(); complaint != nil {
		return *complaint
	}
	return ""
}

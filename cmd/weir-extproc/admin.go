package main

import (
	"context"
	"errors"
	"net"
	"time"

	"go.uber.org/zap"

	"weir/admin"
	"weir/extproc"
	"weir/xds"
)

// serveAdmin answers what people and programs ask of the process; without an
// address nobody can ask.
func serveAdmin(ctx context.Context, l net.Listener, p *parts, client *xds.Client, reporter *xds.Reporter, log *zap.Logger) error {
	if l == nil {
		return nil
	}
	log.Info("serving the admin API", zap.Stringer("listen", l.Addr()))
	if warning := admin.Warning(l.Addr()); warning != "" {
		log.Warn(warning, zap.Stringer("listen", l.Addr()))
	}
	metrics := admin.NewRegistry()
	err := errors.Join(
		p.server.RegisterMetrics(metrics),
		p.outcomes.RegisterMetrics(metrics),
		p.prober.RegisterMetrics(metrics),
		client.RegisterMetrics(metrics),
		reporter.RegisterMetrics(metrics),
	)
	if err != nil {
		return err
	}
	return admin.Serve(ctx, l, admin.Handler(admin.Options{Metrics: metrics, Ready: func() error { return ready(p.server) }}))
}

// askTimeout bounds a health check.
const askTimeout = 5 * time.Second

// askReady asks the weir-extproc whose admin API is at an address.
func askReady(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return admin.AskReady(ctx, o.admin)
}

func ready(server *extproc.Server) error {
	if !server.Serving() {
		return errors.New("not serving Envoy yet: nothing was heard of the control plane")
	}
	return nil
}

// Package admin answers what people and programs ask of a running process: is it
// alive, what does it do and why, and what has it counted. It is HTTP and JSON, and
// knows nothing but what it is handed as functions. It reads, save for the few actions
// that an operator on the same machine may order.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

const (
	maxRequests    = 8         // answered at once; more get a 503
	maxResponse    = 128 << 20 // bytes: a network of 300 front-ends and 2,000 pools is half of it
	maxHeaderBytes = 16 << 10
)

// Serve answers on the listener until the context ends, and then returns nil.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	closed := context.AfterFunc(ctx, func() { server.Close() })
	defer closed()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the admin API on %s: %w", l.Addr(), err)
	}
	return nil
}

// Listen opens the port of an admin API. Without an address there is none: nil.
func Listen(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--admin: %w: give another, or an empty one for none", err)
	case err != nil:
		return nil, fmt.Errorf("--admin: %w", err)
	}
	return l, nil
}

// Warning is what an operator must know of an address; empty: nothing.
func Warning(a net.Addr) string {
	if ap, err := netip.ParseAddrPort(a.String()); err == nil && ap.Addr().Unmap().IsLoopback() {
		return ""
	}
	return "the admin API asks nobody who he is, and others than this machine may reach it"
}

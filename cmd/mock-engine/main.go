// Mock-engine is a GPU engine without a GPU: it answers requests in the APIs of
// OpenAI and Anthropic with made-up text, as late as its profile says at the load
// it is under and with what it has in its KV cache, and reports itself as vLLM
// does. Tests and demos count in its log what really arrived at an engine; they
// can make it fail in the ways that engines do, and put it far away.
//
// It knows nothing of the rest of the project, as a real engine would not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// grace is how long requests in flight may go on after a request to stop.
const grace = 2 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run serves until ctx ends and returns the exit code: 0 after a stop that was
// asked for, 1 when it cannot serve, 2 for wrong flags.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "mock-engine: %v\n", err)
		return 2
	}
	work := serve
	if o.ready {
		work = askReady
	}
	if err := work(ctx, o, stdout); err != nil {
		fmt.Fprintf(stderr, "mock-engine: %v\n", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, o options, stdout io.Writer) error {
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w: choose another --listen address", o.listen, err)
	}
	defer listener.Close()
	if o.name == "" {
		o.name = listener.Addr().String()
	}
	journal, err := openJournal(o.log)
	if err != nil {
		return err
	}
	engine := newEngine(o, journal)
	fmt.Fprintf(stdout, "listening on %s\n", listener.Addr())
	return errors.Join(serveUntil(ctx, listener, engine), journal.Close())
}

// askReady asks the engine at an address, for a bounded time.
func askReady(ctx context.Context, o options, _ io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.listen+"/health", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s is not ready: %s", o.listen, response.Status)
	}
	return nil
}

// serveUntil stops at the end of ctx: health checks fail at once, requests in
// flight have the grace, and what is left then is cut off.
func serveUntil(ctx context.Context, listener net.Listener, engine *engine) error {
	work, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	server := &http.Server{
		Handler:           engine.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return work },
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		engine.draining.Store(true)
		if shutdown(server) != nil {
			cutOff()
			_ = shutdown(server) // Close is left for those who do not end even so
		}
		server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}

// shutdown waits for the requests in flight, for no longer than the grace.
func shutdown(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return server.Shutdown(ctx)
}

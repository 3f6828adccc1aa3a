package xds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	maxMessage  = 64 << 20 // bytes; the default of 4 MiB is passed by large fleets' endpoints
	firstWait   = 100 * time.Millisecond
	longestWait = 5 * time.Second
)

// Dial opens the connection to a control plane at "host:port" that a [Client] and
// a [Reporter] share. It does not wait for the control plane to be there. Nil
// credentials: plain text.
func Dial(target string, c credentials.TransportCredentials) (*grpc.ClientConn, error) {
	if c == nil {
		c = insecure.NewCredentials()
	}
	// A name is asked for anew with each attempt, which passthrough leaves to the dialer.
	// gRPC's own resolver asks again after half a minute, and after failures as late as
	// two: a control plane that is replaced, at another address, would be missed for long.
	conn, err := grpc.NewClient("passthrough:///"+target,
		grpc.WithTransportCredentials(c),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstWait, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestWait},
			MinConnectTimeout: longestWait,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("control plane %q: %w", target, err)
	}
	return conn, nil
}

// forever runs attempts until the context ends. Between them it waits, longer
// each time, jittered so that a restarted control plane is not met by all clients
// at once; an attempt that reached the control plane makes the wait short again.
func forever(ctx context.Context, log *zap.Logger, attempt func(context.Context) (reached bool, err error)) error {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		reached, err := attempt(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if reached {
			wait = firstWait
		}
		pause := wait/2 + rand.N(wait)
		log.Warn("control plane not reachable, retrying", zap.Error(err), zap.Duration("wait", pause))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

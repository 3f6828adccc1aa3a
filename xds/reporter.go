package xds

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/fleet"
)

const (
	answerWithin     = 10 * time.Second // a stream without an answer for so long is given up
	shortestInterval = 10 * time.Millisecond
)

// Reporter sends a node's counts to the control plane at the interval that it
// asks for. One batch is under way at a time, and is sent again, as the same
// batch, until it has been answered; meanwhile the counts stay where they are
// kept. So no outage loses a count, and none is counted twice.
type Reporter struct {
	Counters ReporterCounters

	conn  *grpc.ClientConn
	node  *corev3.Node
	take  func() fleet.LoadReport
	log   *zap.Logger
	batch *loadv3.LoadStatsRequest // not answered yet; nil: none
	taken time.Time                // when counts were last taken
	next  int64                    // name of the next batch
}

// ReporterCounters count what a reporter did. Any goroutine may read them.
type ReporterCounters struct {
	Streams  atomic.Uint64 // attempts to report; more than one: the control plane was away
	Answered atomic.Uint64 // batches that the control plane took
	Repeated atomic.Uint64 // batches sent again for want of an answer
}

// NewReporter returns a reporter for a node of [envoy.Node] on a connection of
// [Dial]. take returns the counts since its last call, without saying whose they
// are, and sets them to zero; it is called from Run, and not while the control plane
// is away.
func NewReporter(conn *grpc.ClientConn, node *corev3.Node, take func() fleet.LoadReport, log *zap.Logger) *Reporter {
	return &Reporter{conn: conn, node: node, take: take, log: log}
}

// Run reports until the context ends. It is called once and returns nil.
func (r *Reporter) Run(ctx context.Context) error {
	r.taken = time.Now()
	r.next = r.taken.UnixNano() // unlike the batches of an earlier process
	return forever(ctx, r.log, r.report)
}

// report serves one stream to its end.
func (r *Reporter) report(ctx context.Context) (reached bool, err error) {
	r.Counters.Streams.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := loadv3.NewLoadReportingServiceClient(r.conn).StreamLoadStats(ctx)
	if err != nil {
		return false, err
	}
	_ = stream.Send(&loadv3.LoadStatsRequest{Node: r.node}) // should it fail, Recv says why
	hello, err := stream.Recv()
	if err != nil {
		return false, err
	}
	answers := receive(ctx, stream)
	ticker := time.NewTicker(max(hello.GetLoadReportingInterval().AsDuration(), shortestInterval))
	defer ticker.Stop()
	var sent time.Time // of the batch, on this stream; zero: not sent
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case err := <-answers:
			if err != nil {
				return true, err
			}
			r.batch, sent = nil, time.Time{}
			r.Counters.Answered.Add(1)
		case now := <-ticker.C:
			if sent.IsZero() {
				sent = now
				r.fill(now)
				_ = stream.Send(r.batch)
			} else if now.Sub(sent) > answerWithin {
				return true, fmt.Errorf("load report not answered within %s", answerWithin)
			}
		}
	}
}

// receive passes on what the stream brings: nil for an answer, and the error that
// ends it. It ends with the context.
func receive(ctx context.Context, stream loadv3.LoadReportingService_StreamLoadStatsClient) <-chan error {
	answers := make(chan error)
	go func() {
		for {
			_, err := stream.Recv()
			select {
			case answers <- err:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return answers
}

// fill makes a batch of the counts, unless one is still under way.
func (r *Reporter) fill(now time.Time) {
	if r.batch != nil {
		r.Counters.Repeated.Add(1)
		return
	}
	node := proto.CloneOf(r.node)
	node.Metadata.Fields[batchKey] = structpb.NewStringValue(strconv.FormatInt(r.next, 36))
	r.batch = &loadv3.LoadStatsRequest{Node: node, ClusterStats: encodeLoad(r.take(), now.Sub(r.taken))}
	r.taken = now
	r.next++
}

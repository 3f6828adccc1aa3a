// Package extproc answers one question for each request: which engine does it
// belong to, and may it enter?
//
// A [Table] is the pure part: built once from a [fleet.View], never changed but for
// how full its engines are known to be, and the same on every replica, so that all of
// them send one conversation to one engine. A [Server] speaks Envoy's external
// processing protocol over the current table. It reads of a request what it must and
// no more: headers where they decide, else the body, which it scans but never keeps or
// logs, nor changes but for an alias of a model.
//
// Nothing here is needed for Envoy to forward: a dead or late Server leaves
// Envoy with the plan's weights.
package extproc

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"weir/extproc/wire"
	"weir/fleet"
)

// MaxMessage bounds one message from Envoy, in bytes: a body of the largest limit
// that a fleet file may set fits twice.
const MaxMessage = 256 << 20

// Server decides for every request of the Envoys beside it. It serves once
// [Server.Swap] has given it a table; until then its health is NOT_SERVING and
// Envoy goes on without it.
type Server struct {
	table    atomic.Pointer[Table]
	health   *health.Server
	ledger   ledger
	bodies   budget
	moves    moves
	answers  answers
	counters Counters
	keys     keyCounters
	deciding prometheus.Histogram
	log      *zap.Logger
}

// New returns a server without a table.
func New(log *zap.Logger) *Server {
	s := &Server{
		health: health.NewServer(), keys: newKeyCounters(), deciding: newDeciding(), log: log,
		bodies: budget{limit: DefaultBudget, began: time.Now()},
	}
	s.ledger.diverted.idle = divertedIdle
	s.ledger.classes, s.ledger.engines = map[fleet.ClassID]*tally{}, map[fleet.EngineID]*liveEngine{}
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	return s
}

// SetBudget bounds the bytes of request bodies that are held at once, in place of
// [DefaultBudget]; before the first request. What comes beyond it is decided by its
// headers, or asked to come again.
func (s *Server) SetBudget(bytes int64) { s.bodies.limit = bytes }

// ServerOptions are what the gRPC server must be made with: bodies come in one
// message, and every request in flight at Envoy holds a stream.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.Codec()),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(16 << 20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
}

// service is Envoy's ExternalProcessor, whose requests read themselves.
var service = grpc.ServiceDesc{
	ServiceName: extprocv3.ExternalProcessor_ServiceDesc.ServiceName,
	HandlerType: (*interface {
		Process(grpc.ServerStream) error
	})(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "Process",
		Handler:       func(s any, stream grpc.ServerStream) error { return s.(*Server).Process(stream) },
		ServerStreams: true,
		ClientStreams: true,
	}},
}

// Register adds the external processor and the health service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&service, s)
	healthv1.RegisterHealthServer(r, s.health)
}

// Swap makes t, which no server has had before, the table of all requests that begin
// from here on. Those under way keep theirs, and no count is lost.
func (s *Server) Swap(t *Table) { s.swapAt(t, time.Now()) }

func (s *Server) swapAt(t *Table, now time.Time) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.adopt(t, now)
	t.keys = s.keys.of(t.sources)
	if old := s.table.Load(); old != nil {
		s.moves.compare(old, t)
	}
	if s.table.Swap(t) == nil {
		s.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	}
}

// SwapLevels takes how full the control plane says that engines are; nil: it does not
// say. Levels of the same round as the last are no news, and those of engines other
// than the table's are left out; unread is of how many pools they could not be read.
func (s *Server) SwapLevels(l *fleet.Levels, unread int) { s.swapLevelsAt(l, unread, time.Now()) }

func (s *Server) swapLevelsAt(l *fleet.Levels, unread int, now time.Time) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.learn(s.table.Load(), l, unread, now)
}

// SetPenalties has engines get less than their part: what their weights are multiplied
// by, 0 < p ≤ 1. An engine that is left out gets its part.
func (s *Server) SetPenalties(all map[fleet.EngineID]float64) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.penalise(all)
	s.ledger.refresh(s.table.Load(), time.Now())
}

// Run brings up to date, each second, what changes with time alone, until the context
// ends: engines that have joined come to their full weight, and levels grow stale. Ten
// times a second it sees to who may enter.
func (s *Server) Run(ctx context.Context) error {
	tick, step := time.NewTicker(time.Second), time.NewTicker(gateStep)
	defer tick.Stop()
	defer step.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			s.refreshAt(now)
		case now := <-step.C:
			s.stepAt(now)
		}
	}
}

func (s *Server) refreshAt(now time.Time) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.refresh(s.table.Load(), now)
}

// Serving says whether there is a table to decide by.
func (s *Server) Serving() bool { return s.table.Load() != nil }

// Drain reports NOT_SERVING from here on, so that Envoy asks no more. Requests
// under way are still answered.
func (s *Server) Drain() { s.health.Shutdown() }

// Take returns what was counted since it was last called, by class, and begins
// anew. A class without an entry was idle.
func (s *Server) Take() []fleet.ClassLoad { return s.ledger.take() }

// Open returns how many admitted requests are open, by the engine that was their first
// choice. The control plane adds up what all say, and levels tell the sum.
func (s *Server) Open() []fleet.EngineOpen { return s.ledger.takeOpen() }

// Counters returns the live counters, which only ever rise.
func (s *Server) Counters() *Counters { return &s.counters }

// exchange is one request on its stream.
type exchange struct {
	table *Table
	head  head
	phase phase
	claim claim       // of room for the body
	body  []byte      // while it is read
	tally *tally      // of the class that it was admitted to
	pick  *liveEngine // nil: nowhere
}

// phase is how far an exchange has come.
type phase int

const (
	fresh phase = iota
	awaitingBody
	settled
)

// Process decides for one request. Envoy keeps the stream open until the request
// ends, which is how requests in flight are counted.
func (s *Server) Process(stream grpc.ServerStream) error {
	x := exchange{table: s.table.Load()}
	if x.table == nil {
		s.counters.NoTable.Add(1)
		return status.Error(codes.Unavailable, "no table yet: the control plane has not been heard")
	}
	defer func() { s.leave(&x) }()
	var m wire.Request
	for {
		err := stream.RecvMsg(&m)
		if err == nil {
			if out := s.timed(stream.Context(), &x, &m); out != nil {
				err = stream.SendMsg(out)
			}
			m.Free()
			if x.phase == settled {
				s.letGo(&x)
			}
		}
		if err != nil {
			return s.ended(err)
		}
	}
}

// ended tells the usual ends of a stream from faults.
func (s *Server) ended(err error) error {
	switch {
	case errors.Is(err, io.EOF), status.Code(err) == codes.Canceled:
		return nil
	default:
		s.counters.StreamFaults.Add(1)
		s.log.Debug("stream failed", zap.Error(err))
		return err
	}
}

// timeOneIn is how few messages are timed: reading the clock twice costs more than
// many a decision's hashing.
const timeOneIn = 8

// timed replies to one message and notes of some how long their decision took.
func (s *Server) timed(ctx context.Context, x *exchange, m *wire.Request) any {
	if x.phase == settled || rand.Uint32N(timeOneIn) != 0 {
		return s.answer(ctx, x, m)
	}
	began := time.Now()
	out := s.answer(ctx, x, m)
	if x.phase == settled {
		s.deciding.Observe(time.Since(began).Seconds())
	}
	return out
}

// answer replies to one message; not at all (nil) where nobody waits any more. What
// needs no decision is waved through.
func (s *Server) answer(ctx context.Context, x *exchange, m *wire.Request) any {
	switch {
	case m.Kind == wire.RequestHeaders && x.phase == fresh:
		return s.onHeaders(x, m)
	case m.Kind == wire.RequestBody && x.phase == awaitingBody:
		return s.onBody(ctx, x, m.Body)
	}
	return empty(m.Kind)
}

func (s *Server) onHeaders(x *exchange, m *wire.Request) any {
	x.head = newHead(m)
	if x.table.wanted.previous {
		s.lookUp(&x.head)
	}
	switch x.table.need(&x.head) {
	case nothing:
		return onRequestHeaders(s.wave(x))
	case theBody:
		if err := s.mayAsk(x); err != nil {
			return onRequestHeaders(s.settle(x, facts{}, err))
		}
		x.phase = awaitingBody
		return askForBody
	default:
		return onRequestHeaders(s.settle(x, facts{}, nil))
	}
}

// mayAsk says why a body is not to be asked for, nil if it may be, for which room is
// claimed then.
func (s *Server) mayAsk(x *exchange) error {
	if err := x.head.inspectable(); err != nil {
		return err
	}
	length := x.head.length()
	if length > x.table.bodyLimit {
		return errTooLong
	}
	var ok bool
	if x.claim, ok = s.bodies.ask(x.table.cost(&x.head, length), time.Now()); !ok {
		return errBusy
	}
	return nil
}

// letGo gives back the room for a body that is needed no more.
func (s *Server) letGo(x *exchange) {
	if x.claim != (claim{}) {
		s.bodies.release(x.claim, time.Now())
		x.claim = claim{}
	}
}

func (s *Server) onBody(ctx context.Context, x *exchange, body []byte) any {
	if len(body) == 0 && x.head.asks() {
		x.head.bodyless = true
		if x.table.need(&x.head) == nothing {
			return onRequestBody(s.wave(x))
		}
		return onRequestBody(s.settle(x, facts{}, nil))
	}
	var ok bool
	if x.claim, ok = s.bodies.receive(x.claim, x.table.cost(&x.head, int64(len(body))), time.Now()); !ok {
		return onRequestBody(s.settle(x, facts{}, errBusy))
	}
	x.body = body
	f, err := x.table.read(ctx, &x.head, body)
	if errors.Is(err, errGone) {
		return nil
	}
	return onRequestBody(s.settle(x, f, err))
}

// wave lets a request through that needs no decision.
func (s *Server) wave(x *exchange) reply {
	*x = exchange{phase: settled, claim: x.claim}
	s.counters.PassedThrough.Add(1)
	return pass()
}

// settle decides, counts the decision and words it. What the exchange holds is
// let go of: a stream may stay open for minutes after.
func (s *Server) settle(x *exchange, f facts, err error) reply {
	if f.previous != 0 {
		f.followed = s.answers.find(f.previous, s.ledger.clock.Load())
	}
	d := x.table.decide(&x.head, f, err, rand.Uint64())
	s.counters.count(&d, err)
	if d.class != nil {
		x.table.keys[d.key.source].Inc()
		back := d.cameBack()
		if back {
			s.counters.CameBack.Add(1)
		}
		d.class.tally.arrive(&d, back || x.head.clientRetry())
		x.table.remember(&d)
	}
	body, saysLength := x.body, x.head.length() >= 0
	*x = exchange{phase: settled, claim: x.claim}
	if d.refusal != nil {
		return refuse(d.refusal).telling(d.told)
	}
	if d.key.source != 0 {
		s.moves.note(d.class.id, d.key.hash)
	}
	x.tally, x.pick = d.class.tally, d.choice.first().live
	x.tally.open.Add(1)
	x.pick.open.Add(1)
	if d.as != "" {
		s.counters.Aliased.Add(1)
		return admit(&d).withBody(splice(body, f.at, d.as), saysLength)
	}
	return admit(&d)
}

func (s *Server) leave(x *exchange) {
	s.letGo(x)
	if x.phase != settled {
		s.counters.Undecided.Add(1)
	}
	if x.pick != nil {
		x.tally.open.Add(-1)
		x.pick.open.Add(-1)
	}
}

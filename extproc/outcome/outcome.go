// Package outcome learns what became of requests, as users see it, from the access
// log that Envoy writes to weir-extproc: time to first token and between tokens,
// failures, and tokens, for each class, pool and engine.
//
// The log may lose entries, or never come: nothing but statistics rests on it, with one
// exception: who made a response of OpenAI's Responses API, which is a hint.
package outcome

import (
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weir/extproc/penalty"
	"weir/fleet"
)

// DefaultSlowAfter is how long a first token may take.
const DefaultSlowAfter = 30 * time.Second

const maxTokens = 1e9 // of one request

// Recorder receives the access log and sums it up.
type Recorder struct {
	Counters Counters
	OnAnswer func(Answer) // is told of responses that may be followed, as they end; nil: nobody is; set before the first entry

	slowAfter time.Duration
	log       *zap.Logger // of penalties
	places    atomic.Pointer[places]
	metrics   metrics

	mu      sync.Mutex // guards what follows: Envoy's workers each have a stream
	open    open
	sum     sum
	book    *penalty.Book
	applied map[fleet.EngineID]float64 // by the last judgement
}

// Answer is a response of OpenAI's Responses API, which the engine that made it keeps.
type Answer struct {
	ID     string
	Engine fleet.EngineID
	Key    uint64 // the affinity key of its request
}

// Counters count what the recorder did. Any goroutine may read them.
type Counters struct {
	Entries   atomic.Uint64 // of the log
	Elsewhere atomic.Uint64 // those that say nothing of an engine
	Unknown   atomic.Uint64 // those of an engine that the class does not have: it left, or is yet to come
	Untracked atomic.Uint64 // attempts that lasted, of which too many were under way: they count at their end alone
	Forgotten atomic.Uint64 // attempts that lasted, whose end was never heard of
}

// New returns a recorder that takes an attempt for slow whose first byte takes
// longer than slowAfter. Penalties are logged as they begin and end.
func New(slowAfter time.Duration, log *zap.Logger) *Recorder {
	return &Recorder{slowAfter: slowAfter, log: log, metrics: newMetrics(), open: open{}, sum: newSum(), book: penalty.NewBook()}
}

// service is Envoy's AccessLogService, whose messages read themselves: the server must
// have [wire.Codec].
var service = grpc.ServiceDesc{
	ServiceName: accesslogv3.AccessLogService_ServiceDesc.ServiceName,
	HandlerType: (*interface {
		StreamAccessLogs(grpc.ServerStream) error
	})(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "StreamAccessLogs",
		Handler:       func(r any, stream grpc.ServerStream) error { return r.(*Recorder).StreamAccessLogs(stream) },
		ClientStreams: true,
	}},
}

// Register adds the access log service to a gRPC server.
func (r *Recorder) Register(s grpc.ServiceRegistrar) {
	s.RegisterService(&service, r)
}

// Swap makes v the view by which entries are believed: what they say of classes and
// engines that a view does not have is not counted.
func (r *Recorder) Swap(v *fleet.View) {
	known := newPlaces(v)
	r.places.Store(known)
	r.mu.Lock()
	defer r.mu.Unlock()
	pools := serving(v)
	r.book.Set(time.Now(), pools)
	r.metrics.adopt(pools)
	for id := range r.sum.classes {
		if _, ok := (*known)[id]; !ok {
			delete(r.sum.classes, id)
			r.metrics.forget(id)
		}
	}
}

// StreamAccessLogs takes one worker's log.
func (r *Recorder) StreamAccessLogs(stream grpc.ServerStream) error {
	var b batch
	for {
		err := stream.RecvMsg(&b)
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
			return nil
		}
		if err != nil {
			return err
		}
		r.receive(&b, time.Now())
	}
}

func (r *Recorder) receive(b *batch, now time.Time) {
	known := r.places.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range b.entries {
		r.Counters.Entries.Add(1)
		e := &b.entries[i]
		if e.moment == elsewhere {
			r.Counters.Elsewhere.Add(1)
			continue
		}
		p, ok := known.find(e.class, e.engine)
		switch {
		case !ok:
			r.Counters.Unknown.Add(1)
		case e.response != "":
			r.answered(e)
		default:
			r.count(e, p, now)
		}
	}
}

// answered tells of a response. The other log counts it.
func (r *Recorder) answered(e *entry) {
	if e.status/100 == 2 && e.affinity != 0 && r.OnAnswer != nil {
		r.OnAnswer(Answer{e.response, e.engine, e.affinity})
	}
}

func (r *Recorder) count(e *entry, p place, now time.Time) {
	switch e.moment {
	case during:
		r.goesOn(e, p, now)
	case attemptOver:
		r.attemptOver(e, p)
	case requestOver:
		r.requestOver(e, p)
	}
}

// goesOn notes of an attempt that lasts its first token as soon as it is there, and
// that it is slow as soon as its time is up.
func (r *Recorder) goesOn(e *entry, p place, now time.Time) {
	a := r.open.at(e, now)
	if a == nil {
		r.Counters.Untracked.Add(1)
		return
	}
	r.watched(e, p, &a.watch, now)
	switch age := now.Sub(e.began); {
	case a.judged:
	case e.first.known:
		a.judged = e.stream
		r.firstByte(e, p, &a.watch)
	case age > r.patience(e):
		a.judged, a.slow = true, true
		r.outcome(e, p, fleet.Slow, &a.watch)
		r.ttft(p, age.Seconds())
	}
}

// patience is how long the first byte of an answer may take. An answer without
// headers yet may be one in one piece, which comes late where such are long.
func (r *Recorder) patience(e *entry) time.Duration {
	if e.status == 0 {
		return max(r.slowAfter, time.Duration(2*r.sum.class(e.class).longestWhole*float64(time.Second)))
	}
	return r.slowAfter
}

func (r *Recorder) attemptOver(e *entry, p place) {
	a := r.open.end(e, byAttempt)
	if !a.judged {
		r.firstByte(e, p, &a.watch)
	}
	if o, known := e.outcome(); known && !a.slow {
		r.outcome(e, p, o, &a.watch)
	}
}

// firstByte counts the first byte of a good answer.
func (r *Recorder) firstByte(e *entry, p place, w *watch) {
	switch {
	case !e.first.known || e.status/100 != 2:
	case e.stream:
		r.book.Begins(p.engine)
		r.ttft(p, e.first.value)
		r.took(e, p, penalty.FirstToken, w)
	case e.decode.known:
		r.book.Begins(p.engine)
		r.took(e, p, penalty.Whole, w)
		r.sum.engine(p).Whole++
		c := r.sum.class(e.class)
		c.longestWhole = max(c.longestWhole, e.first.value)
	}
}

// took tells the penalties how long a first byte took. If it was late, they know that.
func (r *Recorder) took(e *entry, p place, k penalty.Kind, w *watch) {
	switch {
	case !w.late:
		r.book.Time(p.engine, k, e.began, e.first.value)
	case !w.known:
		r.book.Took(p.engine, k, e.first.value)
	}
}

func (r *Recorder) requestOver(e *entry, p place) {
	a := r.open.end(e, byRequest)
	if o, known := e.unfinished(); known && !a.slow {
		r.outcome(e, p, o, &a.watch)
	}
	if e.status/100 == 2 && e.decode.known && !e.lost && !e.left {
		r.tokens(e, p, a.watch.paced)
	}
}

// tokens counts the tokens of a whole answer, and from those of a stream the mean
// time between two. If its pace was seen, the penalties know.
func (r *Recorder) tokens(e *entry, p place, paced bool) {
	c := r.sum.class(e.class)
	u := c.usage(e)
	c.tokens.Requests++
	if u.estimated {
		c.tokens.Estimated++
	}
	c.tokens.Prompt += u.prompt
	c.tokens.Output += u.output
	c.tokens.Cached += e.cached.value
	r.metrics.tokens(e.class, u)
	r.metrics.cache(e, p)
	if e.stream && u.believable && u.output >= 2 {
		gap := e.decode.value / (u.output - 1)
		r.tbt(p, gap)
		if !paced {
			r.book.Time(p.engine, penalty.Gap, e.began, gap)
		}
	}
}

func (r *Recorder) outcome(e *entry, p place, o fleet.Outcome, w *watch) {
	r.sum.engine(p).Outcomes[o]++
	if o != fleet.Answered || !w.lasts {
		r.book.Outcome(p.engine, e.began, o)
	}
	r.metrics.outcomes.WithLabelValues(string(p.class), string(p.pool), o.String()).Inc()
}

func (r *Recorder) ttft(p place, seconds float64) {
	r.sum.engine(p).TTFT.Observe(seconds)
	r.metrics.ttft.WithLabelValues(string(p.class), string(p.pool)).Observe(seconds)
}

func (r *Recorder) tbt(p place, seconds float64) {
	seconds = math.Max(seconds, 0)
	r.sum.engine(p).TBT.Observe(seconds)
	r.metrics.tbt.WithLabelValues(string(p.class), string(p.pool)).Observe(seconds)
}

// Take returns what was counted since it was last called, by class, and begins
// anew. Attempts whose end was lost are forgotten.
func (r *Recorder) Take() []fleet.ClassLoad { return r.takeAt(time.Now()) }

func (r *Recorder) takeAt(now time.Time) []fleet.ClassLoad {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Counters.Forgotten.Add(r.open.forget(now))
	return r.sum.take()
}

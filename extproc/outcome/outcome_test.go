package outcome

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"weir/envoy"
	"weir/fleet"
)

const limit = 10 * time.Second

type lines = []*logv3.HTTPAccessLogEntry

func view() *fleet.View {
	return &fleet.View{Classes: []fleet.ViewClass{{ID: "chat", Pools: []fleet.ViewPool{
		{ID: "a", Engines: []fleet.ViewEngine{{ID: "10.0.0.1:80"}, {ID: "10.0.0.2:80"}}},
		{ID: "b", Engines: []fleet.ViewEngine{{ID: "10.0.1.1:80"}}},
	}}}}
}

func recorder() *Recorder {
	r := New(limit, zap.NewNop())
	r.Swap(view())
	return r
}

// one returns the only engine of a report.
func one(t *testing.T, loads []fleet.ClassLoad) fleet.EngineLoad {
	t.Helper()
	if len(loads) != 1 || len(loads[0].Pools) != 1 || len(loads[0].Pools[0].Engines) != 1 {
		t.Fatalf("report %+v, want one engine", loads)
	}
	return loads[0].Pools[0].Engines[0]
}

// Answers that may be followed are told with their engine, and not counted: the
// other log counts them.
func TestAnswers(t *testing.T) {
	answer := func(more ...func(*logv3.HTTPAccessLogEntry)) *logv3.HTTPAccessLogEntry {
		tags := func(e *logv3.HTTPAccessLogEntry) {
			e.CommonProperties.CustomTags = map[string]string{envoy.TagResponse: "resp_1", envoy.TagKey: "00000000000000ff"}
		}
		return line(requestEnd, append([]func(*logv3.HTTPAccessLogEntry){streamed, tags}, more...)...)
	}
	tests := []struct {
		name string
		line *logv3.HTTPAccessLogEntry
		told bool
	}{
		{"an answer", answer(), true},
		{"an error", answer(code(500)), false},
		{"of another's engine", answer(func(e *logv3.HTTPAccessLogEntry) { e.CommonProperties.UpstreamCluster = "other" }), false},
		{"of an engine that is gone", answer(func(e *logv3.HTTPAccessLogEntry) { e.CommonProperties.UpstreamRemoteAddress = socket("10.0.0.9", 80) }), false},
		{"to a request without a key", answer(func(e *logv3.HTTPAccessLogEntry) { e.CommonProperties.CustomTags[envoy.TagKey] = "-" }), false},
		{"of the other log", line(requestEnd, streamed, first(time.Second), decoded(time.Second)), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := recorder()
			var got []Answer
			r.OnAnswer = func(a Answer) { got = append(got, a) }
			r.receive(message(tt.line), noon)
			if want := []Answer{{"resp_1", "10.0.0.1:80", 0xff}}; tt.told != (len(got) > 0) || tt.told && got[0] != want[0] {
				t.Errorf("told %v, want %v: %v", got, tt.told, want)
			}
			if loads := r.takeAt(noon); tt.told && len(loads) > 0 {
				t.Errorf("counted %v", loads)
			}
		})
	}
}

// The entries are as a real Envoy writes them, in its order: that of an attempt
// comes before that of its request, save where the client leaves.
func TestOutcomes(t *testing.T) {
	tests := []struct {
		name  string
		lines lines
		want  fleet.Outcome
		ttft  bool
	}{
		{"a stream", lines{
			line(attemptEnd, streamed, first(time.Second), decoded(time.Second)),
			line(requestEnd, streamed, first(time.Second), decoded(time.Second)),
		}, fleet.Answered, true},
		{"an answer in one piece", lines{
			line(attemptEnd, whole, first(time.Second), decoded(time.Microsecond)),
			line(requestEnd, whole, first(time.Second), decoded(time.Microsecond)),
		}, fleet.Answered, false},
		{"a bad request", lines{line(attemptEnd, code(400), first(1), decoded(1)), line(requestEnd, code(400), first(1), decoded(1))}, fleet.ClientError, false},
		{"too many requests", lines{line(attemptEnd, code(429), first(1), decoded(1))}, fleet.Busy, false},
		{"unavailable, and retried at once", lines{line(attemptEnd, code(503))}, fleet.Busy, false},
		{"an error", lines{line(attemptEnd, code(500), first(1), decoded(1))}, fleet.ServerError, false},
		{"an error that is a stream", lines{line(attemptEnd, streamed, code(502), first(1), decoded(1))}, fleet.ServerError, false},
		{"nobody there", lines{line(attemptEnd, connectFailure), line(requestEnd, code(503), connectFailure)}, fleet.Refused, false},
		{"lost before an answer", lines{line(attemptEnd, connectionLost), line(requestEnd, code(503), connectionLost)}, fleet.Reset, false},
		{"cut", lines{
			line(attemptEnd, streamed, protocolError, first(time.Second)),
			line(requestEnd, streamed, protocolError, first(time.Second)),
		}, fleet.Truncated, true},
		{"cut after the headers", lines{line(attemptEnd, streamed, connectionLost)}, fleet.Truncated, false},
		{"the client leaves a stream", lines{
			line(requestEnd, streamed, clientLeft, first(time.Second)),
			line(attemptEnd, streamed, first(time.Second)),
		}, fleet.Aborted, true},
		{"the client leaves before an answer", lines{line(requestEnd, clientLeft), line(attemptEnd)}, fleet.Aborted, false},
		{"the client cancels", lines{line(requestEnd, http2Cancel), line(attemptEnd)}, fleet.Aborted, false},
		{"the idle limit ends silence", lines{line(attemptEnd), line(requestEnd, wentSilent)}, fleet.Slow, false},
		{"the idle limit ends a stream that stalls", lines{
			line(attemptEnd, streamed, first(time.Second)), line(requestEnd, streamed, wentSilent, first(time.Second)),
		}, fleet.Truncated, true},
		{"the client leaves when the engine is done", lines{
			line(attemptEnd, streamed, first(time.Second), decoded(time.Second)),
			line(requestEnd, streamed, clientLeft, first(time.Second), decoded(time.Second)),
		}, fleet.Answered, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := recorder()
			r.receive(message(tt.lines...), noon)
			got := one(t, r.takeAt(noon))
			var want fleet.Outcomes
			want[tt.want] = 1
			if got.Outcomes != want {
				t.Errorf("outcomes %v, want one %s", got.Outcomes, tt.want)
			}
			if got.Engine != "10.0.0.1:80" || (got.TTFT.Count() == 1) != tt.ttft {
				t.Errorf("engine %q, TTFT %+v, want one: %v", got.Engine, got.TTFT, tt.ttft)
			}
			if more := r.takeAt(noon); len(more) != 0 {
				t.Errorf("taken twice: %+v", more)
			}
		})
	}
}

func TestEachAttemptIsItsEngines(t *testing.T) {
	r := recorder()
	r.receive(message(
		line(attemptEnd, code(503)),
		line(attemptEnd, at("10.0.1.1"), began(time.Second), streamed, first(300*time.Millisecond), decoded(2*time.Second)),
		line(requestEnd, at("10.0.1.1"), streamed, first(300*time.Millisecond), decoded(2*time.Second),
			says(map[string]any{"prompt": 100, "output": 21, "cached": 64}), bytes(400, 5000)),
	), noon)
	got := r.takeAt(noon)
	want := []fleet.ClassLoad{{
		Class:  "chat",
		Tokens: fleet.TokenLoad{Requests: 1, Prompt: 100, Output: 21, Cached: 64},
		Pools: []fleet.PoolLoad{
			{Pool: "a", Engines: []fleet.EngineLoad{{Engine: "10.0.0.1:80", Outcomes: fleet.Outcomes{fleet.Busy: 1}}}},
			{Pool: "b", Engines: []fleet.EngineLoad{{
				Engine: "10.0.1.1:80", Outcomes: fleet.Outcomes{fleet.Answered: 1}, TTFT: bucketsOf(0.3), TBT: bucketsOf(0.1),
			}}},
		},
	}}
	if diff := cmp.Diff(got, want, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Errorf("report (-got +want):\n%s", diff)
	}
}

func bucketsOf(seconds ...float64) (b fleet.Buckets) {
	for _, s := range seconds {
		b.Observe(s)
	}
	return b
}

// What lasts is known while it does, and not counted again at its end.
func TestAttemptsThatLast(t *testing.T) {
	after := func(d time.Duration) time.Time { return noon.Add(d) }
	t.Run("a long stream", func(t *testing.T) {
		r := recorder()
		r.receive(message(line(whileItLasts, streamed)), after(time.Second))
		if got := r.takeAt(noon); len(got) != 0 {
			t.Errorf("before the first byte: %+v", got)
		}
		for i := range 3 {
			r.receive(message(line(whileItLasts, streamed, first(1500*time.Millisecond))), after(time.Duration(2+i)*time.Second))
		}
		if got := one(t, r.takeAt(noon)); got.TTFT.Count() != 1 || got.TTFT.Sum != 1.5 || got.Outcomes != (fleet.Outcomes{}) {
			t.Errorf("while it lasts: %+v", got)
		}
		done := []func(*logv3.HTTPAccessLogEntry){streamed, first(1500 * time.Millisecond), decoded(3 * time.Second)}
		r.receive(message(line(attemptEnd, done...), line(requestEnd, done...)), after(5*time.Second))
		if got := one(t, r.takeAt(noon)); got.TTFT.Count() != 0 || got.Outcomes != (fleet.Outcomes{fleet.Answered: 1}) {
			t.Errorf("at its end: %+v", got)
		}
		nothingOpen(t, r)
	})
	slow := func(kind string, e ...func(*logv3.HTTPAccessLogEntry)) {
		t.Run(kind, func(t *testing.T) {
			r := recorder()
			r.receive(message(line(whileItLasts, e...)), after(limit))
			if got := r.takeAt(noon); len(got) != 0 {
				t.Errorf("within the limit: %+v", got)
			}
			r.receive(message(line(whileItLasts, e...)), after(limit+time.Second))
			got := one(t, r.takeAt(noon))
			if got.Outcomes != (fleet.Outcomes{fleet.Slow: 1}) || got.TTFT.Count() != 1 || got.TTFT.Sum != 11 {
				t.Errorf("beyond the limit: %+v", got)
			}
			r.receive(message(line(whileItLasts, e...)), after(limit+2*time.Second))
			r.receive(message(line(requestEnd, append(e, clientLeft)...), line(attemptEnd, e...)), after(limit+3*time.Second))
			if got := r.takeAt(noon); len(got) != 0 {
				t.Errorf("counted again: %+v", got)
			}
			nothingOpen(t, r)
		})
	}
	slow("hung, with headers", streamed)
	slow("hung, without headers")
	t.Run("slow, but answered", func(t *testing.T) {
		r := recorder()
		r.receive(message(line(whileItLasts)), after(limit+time.Second))
		late := []func(*logv3.HTTPAccessLogEntry){streamed, first(15 * time.Second), decoded(time.Second), says(map[string]any{"prompt": 1, "output": 11})}
		r.receive(message(line(attemptEnd, late...), line(requestEnd, late...)), after(20*time.Second))
		got := r.takeAt(noon)
		e := one(t, got)
		if e.Outcomes != (fleet.Outcomes{fleet.Slow: 1}) || e.TTFT.Count() != 1 {
			t.Errorf("an attempt is not one: %+v", e)
		}
		if e.TBT.Count() != 1 || got[0].Tokens.Requests != 1 {
			t.Errorf("its answer is lost: %+v", got)
		}
	})
	t.Run("a retry of a slow attempt", func(t *testing.T) {
		r := recorder()
		r.receive(message(line(whileItLasts), line(attemptEnd, connectionLost)), after(limit+time.Second))
		r.receive(message(line(whileItLasts, began(12*time.Second))), after(13*time.Second))
		if got := one(t, r.takeAt(noon)); got.Outcomes != (fleet.Outcomes{fleet.Slow: 1}) {
			t.Errorf("two attempts, the second young: %+v", got)
		}
		r.receive(message(line(attemptEnd, began(12*time.Second), streamed, first(time.Second), decoded(1)), line(requestEnd, streamed, first(time.Second), decoded(1))), after(14*time.Second))
		if got := one(t, r.takeAt(noon)); got.Outcomes != (fleet.Outcomes{fleet.Answered: 1}) || got.TTFT.Count() != 1 {
			t.Errorf("the second: %+v", got)
		}
	})
}

func nothingOpen(t *testing.T, r *Recorder) {
	t.Helper()
	if len(r.open) != 0 {
		t.Errorf("%d attempts are kept", len(r.open))
	}
}

// Where answers in one piece take long, one without headers yet is no sign of a
// hung engine.
func TestPatienceWithWholeAnswers(t *testing.T) {
	r := recorder()
	r.receive(message(line(attemptEnd, request("r0"), whole, first(40*time.Second), decoded(1))), noon)
	r.receive(message(line(whileItLasts)), noon.Add(70*time.Second))
	if got := one(t, r.takeAt(noon)); got.Outcomes[fleet.Slow] != 0 || got.Whole != 1 {
		t.Errorf("an answer that may be a long one: %+v", got)
	}
	r.receive(message(line(whileItLasts, streamed, request("r2"))), noon.Add(20*time.Second))
	r.receive(message(line(whileItLasts)), noon.Add(90*time.Second))
	if got := one(t, r.takeAt(noon)); got.Outcomes[fleet.Slow] != 2 {
		t.Errorf("a stream's headers without a token, and an answer twice as late as any: %+v", got)
	}
}

func TestTokensWithoutUsageAreEstimated(t *testing.T) {
	r := recorder()
	done := func(more ...func(*logv3.HTTPAccessLogEntry)) *logv3.HTTPAccessLogEntry {
		return line(requestEnd, append([]func(*logv3.HTTPAccessLogEntry){streamed, first(1), decoded(2 * time.Second)}, more...)...)
	}
	r.receive(message(done(bytes(400, 2500))), noon)
	got := r.takeAt(noon)[0]
	if got.Tokens.Estimated != 1 || got.Tokens.Prompt != 100 || got.Tokens.Output != 10 || len(got.Pools) != 0 {
		t.Errorf("with nothing learned: %+v, want a guess, and no TBT of it", got)
	}
	for range 200 {
		r.receive(message(done(bytes(1000, 20_000), says(map[string]any{"prompt": 200, "output": 100}))), noon)
	}
	r.takeAt(noon)
	r.receive(message(done(bytes(500, 4000))), noon)
	got = r.takeAt(noon)[0]
	want := fleet.TokenLoad{Requests: 1, Estimated: 1, Prompt: 100, Output: 20}
	if diff := cmp.Diff(got.Tokens, want, cmpopts.EquateApprox(0.1, 0)); diff != "" {
		t.Errorf("tokens as learned (-got +want):\n%s", diff)
	}
	if tbt := got.Pools[0].Engines[0].TBT; tbt.Count() != 1 || tbt.Sum < 0.09 || tbt.Sum > 0.12 {
		t.Errorf("TBT %+v, want about 2 s over 19", tbt)
	}
}

func TestWhatIsNotCounted(t *testing.T) {
	r := New(limit, zap.NewNop())
	answered := line(attemptEnd, streamed, first(1), decoded(1))
	r.receive(message(answered), noon)
	if got := r.Counters.Unknown.Load(); got != 1 {
		t.Errorf("%d unknown before there is a view, want 1", got)
	}
	r.Swap(view())
	other := line(attemptEnd, streamed, first(1), decoded(1))
	other.CommonProperties.UpstreamCluster = "weir_ext_proc"
	direct := line(requestEnd, code(200))
	direct.CommonProperties.UpstreamRemoteAddress = nil
	r.receive(message(line(attemptEnd, at("10.9.9.9"), code(500)), other, direct, line(logv3.AccessLogType_NotSet)), noon)
	if got := r.takeAt(noon); len(got) != 0 {
		t.Errorf("counted %+v", got)
	}
	if unknown, elsewhere := r.Counters.Unknown.Load(), r.Counters.Elsewhere.Load(); unknown != 3 || elsewhere != 2 {
		t.Errorf("%d unknown, %d elsewhere; want 3 and 2", unknown, elsewhere)
	}
	r.receive(message(line(requestEnd, streamed, first(1), decoded(1), bytes(1, 1))), noon)
	r.Swap(&fleet.View{})
	if got := r.takeAt(noon); len(got) != 0 {
		t.Errorf("a class that is no more: %+v", got)
	}
}

func TestLostEndsAreForgotten(t *testing.T) {
	o := open{}
	for i := range maxOpen {
		o.at(&entry{key: key{id: uint64(i)}, began: noon}, noon)
	}
	if o.at(&entry{key: key{id: maxOpen}}, noon) != nil || len(o) > maxOpen {
		t.Errorf("%d attempts are open, at most %d", len(o), maxOpen)
	}
	kept := len(o)
	if got := o.forget(noon.Add(silence)); got != 0 {
		t.Errorf("%d forgotten too early", got)
	}
	if got := o.forget(noon.Add(silence + 1)); got != uint64(kept) || len(o) != 0 {
		t.Errorf("%d forgotten, %d left; want %d and none", got, len(o), kept)
	}
}

// A log is read as protobuf reads it, and nothing that it may hold is counted as what
// cannot be.
func FuzzReceive(f *testing.F) {
	seed, err := proto.Marshal(logged(
		line(whileItLasts, streamed, first(1)),
		line(attemptEnd, streamed, first(1), decoded(1)),
		line(requestEnd, streamed, first(1), decoded(1), says(map[string]any{"prompt": 1, "output": 3, "cached": -1}), bytes(1, 0)),
		line(requestEnd, whole, clientLeft, bytes(0, 1<<63)),
	))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, text []byte) {
		var m accesslogv3.StreamAccessLogsMessage
		err := new(batch).Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)})
		if proto.Unmarshal(text, &m) != nil {
			return // more may be read than protobuf does, but it must end
		}
		if err != nil {
			t.Fatalf("%v: protobuf takes it", err)
		}
		b, err := received(&m) // Envoy says nothing twice, which protobuf would merge
		if err != nil {
			t.Fatal(err)
		}
		sameAsOracle(t, b, &m)
		r := recorder()
		r.receive(b, noon.Add(time.Minute))
		n := uint64(len(m.GetHttpLogs().GetLogEntry()))
		for _, c := range r.takeAt(noon) {
			if k := c.Tokens; !(k.Prompt >= 0 && k.Output >= 0 && k.Cached >= 0) || k.Estimated > k.Requests || k.Requests > n {
				t.Errorf("tokens %+v of %d entries", k, n)
			}
			for _, p := range c.Pools {
				for _, e := range p.Engines {
					if err := e.TTFT.Check(); err != nil {
						t.Errorf("TTFT: %v", err)
					}
					if err := e.TBT.Check(); err != nil {
						t.Errorf("TBT: %v", err)
					}
				}
			}
		}
	})
}

// Turns that found their conversation in a cache are told from those that did not, by
// what answers say of themselves; those that say nothing are in neither.
func TestFirstTokensByCache(t *testing.T) {
	answer := func(after time.Duration, usage map[string]any, more ...func(*logv3.HTTPAccessLogEntry)) *logv3.HTTPAccessLogEntry {
		return line(requestEnd, append([]func(*logv3.HTTPAccessLogEntry){streamed, first(after), decoded(time.Second), says(usage)}, more...)...)
	}
	r := recorder()
	r.receive(message(
		answer(4*time.Second, map[string]any{"prompt": 1000, "output": 5, "cached": 0}),
		answer(3*time.Second, map[string]any{"prompt": 1000, "output": 5, "cached": 499}),
		answer(2*time.Second, map[string]any{"prompt": 1000, "output": 5, "cached": 500}),
		answer(time.Second, map[string]any{"prompt": 1000, "output": 5, "cached": 999}, at("10.0.0.2")),
		answer(time.Second, map[string]any{"uncached": 10, "output": 5, "cached": 990, "created": 5}, at("10.0.1.1")), // Anthropic's
		answer(9*time.Second, map[string]any{"prompt": 1000, "output": 5}),
		answer(9*time.Second, map[string]any{"prompt": 1000, "output": 5, "cached": 7}, clientLeft),
		answer(9*time.Second, map[string]any{"prompt": 1000, "output": 5, "cached": 7}, code(500)),
		line(attemptEnd, streamed, first(9*time.Second), decoded(time.Second)),
		line(requestEnd, whole, first(9*time.Second), decoded(1), bytes(400, 400)),
	), noon)
	for _, want := range []string{
		`_seconds_count{cache="miss",class="chat",pool="a"} 2`, `_seconds_sum{cache="miss",class="chat",pool="a"} 7`,
		`_seconds_count{cache="hit",class="chat",pool="a"} 2`, `_seconds_sum{cache="hit",class="chat",pool="a"} 3`,
		`_seconds_count{cache="hit",class="chat",pool="b"} 1`,
	} {
		if got := collected(t, r.metrics.byCache); !strings.Contains(got, want+"\n") {
			t.Errorf("no line ending in %s in\n%s", want, got)
		}
	}
	if got := testutil.ToFloat64(r.metrics.cached); got != 0+499+500+999+990 {
		t.Errorf("%v cached tokens, want those of whole answers", got)
	}
	r.Swap(&fleet.View{})
	if got := collected(t, r.metrics.byCache) + collected(t, r.metrics.cached); got != "" {
		t.Errorf("of a class that is no more there is left:\n%s", got)
	}
}

func collected(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	page := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/", nil))
	return page.Body.String()
}

package outcome

import (
	"fmt"
	"testing"
	"time"

	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"weir/extproc/penalty"
	"weir/fleet"
)

// sofar is of an entry of an attempt that lasts: Envoy tells from the engine's side, so
// that what it has answered is what was asked of Envoy.
func sofar(bytes uint64) func(*logv3.HTTPAccessLogEntry) {
	return func(e *logv3.HTTPAccessLogEntry) {
		e.Request.RequestBodyBytes = bytes
	}
}

// numbered gives an entry the request ID of an engine's so many-th.
func numbered(engine string, n int) func(*logv3.HTTPAccessLogEntry) {
	return request(fmt.Sprint(engine, "-", n))
}

func later(d time.Duration) time.Time { return noon.Add(d) }

const well, sick = "10.0.0.1", "10.0.0.2"

// penalties are those after a minute of requests to both engines of a pool; then, a
// second apart, comes one of each to both of what is told, by engine.
func penalties(t *testing.T, calm, then func(engine string, n int) lines) []fleet.Penalty {
	t.Helper()
	r := recorder()
	if _, changed := r.judge(later(0), nil); changed {
		t.Fatal("a penalty for nothing")
	}
	all := func(of func(string, int) lines, from, to int) {
		for n := from; n < to; n++ {
			for _, e := range []string{well, sick} {
				for _, l := range of(e, n) {
					r.receive(message(l), later(time.Duration(n)*time.Second))
				}
			}
			r.judge(later(time.Duration(n)*time.Second+250*time.Millisecond), nil)
		}
	}
	all(calm, 0, 30)
	if got := r.Penalties(); got != nil {
		t.Fatalf("penalties while all is well: %+v", got)
	}
	all(then, 30, 37)
	return r.Penalties()
}

func TestPenaltiesOfTheLog(t *testing.T) {
	t.Parallel()
	fine := func(e string, n int) lines {
		return lines{line(attemptEnd, at(e), began(time.Duration(n)*time.Second), streamed, first(100*time.Millisecond), decoded(300*time.Millisecond), numbered(e, n))}
	}
	tests := []struct {
		name string
		sick func(n int) lines // what is told of the sick engine in that second
		want fleet.Fault       // empty: no penalty
	}{
		{"it fails", func(n int) lines {
			return lines{line(attemptEnd, at(sick), began(time.Duration(n)*time.Second), code(500), numbered(sick, n))}
		}, "server_error"},
		{"nobody listens", func(n int) lines {
			return lines{line(attemptEnd, at(sick), began(time.Duration(n)*time.Second), connectFailure, numbered(sick, n))}
		}, "refused"},
		{"it is busy", func(n int) lines {
			return lines{line(attemptEnd, at(sick), began(time.Duration(n)*time.Second), code(503), numbered(sick, n))}
		}, ""},
		{"clients err", func(n int) lines {
			return lines{line(attemptEnd, at(sick), began(time.Duration(n)*time.Second), code(400), numbered(sick, n))}
		}, ""},
		{"first tokens are late", func(n int) lines {
			return lines{line(attemptEnd, at(sick), began(time.Duration(n)*time.Second), streamed, first(time.Second), decoded(3*time.Second), numbered(sick, n))}
		}, fleet.FaultFirstTokens},
		{"first tokens never come, headers do", func(n int) lines {
			return lines{line(whileItLasts, at(sick), began(time.Duration(n-1)*time.Second), streamed, numbered(sick, n))}
		}, fleet.FaultFirstTokens},
		{"not even headers come", func(n int) lines {
			return lines{line(whileItLasts, at(sick), began(time.Duration(n-1)*time.Second), code(0), numbered(sick, n))}
		}, fleet.FaultFirstTokens},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := penalties(t, fine, func(e string, n int) lines {
				if e == sick {
					return tt.sick(n)
				}
				return fine(e, n)
			})
			switch {
			case tt.want == "" && got != nil:
				t.Errorf("penalties %+v, want none", got)
			case tt.want != "" && (len(got) != 1 || got[0].Engine != sick+":80" || got[0].Fault != tt.want || got[0].Value > 0.2):
				t.Errorf("penalties %+v, want one for %q", got, tt.want)
			}
		})
	}
}

// Operators read in the log who is penalised, for what, and when that has ended.
func TestPenaltiesAreLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := recorder()
	r.log = zap.New(core)
	told := func(n int, outcome func(*logv3.HTTPAccessLogEntry)) []observer.LoggedEntry {
		passed := time.Duration(n) * time.Second
		for _, e := range []string{well, sick} {
			of := streamed
			if e == sick {
				of = outcome
			}
			r.receive(message(line(attemptEnd, at(e), began(passed), of, first(100*time.Millisecond), decoded(300*time.Millisecond), numbered(e, n))), later(passed))
		}
		r.judge(later(passed+250*time.Millisecond), nil)
		return logs.TakeAll()
	}
	n := 0
	next := func(outcome func(*logv3.HTTPAccessLogEntry)) observer.LoggedEntry {
		for end := n + 60; n < end; n++ {
			if got := told(n, outcome); len(got) > 0 {
				return got[0]
			}
		}
		t.Fatal("nothing is logged in a minute")
		return observer.LoggedEntry{}
	}
	begins, ends := next(code(500)), next(streamed)
	fields := begins.ContextMap()
	if begins.Level != zap.WarnLevel || fields["engine"] != sick+":80" || fields["pool"] != "a" || fields["for"] != "server_error" {
		t.Errorf("%v: %q %v", begins.Level, begins.Message, fields)
	}
	if ends.Level != zap.InfoLevel || ends.ContextMap()["engine"] != sick+":80" || r.Penalties() != nil {
		t.Errorf("%v: %q %v with penalties %v", ends.Level, ends.Message, ends.ContextMap(), r.Penalties())
	}
}

// An engine at which requests wait is not penalised for late first tokens while the log has
// it begin as many answers as its peer, as streams or in one piece.
func TestPenaltiesOfBusyEngines(t *testing.T) {
	t.Parallel()
	for form, shape := range map[string]func(*logv3.HTTPAccessLogEntry){"a stream": streamed, "one piece": whole} {
		for _, queued := range []bool{false, true} {
			r := recorder()
			for n := range 80 {
				passed, slow := time.Duration(n)*time.Second/2, n >= 60
				for _, e := range []string{well, sick} {
					took := 200 * time.Millisecond
					if e == sick && slow {
						took = time.Second
					}
					r.receive(message(line(attemptEnd, at(e), began(passed), shape, first(took), decoded(took+300*time.Millisecond), numbered(e, n))), later(passed))
				}
				r.judge(later(passed+250*time.Millisecond), map[fleet.EngineID]penalty.Load{sick + ":80": {Queued: queued && slow}})
			}
			if got := r.Penalties(); (got == nil) != queued {
				t.Errorf("%s, queued %v: penalties %+v", form, queued, got)
			}
		}
	}
}

// Where headers come with the first token, what was late before anybody knew what it would be
// is timed when that is known, so that what is usual follows what has become usual everywhere.
// Then an engine that is slower still is found.
func TestLateFirstBytesAreTimed(t *testing.T) {
	t.Parallel()
	for form, shape := range map[string]func(*logv3.HTTPAccessLogEntry){"streams": streamed, "in one piece": whole} {
		told := map[time.Duration]lines{} // each quarter of a second
		answer := func(e string, n int, took time.Duration) {
			start := time.Duration(n) * time.Second / 2
			for age := time.Second; age < took; age += time.Second {
				told[start+age] = append(told[start+age], line(whileItLasts, at(e), began(start), code(0), numbered(e, n)))
			}
			told[start+took] = append(told[start+took], line(attemptEnd, at(e), began(start), shape, first(took), decoded(took+time.Second), numbered(e, n)))
		}
		for n := range 200 {
			usual := 250 * time.Millisecond
			if n >= 40 {
				usual = 1500 * time.Millisecond
			}
			answer(well, n, usual)
			if n < 160 {
				answer(sick, n, usual)
			} else {
				answer(sick, n, 8*time.Second)
			}
		}
		r := recorder()
		for passed := time.Duration(0); passed < 100*time.Second; passed += 250 * time.Millisecond {
			r.receive(message(told[passed]...), later(passed))
			r.judge(later(passed), nil)
			if got := r.Penalties(); passed < 80*time.Second && got != nil {
				t.Fatalf("%s: penalties %+v after %v, while both engines are alike", form, got, passed)
			}
		}
		if got := r.Penalties(); len(got) != 1 || got[0].Engine != sick+":80" || got[0].Fault != fleet.FaultFirstTokens {
			t.Errorf("%s: penalties %+v, want one of the engine that is slower than what is usual by now", form, got)
		}
	}
}

// Streams that stand still, and those that come slowly, are known by their bytes long
// before they end. One that stands still counts once, however long.
func TestPenaltiesOfStreams(t *testing.T) {
	t.Parallel()
	flows := func(bytes func(n int) uint64) func(e string, n, request int) *logv3.HTTPAccessLogEntry {
		return func(e string, n, of int) *logv3.HTTPAccessLogEntry {
			return line(whileItLasts, at(e), streamed, first(100*time.Millisecond), numbered(e, of), sofar(bytes(n)))
		}
	}
	full := flows(func(n int) uint64 { return uint64(1000 * (n + 1)) })
	for _, tt := range []struct {
		name    string
		bytes   func(n int) uint64
		streams int // that do so
		want    fleet.Fault
	}{
		{"they stand still", func(n int) uint64 { return uint64(1000 * min(n+1, 30)) }, 6, fleet.FaultStalled},
		{"one stands still", func(n int) uint64 { return uint64(1000 * min(n+1, 30)) }, 1, ""},
		{"they come slowly", func(n int) uint64 { return uint64(1000*min(n+1, 30) + 100*max(0, n-29)) }, 6, fleet.FaultTokens},
		{"they come at half the pace", func(n int) uint64 { return uint64(1000*min(n+1, 30) + 500*max(0, n-29)) }, 6, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			odd := flows(tt.bytes)
			of := func(e string, n int) (out lines) {
				for i := range 6 {
					if e == sick && i < tt.streams {
						out = append(out, odd(e, n, i))
					} else {
						out = append(out, full(e, n, i))
					}
				}
				return out
			}
			got := penalties(t, of, of)
			switch {
			case tt.want == "" && got != nil:
				t.Errorf("penalties %+v, want none", got)
			case tt.want != "" && (len(got) != 1 || got[0].Engine != sick+":80" || got[0].Fault != tt.want || got[0].Value > 0.2):
				t.Errorf("penalties %+v, want one for %q", got, tt.want)
			}
		})
	}
}

// Entries that could not be read for a while come together: they say nothing of a pace.
func TestEntriesThatComeTogether(t *testing.T) {
	t.Parallel()
	r := recorder()
	e := line(whileItLasts, streamed, first(100*time.Millisecond), sofar(500))
	for range 5 {
		r.receive(message(e), later(2*time.Second))
	}
	for _, a := range r.open {
		if a.watch.idle || a.watch.paced {
			t.Errorf("watched as %+v", a.watch)
		}
	}
	if len(r.open) != 1 {
		t.Errorf("%d attempts are open", len(r.open))
	}
}

// The penalty of an engine that stops serving ends, for whoever applied it, too: the
// engine that comes back under its address is another.
func TestPenaltiesEndWithTheirEngine(t *testing.T) {
	t.Parallel()
	const engine = sick + ":80"
	r, applied := recorder(), map[fleet.EngineID]float64{}
	now := 0
	judge := func() {
		now++
		if all, changed := r.judge(later(time.Duration(now)*judgeEvery), nil); changed {
			applied = all
		}
	}
	shown := func() float64 { return testutil.ToFloat64(r.metrics.penalised.WithLabelValues("a")) }
	judge()
	for n := range 8 {
		when := began(time.Duration(n) * judgeEvery)
		r.receive(message(line(attemptEnd, at(well), when, whole, decoded(time.Second), numbered(well, n))), noon)
		r.receive(message(line(attemptEnd, at(sick), when, connectFailure, numbered(sick, n))), noon)
		judge()
	}
	if applied[engine] == 0 || shown() != 1 {
		t.Fatalf("applied %v, %v shown: want a penalty", applied, shown())
	}
	crashed := view()
	crashed.Classes[0].Pools[0].Engines[1].Readiness = fleet.Unready
	for _, v := range []*fleet.View{crashed, view()} {
		r.Swap(v)
		judge()
		if len(applied) != 0 || shown() != 0 {
			t.Fatalf("applied %v, %v shown: want none", applied, shown())
		}
	}
}

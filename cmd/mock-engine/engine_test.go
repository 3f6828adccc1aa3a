package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sink is a journal's file in memory.
type sink struct{ bytes.Buffer }

func (*sink) Close() error { return nil }

// testEngine is an engine of the given flags, and its journal.
func testEngine(t *testing.T, args ...string) (*engine, *sink) {
	t.Helper()
	o, err := parseOptions(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.name = "engine"
	log := &sink{}
	return newEngine(o, &journal{out: log}), log
}

// post returns what was answered until the connection was cut, if it was.
func post(ctx context.Context, e *engine, path, body string) (w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
	}()
	e.handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body)))
	return w
}

const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
	responsesPath   = "/v1/responses"
	embeddingsPath  = "/v1/embeddings"
	messagesPath    = "/v1/messages"
	whole           = `{"model":"mock","messages":[{"role":"user","content":"hello there"}],"max_tokens":3}`
	streamed        = `{"model":"mock","messages":[{"role":"user","content":"hello there"}],"max_tokens":3,
		"stream":true,"stream_options":{"include_usage":true}}`
)

// lines decodes the journal's lines of one event.
func lines[T any](t *testing.T, log *sink, event string) []T {
	t.Helper()
	var found []T
	for line := range strings.Lines(log.String()) {
		var kind struct{ Event string }
		if err := json.Unmarshal([]byte(line), &kind); err != nil {
			t.Fatalf("journal line %q: %v", line, err)
		}
		if kind.Event != event {
			continue
		}
		var record T
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("journal line %q: %v", line, err)
		}
		found = append(found, record)
	}
	return found
}

func TestLatencyFollowsTheProfile(t *testing.T) {
	tests := []struct {
		name string
		args []string
		load float64 // utilisation set beforehand
		want time.Duration
	}{
		{"idle", nil, 0, 200*time.Millisecond + 2*10*time.Millisecond},
		{"full", nil, 1, 250*time.Millisecond + 2*20*time.Millisecond},
		{"twice full", nil, 2, 300*time.Millisecond + 2*30*time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A long window and much capacity keep the load level during the request.
				e, _ := testEngine(t, "--ttft-full=250ms", "--tbt-full=20ms", "--window=1000h", "--capacity=1000")
				e.meter.rate, e.meter.last = tt.load*1000, time.Now()
				start := time.Now()
				if w := post(t.Context(), e, chatPath, whole); w.Code != http.StatusOK {
					t.Fatalf("status %d: %s", w.Code, w.Body)
				}
				if got := time.Since(start); (got - tt.want).Abs() > time.Millisecond {
					t.Errorf("took %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestSlotsMakeAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := testEngine(t, "--slots=1", "--ttft=1s", "--tbt=0s", "--kv-tokens=10")
		start := time.Now()
		finished := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				post(t.Context(), e, chatPath, whole)
				finished <- time.Since(start)
			}()
		}
		synctest.Wait()
		page := e.metrics()
		for _, want := range []string{
			`vllm:num_requests_running{engine="0",model_name="mock"} 1`,
			`vllm:num_requests_waiting{engine="0",model_name="mock"} 1`,
			`vllm:kv_cache_usage_perc{engine="0",model_name="mock"} 0.3`,
		} {
			if !strings.Contains(page, want+"\n") {
				t.Errorf("no %s in\n%s", want, page)
			}
		}
		if a, b := <-finished, <-finished; a != time.Second || b != 2*time.Second {
			t.Errorf("finished after %v and %v, want 1s and 2s", a, b)
		}
		if e.stats.waiting != 0 || e.stats.running != 0 || e.stats.held != 0 {
			t.Errorf("idle again, but stats are %+v", e.stats)
		}
	})
}

func TestClientGoneStopsTheWork(t *testing.T) {
	waits := map[string]time.Duration{"before the first token": time.Second, "between tokens": 6 * time.Second}
	tokens := map[string]int{"before the first token": 0, "between tokens": 2}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, log := testEngine(t, "--ttft=2s", "--tbt=3s")
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				start := time.Now()
				post(ctx, e, chatPath, streamed)
				if got := time.Since(start); got != wait {
					t.Errorf("worked for %v, want %v", got, wait)
				}
				ends := lines[ending](t, log, "end")
				if len(ends) != 1 || ends[0].Outcome != aborted || ends[0].Tokens != tokens[name] {
					t.Errorf("ended as %+v, want one aborted with %d tokens", ends, tokens[name])
				}
				if e.stats.running != 0 || e.stats.waiting != 0 || len(e.slots) != 0 {
					t.Errorf("the engine is not idle: %+v", e.stats)
				}
			})
		})
	}
}

func TestGoneWhileWaitingForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, log := testEngine(t, "--slots=1")
		e.slots <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		post(ctx, e, chatPath, whole)
		if ends := lines[ending](t, log, "end"); len(ends) != 1 || ends[0].Outcome != aborted {
			t.Errorf("ended as %+v, want one aborted", ends)
		}
		if e.stats.waiting != 0 {
			t.Errorf("waiting = %d, want 0", e.stats.waiting)
		}
	})
}

func TestHeadersAtOnceOrHeld(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want bool // flushed before the first token
	}{
		{"at once", nil, true},
		{"held", []string{"--hold-headers"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := testEngine(t, append(tt.args, "--ttft=1s")...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
				defer cancel()
				if w := post(ctx, e, chatPath, streamed); w.Flushed != tt.want {
					t.Errorf("headers flushed before the first token: %v, want %v", w.Flushed, tt.want)
				}
			})
		})
	}
}

func TestSameSeedSameAnswer(t *testing.T) {
	answer := func(seed string) (text string, took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			e, _ := testEngine(t, "--jitter=0.5", "--seed="+seed)
			start := time.Now()
			text = post(t.Context(), e, chatPath, streamed).Body.String()
			took = time.Since(start)
		})
		return text, took
	}
	text, took := answer("1")
	if again, tookAgain := answer("1"); again != text || tookAgain != took {
		t.Errorf("the same seed gave another answer after %v:\n%s\nthan after %v:\n%s", tookAgain, again, took, text)
	}
	if other, tookOther := answer("2"); other == text || tookOther == took {
		t.Errorf("another seed gave the same answer after %v", tookOther)
	}
}

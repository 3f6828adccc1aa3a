package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func readEnds(t *testing.T, file string) []ending {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	log := &sink{}
	log.Write(content)
	return lines[ending](t, log, "end")
}

func put(t *testing.T, e *engine, faults string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	e.handler().ServeHTTP(w, httptest.NewRequest("PUT", "/faults", strings.NewReader(faults)))
	return w
}

func mustPut(t *testing.T, e *engine, faults string) {
	t.Helper()
	if w := put(t, e, faults); w.Code != http.StatusNoContent {
		t.Fatalf("PUT /faults %s: %d %s", faults, w.Code, w.Body)
	}
}

func TestErrorsAtTheirRate(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, _ *sink) {
		mustPut(t, e, `{"errorRate":0.3,"errorStatus":503}`)
		count := map[int]int{}
		for range 1000 {
			count[post(t.Context(), e, chatPath, whole).Code]++
		}
		if n := count[503]; n < 250 || n > 350 || n+count[200] != 1000 {
			t.Errorf("answers by status = %v, want about 300 of 503 and the rest 200", count)
		}
	})
}

func TestSickAndWellAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, _ *sink) {
		mustPut(t, e, `{"unhealthy":true,"slow":3}`)
		if got := get(e, "/health").Code; got != 503 {
			t.Errorf("health = %d, want 503", got)
		}
		start := time.Now()
		post(t.Context(), e, chatPath, whole)
		if got, want := time.Since(start), 3*220*time.Millisecond; got != want {
			t.Errorf("took %v, want %v", got, want)
		}
		mustPut(t, e, `{}`)
		if got := get(e, "/health").Code; got != 200 {
			t.Errorf("health after the faults = %d, want 200", got)
		}
	})
}

func TestHang(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, log *sink) {
		mustPut(t, e, `{"hang":true}`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if w := post(ctx, e, chatPath, streamed); !w.Flushed || w.Body.Len() > 0 {
			t.Errorf("flushed %v with body %q, want headers and no more", w.Flushed, w.Body)
		}
		if ends := lines[ending](t, log, "end"); ends[0].Outcome != aborted {
			t.Errorf("ended as %+v, want aborted", ends)
		}
	})
}

func TestCut(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, log *sink) {
		mustPut(t, e, `{"cutAfter":2}`)
		w := post(t.Context(), e, chatPath, streamed)
		if got := strings.Count(w.Body.String(), "data: "); got != 2 {
			t.Errorf("%d events came, want 2:\n%s", got, w.Body)
		}
		if ends := lines[ending](t, log, "end"); len(ends) != 1 || ends[0].Outcome != failed || ends[0].Tokens != 2 {
			t.Errorf("ended as %+v, want one failed after 2 tokens", ends)
		}
	})
}

func TestWrongFaults(t *testing.T) {
	tests := map[string]string{
		`{"eror":1}`:           `unknown field \"eror\"`,
		`{"errorRate":2}`:      "errorRate 2: want 0 to 1",
		`{"errorStatus":200}`:  "errorStatus 200: want 400 to 599",
		`{"slow":0}`:           "slow 0: want a factor",
		`{"cutAfter":-1}`:      "cutAfter -1: want 0",
		`{"stallAfter":-1}`:    "stallAfter -1: want 0",
		`{"busyAbove":-1}`:     "busyAbove -1: want 0",
		`{"busyStatus":200}`:   "busyStatus 200: want 400 to 599",
		`{"retryAfter":-1}`:    "retryAfter -1: want 0",
		`{"unhealthy":"true"}`: "cannot unmarshal",
	}
	for faults, want := range tests {
		t.Run(faults, func(t *testing.T) {
			e, _ := testEngine(t)
			before := e.faults.Load()
			w := put(t, e, faults)
			if w.Code != 400 || !strings.Contains(w.Body.String(), want) || !json.Valid(w.Body.Bytes()) {
				t.Errorf("answer %d %s, want 400 and %q", w.Code, w.Body, want)
			}
			if e.faults.Load() != before {
				t.Error("wrong faults were taken over")
			}
		})
	}
}

func TestShowFaults(t *testing.T) {
	e, _ := testEngine(t, `--faults={"busyAbove":0,"retryAfter":1.5,"slow":2}`)
	want := map[string]any{
		"refuse": false, "mute": false, "unhealthy": false, "errorRate": 0.0, "errorStatus": 500.0,
		"busyAbove": 0.0, "busyStatus": 429.0, "retryAfter": 1.5,
		"slow": 2.0, "hang": false, "stallAfter": 0.0, "cutAfter": 0.0, "freeze": false,
	}
	shown := get(e, "/faults")
	var got map[string]any
	if err := json.Unmarshal(shown.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	mustPut(t, e, shown.Body.String())
	if diff := cmp.Diff(shown.Body.String(), get(e, "/faults").Body.String()); diff != "" {
		t.Errorf("what was shown was set (-want +got):\n%s", diff)
	}
}

func TestBusy(t *testing.T) {
	tests := []struct {
		name, faults       string
		status, retryAfter string
	}{
		{"by default", `{"busyAbove":2}`, "429", ""},
		{"with advice", `{"busyAbove":2,"busyStatus":503,"retryAfter":0.5}`, "503", "0.5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine, log *sink) {
				mustPut(t, e, tt.faults)
				answers := make(chan *httptest.ResponseRecorder, 3)
				for range 3 {
					go func() { answers <- post(t.Context(), e, messagesPath, whole) }()
				}
				refused := <-answers
				if got := refused.Header().Get("Retry-After"); got != tt.retryAfter {
					t.Errorf("retry-after = %q, want %q", got, tt.retryAfter)
				}
				if got := fmt.Sprint(refused.Code); got != tt.status || !strings.Contains(refused.Body.String(), "the engine is busy") {
					t.Errorf("the third was answered %s %s, want %s", got, refused.Body, tt.status)
				}
				for range 2 {
					if got := (<-answers).Code; got != 200 {
						t.Errorf("one of two was answered %d, want 200", got)
					}
				}
				if got := post(t.Context(), e, messagesPath, whole).Code; got != 200 {
					t.Errorf("with nobody in it, the engine answered %d", got)
				}
				if ends := lines[ending](t, log, "end"); len(ends) != 4 || ends[0].Outcome != rejected {
					t.Errorf("ends = %+v, want the first of four rejected", ends)
				}
			})
		})
	}
}

func TestStall(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, log *sink) {
		mustPut(t, e, `{"stallAfter":2}`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		w := post(ctx, e, chatPath, streamed)
		if got := strings.Count(w.Body.String(), "data: "); got != 2 || time.Since(start) != time.Hour {
			t.Errorf("%d events came in %v, want 2 and then nothing for an hour", got, time.Since(start))
		}
		if ends := lines[ending](t, log, "end"); ends[0].Outcome != aborted || ends[0].Tokens != 2 {
			t.Errorf("ended as %+v, want aborted after 2 tokens", ends)
		}
		if e.stats.running != 0 || e.stats.inside != 0 || len(e.slots) != 0 {
			t.Errorf("the engine is not idle: %+v", e.stats)
		}
	})
}

func TestMute(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, log *sink) {
		mustPut(t, e, `{"mute":true}`)
		for _, path := range []string{chatPath, "/health"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			start := time.Now()
			w := post(ctx, e, path, whole)
			cancel()
			if w.Flushed || w.Body.Len() > 0 || time.Since(start) != time.Hour {
				t.Errorf("%s was answered %q after %v", path, w.Body, time.Since(start))
			}
		}
		mustPut(t, e, `{}`)
		if got := post(t.Context(), e, chatPath, whole).Code; got != 200 {
			t.Errorf("afterwards: status %d, want 200", got)
		}
		if n := len(lines[arrival](t, log, "arrival")); n != 1 {
			t.Errorf("%d arrivals, want the one that was read", n)
		}
	})
}

// Resets are what a client sees of a crash, over a real connection.
func TestResets(t *testing.T) {
	tests := []struct{ name, faults, body, got string }{
		{"refused", `{"refuse":true}`, streamed, ""},
		{"cut after a token", `{"cutAfter":1}`, streamed, "data: {"},
		{"cut before a whole answer", `{"cutAfter":1}`, whole, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, _ := testEngine(t, "--faults="+tt.faults, "--ttft=0s")
			server := httptest.NewServer(e.handler())
			defer server.Close()
			var body []byte
			response, err := http.Post(server.URL+chatPath, "application/json", strings.NewReader(tt.body))
			if err == nil {
				body, err = io.ReadAll(response.Body)
				response.Body.Close()
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the answer ended with %v, want a reset", err)
			}
			if !strings.HasPrefix(string(body), tt.got) || (tt.got == "") != (len(body) == 0) {
				t.Errorf("got %q before it, want %q", body, tt.got)
			}
			mustPut(t, e, `{}`)
			if got := post(t.Context(), e, chatPath, whole).Code; got != 200 {
				t.Errorf("afterwards: status %d, want 200", got)
			}
		})
	}
}

func TestLoading(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, log *sink) {
		asked := func() (codes []int) {
			for _, path := range []string{"/health", "/metrics", "/v1/models", "/faults"} {
				codes = append(codes, get(e, path).Code)
			}
			return append(codes, post(t.Context(), e, chatPath, whole).Code)
		}
		if diff := cmp.Diff([]int{503, 503, 503, 200, 503}, asked()); diff != "" {
			t.Errorf("while loading (-want +got):\n%s", diff)
		}
		if err := sleepUntil(t.Context(), time.Now().Add(5*time.Second)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{200, 200, 200, 200, 200}, asked()); diff != "" {
			t.Errorf("when loaded (-want +got):\n%s", diff)
		}
		if ends := lines[ending](t, log, "end"); ends[0].Outcome != rejected || ends[1].Outcome != done {
			t.Errorf("ends = %+v, want one rejected, then one done", ends)
		}
	}, "--load-time=5s")
}

// The same seed and requests meet the same faults.
func TestSameSeedSameFaults(t *testing.T) {
	codes := func(seed string) (codes []int) {
		e, _ := testEngine(t, "--ttft=0s", "--tbt=0s", `--faults={"errorRate":0.5}`, "--seed="+seed)
		for range 64 {
			codes = append(codes, post(t.Context(), e, chatPath, whole).Code)
		}
		return codes
	}
	if diff := cmp.Diff(codes("1"), codes("1")); diff != "" {
		t.Errorf("the same seed failed otherwise:\n%s", diff)
	}
	if cmp.Equal(codes("1"), codes("2")) {
		t.Error("another seed failed alike")
	}
}

func FuzzFaults(f *testing.F) {
	f.Add(`{"errorRate":0.3,"errorStatus":503}`)
	f.Add(`{"busyAbove":null,"slow":1e-9}`)
	f.Fuzz(func(t *testing.T, body string) {
		faults, err := readFaults(strings.NewReader(body))
		if (faults == nil) == (err == nil) {
			t.Fatalf("faults %v with error %v", faults, err)
		}
		if err != nil {
			return
		}
		shown, err := json.Marshal(faults)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readFaults(bytes.NewReader(shown))
		if diff := cmp.Diff(faults, again); diff != "" || err != nil {
			t.Errorf("read again: %v\n%s", err, diff)
		}
	})
}

// A frozen page goes on saying what it said, whatever else becomes of the engine.
func TestFreeze(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, _ *sink) {
		page := func() string { return get(e, "/metrics").Body.String() }
		post(t.Context(), e, chatPath, whole)
		before := page()
		for _, faults := range []string{`{"freeze":true}`, `{"freeze":true,"slow":2}`} {
			mustPut(t, e, faults)
			if w := post(t.Context(), e, chatPath, whole); w.Code != http.StatusOK {
				t.Fatalf("a request to an engine with a frozen page: %d", w.Code)
			}
			if got := page(); got != before {
				t.Errorf("%s: the page moved:\n%s", faults, cmp.Diff(before, got))
			}
		}
		mustPut(t, e, `{}`)
		if page() == before {
			t.Error("the page of an engine that is well again stands still")
		}
	})
}

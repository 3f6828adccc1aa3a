package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
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

package scrape_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/signals"
	"weir/signals/dialect"
	"weir/signals/scrape"
)

func probe(t *testing.T, wait time.Duration, where string) (*dialect.Page, error) {
	t.Helper()
	client, _, err := signals.NewEngineClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	return scrape.Probe(ctx, client, dialect.NewTable(dialect.Dialects()...), where)
}

// zipped packs what write writes.
func zipped(write func(io.Writer)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		write(z)
		_ = z.Close()
	}
}

// endless writes a page until the reader has gone.
func endless(w io.Writer) {
	line := strings.Repeat("vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 1\n", 100)
	for {
		if _, err := io.WriteString(w, line); err != nil {
			return
		}
	}
}

// drip writes a page and then, ever so slowly, more.
func drip(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprint(w, "vllm:num_requests_running 3\n# and\n")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
			_, _ = fmt.Fprint(w, "#")
		case <-r.Context().Done():
			return
		}
	}
}

func cutOff(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)+1000))
		_, _ = fmt.Fprint(w, body)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	const running = "vllm:num_requests_running 3\n"
	redirect := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/page" {
			http.Redirect(w, r, "/page", http.StatusFound)
			return
		}
		_, _ = fmt.Fprint(w, running)
	}
	tests := []struct {
		name   string
		handle http.HandlerFunc
		path   string
		err    string // empty: 3 requests are running
		note   string
	}{
		{name: "a page", handle: text(running)},
		{name: "a page of its own path", handle: redirect, path: "/page"},
		{name: "packed", handle: zipped(func(w io.Writer) { _, _ = io.WriteString(w, running) })},
		{name: "a bomb", handle: zipped(func(w io.Writer) { _, _ = io.WriteString(w, running); endless(w) }), note: "longer than 16 MiB"},
		{name: "a page without end", handle: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, running); endless(w) }, note: "longer than 16 MiB"},
		{name: "a slow drip", handle: drip, note: "broke off"},
		{name: "cut off", handle: cutOff(running + "# TYPE x gauge\nx 1\n"), note: "broke off: unexpected EOF"},
		{name: "cut off in its first line", handle: cutOff("vllm:num_req"), err: "cannot be reached: unexpected EOF"},
		{name: "a redirect", handle: redirect, err: "/prometheus/metrics: redirects are not followed: answered 302"},
		{name: "not found", handle: http.NotFound, err: "/metrics: no page: answered 404, want 200"},
		{name: "another page", handle: text("up 1\n"), err: "no metrics of an engine that Weir knows"},
		{name: "HTML", handle: text("<html>vllm:num_requests_running 3</html>"), err: "answered text/html"},
		{name: "an empty page", handle: text(""), err: "no metrics of an engine"},
		{name: "packed some other way", handle: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, running)
		}, err: `cannot be unpacked: encoding "br"`},
		{name: "not packed as it says", handle: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, running)
		}, err: "cannot be unpacked"},
		{name: "silence", handle: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, err: "no page in time"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := startEngine(t, (*httptest.Server).Start, tt.handle)
			wait := 30 * time.Second
			if tt.name == "a slow drip" || tt.name == "silence" {
				wait = time.Second
			}
			p, err := probe(t, wait, e.server.URL+tt.path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("err = %v, want one that says %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !p.Values.Running.Known() || p.Values.Running.X != 3 {
				t.Errorf("running = %v (%s), want 3", p.Values.Running.X, p.Values.Running.State)
			}
			if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, tt.note) {
				t.Errorf("notes %q, want one that says %q", notes, tt.note)
			}
		})
	}
}

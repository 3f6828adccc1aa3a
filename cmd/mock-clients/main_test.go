package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// answers stands for a front-end.
func answers(t *testing.T, status func(name string) int) (url string, bodies func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen = append(seen, string(body))
		mu.Unlock()
		w.WriteHeader(status(r.Header.Get("x-test-id")))
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string { mu.Lock(); defer mu.Unlock(); return seen }
}

func TestRun(t *testing.T) {
	tests := map[string]struct {
		status int
		code   int
		check  func(*tally) bool
	}{
		"all is well": {200, 0, func(s *tally) bool { return s.Whole == s.Sent && s.Sent > 2 }},
		"shed":        {429, 0, func(s *tally) bool { return s.Shed == s.Sent && s.Sent > 2 }},
		"failed":      {503, 1, func(s *tally) bool { return s.Failed == s.Sent && strings.Contains(s.First, "503") }},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, bodies := answers(t, func(string) int { return c.status })
			var out bytes.Buffer
			code := run(t.Context(), []string{
				"--to", "A=" + url + "=200", "--for", "1s", "--every", "100ms", "--think", "0s", "--stream=false", "--turns", "2", "--name", "x",
			}, &out, io.Discard)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			var got tally
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
				t.Fatal(err)
			}
			if code != c.code || got.Name != "x" || !c.check(&got) {
				t.Errorf("code %d, want %d; %s", code, c.code, out.String())
			}
			if len(lines) < 2 || !strings.Contains(lines[0], "requests") {
				t.Errorf("no word on the way: %q", lines)
			}
			if n := len(bodies()); n != got.Sent {
				t.Errorf("%d requests came, %d are counted", n, got.Sent)
			}
		})
	}
}

// A turn sends its conversation again, and a conversation ends after its turns.
func TestConversations(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	turns := map[string]int{}
	url, bodies := answers(t, func(name string) int {
		mu.Lock()
		defer mu.Unlock()
		turns[name]++
		if len(turns) > 60 { // of twenty conversations at least
			stop()
		}
		return 200
	})
	run(ctx, []string{"--to", "A=" + url + "=300", "--for", "1m", "--think", "0s", "--stream=false", "--turns", "3", "--prompt", "100", "--name", "x"}, io.Discard, io.Discard)
	mu.Lock()
	defer mu.Unlock()
	longest := 0
	for _, b := range bodies() {
		longest = max(longest, strings.Count(b, `"role":"user"`))
	}
	last := 0
	for name, n := range turns {
		if n != 1 || strings.HasSuffix(name, "/3") {
			t.Errorf("turn %s was sent %d times", name, n)
		}
		if strings.HasSuffix(name, "/2") {
			last++
		}
	}
	if longest != 3 || last == 0 {
		t.Errorf("the longest body has %d turns, want 3; %d conversations came to their end", longest, last)
	}
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		want string
	}{
		"nothing":      {"", "needs --to"},
		"no rate":      {"--to A=http://a:1", "want NAME=http://HOST:PORT=RPS"},
		"no number":    {"--to A=http://a:1=x", "want a rate"},
		"not a number": {"--to A=http://a:1=NaN", "want a rate"},
		"for ever":     {"--to A=http://a:1=1 --for 25h", "--for"},
		"an argument":  {"--to A=http://a:1=1 b", `unexpected argument "b"`},
		"no turns":     {"--to A=http://a:1=1 --turns 0", "--turns"},
	} {
		if _, err := parse(strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	o, err := parse([]string{"--to", "A=http://a:10000=36", "--to", "B=http://b:10000=0.5"}, io.Discard)
	if err != nil || len(o.targets) != 2 || o.targets[1].rps != 0.5 || o.name == "" {
		t.Errorf("%+v, %v", o, err)
	}
}

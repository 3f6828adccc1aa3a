package deploy

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"weir/deploy/stage"
	weirenvoy "weir/envoy"
)

// What only computes is tried on other engines whatever became of it before an answer;
// what may have made something is tried elsewhere only where it has reached no engine.
// Clients are told how many engines were asked.
func TestAttemptsByPath(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{})
	document, err := os.ReadFile("../docs/REQUESTS.md")
	check(t, err)
	client := stage.NewClient()
	chat := `{` + mine + `}`
	other := func(home string, pool witnesses) string {
		for _, w := range pool {
			if w.address != home {
				return w.address
			}
		}
		return ""
	}
	for _, p := range []struct {
		name  string
		plea  plea
		pool  witnesses
		again bool
	}{
		{"chat completions", plea{body: chat}, engines[:2], true},
		{"chat completions with a query", plea{path: "/v1/chat/completions?api-version=1", body: chat}, engines[:2], true},
		{"a job of fine-tuning", plea{path: "/v1/fine_tuning/jobs", body: chat}, engines[:2], false},
		{"a file", plea{path: "/v1/files", body: "{}"}, engines[2:], false},
		{"a batch", plea{path: "/v1/batches", body: "{}"}, engines[2:], false},
		{"a list of files", plea{method: "GET", path: "/v1/files"}, engines[2:], true},
		{"a transcription", plea{path: "/v1/audio/transcriptions", body: "{}"}, engines[2:], true},
	} {
		for _, how := range []string{"refuses", "cuts"} {
			mark := p.name + " " + how
			ask := p.plea
			ask.headers = map[string]string{"x-tenant": p.name, "x-session-id": p.name}
			first := sendPlea(t, client, s, mark+" first", ask)
			if !first.OK() || first.Header.Get(weirenvoy.HeaderAttempts) != "1" || first.Leak() != "" {
				t.Fatalf("%s: %v, attempts %q, leak %q", mark, &first, first.Header.Get(weirenvoy.HeaderAttempts), first.Leak())
			}
			ask.headers[only] = other(engines.one(t, mark+" first").engine, p.pool)
			if how == "cuts" {
				ask.headers[cut] = "1"
			}
			r := sendPlea(t, client, s, mark, ask)
			seen := len(engines.of(mark))
			if told := r.Header.Get(weirenvoy.HeaderAttempts); told != strconv.Itoa(seen) || r.Leak() != "" {
				t.Errorf("%s: the client is told of %s attempts, engines saw %d; leak %q", mark, told, seen, r.Leak())
			}
			if p.again != r.OK() || p.again != (seen > 1) {
				t.Errorf("%s: %v after %d attempts, want more than one: %v", mark, &r, seen, p.again)
			}
		}
	}
	for _, end := range weirenvoy.InferencePaths() {
		if !inDocs(string(document), "`"+end+"`") {
			t.Errorf("docs/REQUESTS.md has no row of %s", end)
		}
	}
	t.Run("no connection", func(t *testing.T) {
		ask := plea{path: "/v1/files", body: "{}", headers: map[string]string{"x-tenant": "dead"}}
		if r := sendPlea(t, client, s, "home", ask); !r.OK() {
			t.Fatal(&r)
		}
		home := engines.one(t, "home").engine
		for _, w := range engines {
			if w.address == home {
				w.server.Listener.Close()
				w.server.CloseClientConnections()
			}
		}
		r := sendPlea(t, client, s, "moved", ask)
		if told := r.Header.Get(weirenvoy.HeaderAttempts); !r.OK() || told != "2" || len(engines.of("moved")) != 1 {
			t.Errorf("%v after %s attempts", &r, told)
		}
	})
}

// A busy engine that asks for a moment is given it before the next attempt; one that
// asks for long is not waited for, since the next attempt is at another engine.
func TestRetryAfterIsHeeded(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{})
	client := stage.NewClient()
	for seconds, slow := range map[int]bool{1: true, 30: false} {
		mark := fmt.Sprint("after ", seconds)
		ask := plea{body: `{` + mine + `}`, headers: map[string]string{"x-session-id": mark}}
		if r := sendPlea(t, client, s, mark+" first", ask); !r.OK() {
			t.Fatal(&r)
		}
		home, other := engines.one(t, mark+" first").engine, engines[0].address
		if home == other {
			other = engines[1].address
		}
		ask.headers[only], ask.headers[after] = other, strconv.Itoa(seconds)
		begun := time.Now()
		r := sendPlea(t, client, s, mark, ask)
		took := time.Since(begun)
		if !r.OK() || r.Header.Get(weirenvoy.HeaderAttempts) != "2" {
			t.Errorf("%s: %v", mark, &r)
		}
		if slow != (took >= time.Second) || took > 5*time.Second {
			t.Errorf("%s: the answer took %v", mark, took)
		}
		t.Logf("retry-after %d: answered after %v", seconds, took.Round(time.Millisecond))
	}
	r := sendPlea(t, client, s, "none", plea{method: "GET", path: "/v1/models"})
	if told := r.Header.Get(weirenvoy.HeaderAttempts); told != "0" {
		t.Errorf("of Weir's own answer the client is told of %q attempts", told)
	}
}

// A budget that is told takes effect on the next retry; until requests are measured it
// is the fleet file's.
func TestBudgetsTakeEffectAtOnce(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{})
	client := stage.NewClient()
	ask := plea{body: `{` + mine + `}`, headers: map[string]string{only: "none"}}
	n := 0
	attempts := func() int {
		n++
		mark := fmt.Sprint("budget ", n)
		sendPlea(t, client, s, mark, ask)
		return len(engines.of(mark))
	}
	overflow := func() int {
		got, err := s.Stat(t.Context(), "main", "cluster.chat.upstream_rq_retry_overflow")
		check(t, err)
		return got
	}
	if got := attempts(); got < 2 || overflow() != 0 {
		t.Fatalf("%d attempts, %d of which were over the budget", got, overflow())
	}
	original := read(t, s)
	for _, allowed := range []bool{false, true} {
		rewrite(t, s, func(string) string {
			if allowed {
				return original
			}
			return original + "  retryPercent: 0%\n  retryFloor: 0\n"
		})
		eventually(t, fmt.Sprint("retries are allowed: ", allowed), 10*time.Second, func() bool { return attempts() > 1 == allowed })
		before := overflow()
		for range 5 {
			if got := attempts(); got > 1 != allowed {
				t.Errorf("%d attempts, want more than one: %v", got, allowed)
			}
		}
		if over := overflow() - before; over != 5 && !allowed || over != 0 && allowed {
			t.Errorf("%d of 5 retries were over the budget, retries allowed: %v", over, allowed)
		}
	}
}

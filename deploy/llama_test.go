package deploy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"weir/deploy/stage"
)

// llamaEngines are small enough for two cores, and each has slots for more
// conversations than there are: what is found in a cache is decided by routing
// alone.
func llamaEngines(t *testing.T) *stage.Llama {
	t.Helper()
	python := os.Getenv("WEIR_PYTHON")
	if python == "" {
		python = "../.venv/bin/python"
	}
	l := &stage.Llama{Python: python, Script: "../tools/llama-engine", Flags: []string{"--parallel", "24", "--context", "4096"}}
	if err := l.Check(t.Context()); err != nil {
		t.Skip("run 'make setup', or point WEIR_PYTHON to a Python with its packages:", err)
	}
	return l
}

// Conversations through Weir find in llama.cpp's KV cache what they would find if
// each were pinned to its engine by hand; at random engines they find much less.
func TestLlamaFindsItsCache(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/llama.yaml", Llama: llamaEngines(t)})
	engines := s.Fleet.Pool("llama").Engines
	direct := func(i int) string { return "http://" + string(engines[i%len(engines)]) }

	pinned := hold(t, s, "pinned", func(i int) func() string {
		return func() string { return direct(i) }
	})
	random := hold(t, s, "random", func(i int) func() string {
		rng := rand.New(rand.NewPCG(11, uint64(i)))
		return func() string { return direct(rng.IntN(len(engines))) }
	})
	routed := hold(t, s, "weir", func(int) func() string {
		return func() string { return s.URL("main") }
	})
	t.Log("prompt tokens found in the KV cache\n" + table(pinned, random, routed))

	const bar = 0.9
	if got, best := routed.later.hitRate(), pinned.later.hitRate(); got < bar*best {
		t.Errorf("through Weir %.1f %% of the prompts' tokens were cached, by hand %.1f %%: want at least %v of it", 100*got, 100*best, bar)
	}
	if random.later.hitRate() > bar*pinned.later.hitRate() {
		t.Error("random engines do as well as pinned ones: this measurement tells nothing")
	}
	everyEngineWorked(t, s)
	noTimeouts(t, s)
}

const (
	talks = 20
	turns = 5
)

// outcome is what one way of routing found in the caches.
type outcome struct {
	way          string
	first, later usage // the first turns, and all others
}

// hold holds all conversations, some at a time. choose gives each the way in which
// it finds an engine, turn by turn.
func hold(t *testing.T, s *stage.Stage, way string, choose func(i int) func() string) outcome {
	t.Helper()
	before := counted(t, s)
	var mu sync.Mutex // guards the sums
	o := outcome{way: way}
	// llama.cpp closes a connection after each stream, without a word: a client
	// that keeps connections trips over that.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var group errgroup.Group
	group.SetLimit(6)
	for i := range talks {
		d, url := newDialogue(fmt.Sprintf("%s-%d", way, i), i), choose(i)
		group.Go(func() error {
			for turn := range turns {
				r := stage.Do(t.Context(), client, d.next(url()))
				u, err := d.heard(&r)
				if err != nil {
					return fmt.Errorf("turn %d: %w", turn, err)
				}
				mu.Lock()
				if turn == 0 {
					o.first.add(u)
				} else {
					o.later.add(u)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	check(t, group.Wait())
	sameAsCounted(t, s, before, o)
	return o
}

// sameAsCounted holds that the engines' own metrics say what their answers said.
func sameAsCounted(t *testing.T, s *stage.Stage, before usage, o outcome) {
	t.Helper()
	want := o.first
	want.add(o.later)
	got := counted(t, s)
	got.Prompt, got.Cached = got.Prompt-before.Prompt, got.Cached-before.Cached
	if got != want {
		t.Errorf("%s: the engines count %+v, their answers sum up to %+v", o.way, got, want)
	}
}

// counted sums up the engines' counters. llama.cpp counts as prompt what it had
// to compute.
func counted(t *testing.T, s *stage.Stage) usage {
	t.Helper()
	var sum usage
	for _, e := range s.Fleet.Pool("llama").Engines {
		metrics := page(t, string(e), "/metrics")
		computed, cached := counter(t, metrics, "llamacpp:prompt_tokens_total"), counter(t, metrics, "llamacpp:prompt_tokens_cached_total")
		sum.add(usage{computed + cached, cached})
	}
	return sum
}

func counter(t *testing.T, metrics, name string) int {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			check(t, err)
			return n
		}
	}
	t.Fatalf("the engine has no metric %s:\n%s", name, metrics)
	return 0
}

// everyEngineWorked holds, by Envoy's own count, that no engine got nothing and
// that every request was sent once, but for the retries.
func everyEngineWorked(t *testing.T, s *stage.Stage) {
	t.Helper()
	sent, err := s.Sent(t.Context(), "main")
	check(t, err)
	sum := 0
	for _, e := range s.Fleet.Pool("llama").Engines {
		if sent[e] == 0 {
			t.Errorf("engine %s got no request: %v", e, sent)
		}
		sum += sent[e]
	}
	retries, err := s.Stats(t.Context(), "main", `cluster\.[^.]*chat[^.]*\.upstream_rq_retry`)
	check(t, err)
	if want := talks*turns + total(retries); len(retries) != 1 || sum != want {
		t.Errorf("%d requests were sent to engines, want %d: %v, retries %v", sum, want, sent, retries)
	}
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// table shows the ways side by side.
func table(outcomes ...outcome) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "routing\tfirst turns' prompt tokens\tlater turns'\tcached\tshare\tof pinned\t")
	best := outcomes[0].later.hitRate()
	for _, o := range outcomes {
		rate := o.later.hitRate()
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f %%\t%.1f %%\t\n", o.way, o.first.Prompt, o.later.Prompt, o.later.Cached, 100*rate, 100*rate/best)
	}
	w.Flush()
	return text.String()
}

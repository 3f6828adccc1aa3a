package deploy

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/deploy/figures"
	"weir/deploy/stage"
)

// Bars are how much of what is cached with conversations pinned by hand must be cached
// through Weir: in a short test, at length, and at length with weights that change by
// changedPoints while the conversations go on.
const (
	cacheBar        = 0.9
	cacheBarLong    = 0.95
	cacheBarChanged = 0.85

	changedPoints = 10 // of 100
)

// llamaEngines run with slots for more conversations than there are, so that what
// is found in a cache is decided by routing alone.
func llamaEngines(t *testing.T, flags ...string) *stage.Llama {
	t.Helper()
	l := &stage.Llama{Python: llamaPython(), Script: "../tools/llama-engine", Flags: flags}
	if err := l.Check(t.Context()); err != nil {
		t.Skip("run 'make setup', or point WEIR_PYTHON to a Python with its packages:", err)
	}
	return l
}

// llamaPython is a Python that may have llama.cpp's packages.
func llamaPython() string { return cmp.Or(os.Getenv("WEIR_PYTHON"), "../.venv/bin/python") }

// onLlama measures caching on three engines.
func onLlama(t *testing.T, l *stage.Llama, talks, turns, atOnce int) caching {
	t.Helper()
	s := start(t, stage.Options{FleetFile: "testdata/llama.yaml", Llama: l})
	return caching{stage: s, engines: s.Fleet.Pool("llama").Engines, talks: talks, turns: turns, atOnce: atOnce}
}

// Conversations through Weir find in llama.cpp's KV cache what they would find if
// each were pinned to its engine by hand; at random engines they find much less.
func TestLlamaFindsItsCache(t *testing.T) {
	t.Parallel()
	c := onLlama(t, llamaEngines(t, "--parallel", "24", "--context", "4096"), 20, 5, 6)
	var ways []outcome
	for _, way := range []func(*testing.T) outcome{c.pinned, c.random, c.weir} {
		before := counted(t, c)
		ways = append(ways, way(t))
		sameAsCounted(t, c, before, ways[len(ways)-1])
	}
	t.Log("\n" + table(ways...))
	pinned, random, weir := ways[0].later.hitRate(), ways[1].later.hitRate(), ways[2].later.hitRate()
	if weir < cacheBar*pinned {
		t.Errorf("through Weir %.3f of the prompts' tokens were cached, by hand %.3f: want at least %v of that", weir, pinned, cacheBar)
	}
	if random > cacheBar*pinned {
		t.Errorf("at random %.3f were cached, by hand %.3f: this measurement tells nothing", random, pinned)
	}
	c.everyEngineWorked(t)
	noTimeouts(t, c.stage)
}

// The same at length, with prompts that take time, beside mock engines, which
// must cache what llama.cpp does. It writes its figures to $WEIR_FIGURES.
func TestLlamaAtLength(t *testing.T) {
	path := os.Getenv(figures.Variable)
	if path == "" {
		t.Skip("runs for minutes: use make test-llama")
	}
	l := llamaEngines(t, "--parallel", "40", "--context", "4096", "--dim", "128", "--layers", "3")
	const talks, turns, atOnce = 40, 6, 2
	var pinned, random, weir, changed, mock outcome
	var moved moves
	t.Run("as weights are", func(t *testing.T) {
		c := onLlama(t, l, talks, turns, atOnce)
		pinned, random, weir = c.pinned(t), c.random(t), c.weir(t)
		c.everyEngineWorked(t)
	})
	t.Run("as weights change", func(t *testing.T) {
		changed, moved = changedMidway(t, l, talks, turns, atOnce)
	})
	t.Run("mock engines", func(t *testing.T) {
		mock = onLlama(t, nil, talks, turns, atOnce).weir(t)
		mock.way = "weir, mock engines"
	})
	if t.Failed() {
		return
	}
	t.Log("\n" + table(pinned, random, weir, changed, mock))

	f := figures.Report{Target: "test-llama"}
	share := func(o outcome) float64 { return o.later.hitRate() / pinned.later.hitRate() }
	f.Tell("prompt tokens cached with conversations pinned", pinned.later.hitRate(), "of 1")
	f.Tell("cached at random, of what is cached pinned", share(random), "of 1")
	f.AtLeast("cached through Weir, of what is cached pinned", share(weir), "of 1", cacheBarLong)
	f.AtLeast("the same, weights changed by 10 points at mid-run", share(changed), "of 1", cacheBarChanged)
	moved.tell(&f, changed.cold)
	f.AtLeast("cached by mock engines, of what llama.cpp caches", mock.later.hitRate()/weir.later.hitRate(), "of 1", 0.95)
	f.AtMost("cached by mock engines, of what llama.cpp caches", mock.later.hitRate()/weir.later.hitRate(), "of 1", 1.05)
	f.Tell("median TTFT pinned", pinned.ttft().Seconds(), "s")
	f.Tell("median TTFT at random", random.ttft().Seconds(), "s")
	f.Tell("median TTFT through Weir", weir.ttft().Seconds(), "s")
	f.AtMost("median TTFT through Weir, of that at random", weir.ttft().Seconds()/random.ttft().Seconds(), "of 1", 1)
	check(t, figures.Write(path, &f))
	t.Log("\n" + f.String())
}

// moves is what weir-extproc counted over a change of weights.
type moves struct{ moved, least float64 }

func movesOf(t *testing.T, s *stage.Stage) moves {
	t.Helper()
	text := page(t, s.AdminAddress("extproc-main"), "/metrics")
	return moves{number(t, text, "weir_extproc_conversations_moved_total"), number(t, text, "weir_extproc_conversations_moved_least_total")}
}

func (m moves) less(before moves) moves {
	return moves{m.moved - before.moved, m.least - before.least}
}

// tell tells them beside what the engines' answers show.
func (m moves) tell(f *figures.Report, cold int) {
	f.Tell("turns that had to be computed anew over the change", float64(cold), "conversations")
	f.Tell("moved by the change, as weir-extproc counts", m.moved, "conversations")
	f.Tell("the least that the weights ask to move", m.least, "conversations")
}

// changedMidway holds the same conversations over the same engines in two pools, whose
// weights change between two turns of each.
func changedMidway(t *testing.T, l *stage.Llama, talks, turns, atOnce int) (outcome, moves) {
	t.Helper()
	s := start(t, stage.Options{FleetFile: "testdata/llama-pools.yaml", Llama: l})
	engines := slices.Concat(s.Fleet.Pool("pair").Engines, s.Fleet.Pool("single").Engines)
	c := caching{stage: s, engines: engines, talks: talks, turns: turns, atOnce: atOnce}
	var counted moves
	c.midway = func() {
		before := movesOf(t, s)
		rewrite(t, s, func(text string) string {
			return strings.Replace(text, "min: 33%, max: 33%", fmt.Sprintf("min: %[1]d%%, max: %[1]d%%", 33+changedPoints), 1)
		})
		least := 0.99 * changedPoints / 100 * float64(c.talks)
		eventually(t, "the new weights are in force", 10*s.Fleet.Options.Tick, func() bool {
			counted = movesOf(t, s).less(before)
			return counted.least >= least
		})
	}
	o := c.weir(t)
	o.way = "weir, weights changed"
	c.everyEngineWorked(t)
	return o, counted
}

// sameAsCounted holds that the engines' own metrics say what their answers said.
func sameAsCounted(t *testing.T, c caching, before usage, o outcome) {
	t.Helper()
	want := o.first
	want.add(o.later)
	got := counted(t, c)
	got.Prompt, got.Cached = got.Prompt-before.Prompt, got.Cached-before.Cached
	if got != want {
		t.Errorf("%s: the engines count %+v, their answers sum up to %+v", o.way, got, want)
	}
}

// counted sums up the engines' counters. llama.cpp counts as prompt what it had
// to compute.
func counted(t *testing.T, c caching) usage {
	t.Helper()
	var sum usage
	for _, e := range c.engines {
		metrics := page(t, string(e), "/metrics")
		computed, cached := counter(t, metrics, "llamacpp:prompt_tokens_total"), counter(t, metrics, "llamacpp:prompt_tokens_cached_total")
		sum.add(usage{computed + cached, cached})
	}
	return sum
}

func counter(t *testing.T, metrics, name string) int { return int(number(t, metrics, name)) }

// number reads a metric without labels.
func number(t *testing.T, metrics, name string) float64 {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			x, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			check(t, err)
			return x
		}
	}
	t.Fatalf("the page has no metric %s:\n%s", name, metrics)
	return 0
}

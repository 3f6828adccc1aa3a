package deploy

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"weir/deploy/stage"
)

// toldTurns is what Weir has told of turns so far.
type toldTurns struct {
	n int
	usage
	hits, misses int     // at least half of the prompt was cached, or less
	seconds      float64 // to the first tokens of them all
}

func toldOfTurns(t *testing.T, s *stage.Stage) toldTurns {
	t.Helper()
	m := measuresAt(t, s, "main")
	count := func(name string) int {
		return int(m.of("weir_extproc_" + name + "_total").GetCounter().GetValue())
	}
	byCache := func(cache string) (int, float64) {
		h := m.of("weir_extproc_time_to_first_token_by_cache_seconds", cache).GetHistogram()
		return int(h.GetSampleCount()), h.GetSampleSum()
	}
	hits, hitSeconds := byCache("hit")
	misses, missSeconds := byCache("miss")
	return toldTurns{
		count("requests_with_tokens"),
		usage{count("prompt_tokens"), count("cached_prompt_tokens")},
		hits, misses, hitSeconds + missSeconds,
	}
}

// turn is one turn of a conversation, as its client saw it and as Weir told of it.
type turn struct {
	cold       bool  // half of the prompt had to be computed, as the engine says
	said, told usage // by the engine's answer, and by Weir
	seen       float64
	measured   float64 // seconds to the first token, by the client's stopwatch and by Weir
}

// take lets a conversation have its next turn.
func take(t *testing.T, s *stage.Stage, d *dialogue) turn {
	t.Helper()
	before := toldOfTurns(t, s)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // as in caching.hold
	r := stage.Do(t.Context(), client, d.next(s.URL("main")))
	said, err := d.heard(&r)
	check(t, err)
	eventually(t, "the turn is told of", 5*time.Second, func() bool {
		now := toldOfTurns(t, s)
		return now.n == before.n+1 && now.hits+now.misses == now.n
	})
	now := toldOfTurns(t, s) // that page may have been read while it was written
	return turn{
		now.misses > before.misses, said,
		usage{now.Prompt - before.Prompt, now.Cached - before.Cached},
		r.TTFT.Seconds(), now.seconds - before.seconds,
	}
}

// Weir tells the first turns of conversations, which llama.cpp computes whole, from
// later ones, which it finds in its KV cache: turn by turn, to the token, as the
// engines say, and in the time to the first token as the clients' stopwatches do.
func TestColdAndCachedTurnsAreToldApart(t *testing.T) {
	t.Parallel()
	l := llamaEngines(t, "--parallel", "24", "--context", "4096", "--dim", "128", "--layers", "3") // prompts take time
	s := start(t, stage.Options{FleetFile: "testdata/llama.yaml", Llama: l})
	var cold, cached []turn
	var first, later usage
	for i := range 16 {
		d := newDialogue(fmt.Sprint("cold-", i), 4*(i/2)+2+i%2) // that streams
		for n := range 4 {
			got := take(t, s, d)
			if got.told != got.said || got.cold != (2*got.said.Cached < got.said.Prompt) {
				t.Errorf("turn %d of %s: Weir tells %+v, cold: %v; the engine's answer %+v", n, d.name, got.told, got.cold, got.said)
			}
			if n == 0 {
				first.add(got.told)
			} else {
				later.add(got.told)
			}
			if got.cold {
				cold = append(cold, got)
			} else {
				cached = append(cached, got)
			}
		}
	}
	t.Logf("cached of first turns %.3f, of later ones %.3f", first.hitRate(), later.hitRate())
	if len(cold) < 16 || len(cached) < 40 || first.hitRate() > 0.1 || later.hitRate() < 0.6 {
		t.Errorf("%d turns are cold and %d cached; of first turns %.2f was cached, of later ones %.2f", len(cold), len(cached), first.hitRate(), later.hitRate())
	}
	sameGap(t, cold, cached)
	noTimeouts(t, s)
}

// sameGap holds that cold turns are slower than cached ones by Weir's clock as by the
// clients'. What a turn takes before it is sent to an engine is in theirs alone, turn
// by turn, and on a busy machine that is more for long prompts: so Weir may see less of
// a gap, and never a longer time. Medians are not moved by turns that were held up.
func sameGap(t *testing.T, cold, cached []turn) {
	t.Helper()
	seen := func(x turn) float64 { return x.seen }
	measured := func(x turn) float64 { return x.measured }
	for _, x := range append(cold, cached...) {
		if x.measured > x.seen+0.001 {
			t.Errorf("Weir tells of %.4f s to a first token that its client had after %.4f s", x.measured, x.seen)
		}
	}
	slow, fast := median(cold, seen), median(cached, seen)
	slowToo, fastToo := median(cold, measured), median(cached, measured)
	t.Logf("median TTFT cold %.1f ms, cached %.1f ms by the clients; %.1f ms and %.1f ms by Weir", 1e3*slow, 1e3*fast, 1e3*slowToo, 1e3*fastToo)
	if slow < 1.3*fast || slowToo < 1.3*fastToo {
		t.Error("cold and cached turns are too alike to tell anything")
	}
	if slowToo-fastToo < (slow-fast)/2 {
		t.Errorf("the difference is %.4f s by the clients, %.4f s by Weir", slow-fast, slowToo-fastToo)
	}
}

func median(all []turn, of func(turn) float64) float64 {
	var values []float64
	for _, x := range all {
		values = append(values, of(x))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

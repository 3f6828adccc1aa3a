package deploy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/deploy/stage"
	"weir/fleet"
)

// caching measures how much of their prompts conversations find in KV caches, by
// the way in which their turns find an engine.
type caching struct {
	stage                *stage.Stage
	engines              []fleet.EngineID
	talks, turns, atOnce int

	midway func() // what happens once half of the turns have been; nil: nothing
}

// outcome is what one way of routing found.
type outcome struct {
	way          string
	first, later usage           // the first turns, and all others
	cold         int             // of the others, those that found little of what they should: on another engine
	ttfts        []time.Duration // of the others, where they stream
}

func (o *outcome) add(turn int, u usage, r *stage.Reply) {
	if turn == 0 {
		o.first.add(u)
		return
	}
	o.later.add(u)
	if 2*u.Cached < u.Prompt {
		o.cold++
	}
	if strings.HasPrefix(r.Header.Get("content-type"), "text/event-stream") {
		o.ttfts = append(o.ttfts, r.TTFT)
	}
}

// ttft is the median.
func (o *outcome) ttft() time.Duration {
	slices.Sort(o.ttfts)
	return o.ttfts[len(o.ttfts)/2]
}

// pinned sends each conversation to one engine, as if by hand.
func (c caching) pinned(t *testing.T) outcome {
	return c.hold(t, "pinned", func(i, _ int) string { return c.direct(i) })
}

// random sends each turn to any engine.
func (c caching) random(t *testing.T) outcome {
	return c.hold(t, "random", func(i, turn int) string {
		return c.direct(rand.New(rand.NewPCG(uint64(i), uint64(turn))).IntN(len(c.engines)))
	})
}

// weir sends each turn through Weir.
func (c caching) weir(t *testing.T) outcome {
	for _, e := range c.engines { // one that a busy machine kept from answering its probes comes back
		eventually(t, "engine "+string(e)+" is ready", 20*time.Second, func() bool { return health(c.stage, c.stage.Fleet.FrontEnds[0].ID, e) == "ready" })
	}
	return c.hold(t, "weir", func(int, int) string { return c.stage.URL("main") })
}

func (c caching) direct(i int) string { return "http://" + string(c.engines[i%len(c.engines)]) }

// hold holds all conversations, so many at once. choose gives the URL for a turn
// of the i-th.
func (c caching) hold(t *testing.T, way string, choose func(i, turn int) string) outcome {
	t.Helper()
	talks := make([]*dialogue, c.talks)
	for i := range talks {
		talks[i] = newDialogue(fmt.Sprintf("%s-%d", way, i), i)
	}
	o, from := outcome{way: way}, 0
	if c.midway != nil {
		from = c.turns / 2
		c.hear(t, &o, talks, 0, from, choose)
		c.midway()
	}
	c.hear(t, &o, talks, from, c.turns, choose)
	return o
}

// hear holds the turns of all conversations from one to before another.
func (c caching) hear(t *testing.T, o *outcome, talks []*dialogue, from, to int, choose func(i, turn int) string) {
	t.Helper()
	// llama.cpp closes a connection after each stream, without a word: a client
	// that keeps connections trips over that.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var mu sync.Mutex // guards o
	var group errgroup.Group
	group.SetLimit(c.atOnce)
	for i, d := range talks {
		group.Go(func() error {
			for turn := from; turn < to; turn++ {
				r := stage.Do(t.Context(), client, d.next(choose(i, turn)))
				u, err := d.heard(&r)
				if err != nil {
					return fmt.Errorf("turn %d: %w", turn, err)
				}
				mu.Lock()
				o.add(turn, u, &r)
				mu.Unlock()
			}
			return nil
		})
	}
	check(t, group.Wait())
}

// everyEngineWorked holds, by Envoy's own count, that no engine got nothing and
// that every request was sent once, but for the retries.
func (c caching) everyEngineWorked(t *testing.T) {
	t.Helper()
	sent, err := c.stage.Sent(t.Context(), "main")
	check(t, err)
	sum := 0
	for _, e := range c.engines {
		if sent[e] == 0 {
			t.Errorf("engine %s got no request: %v", e, sent)
		}
		sum += sent[e]
	}
	retries, err := c.stage.Stat(t.Context(), "main", "cluster.chat.upstream_rq_retry")
	check(t, err)
	if want := c.talks*c.turns + retries; sum != want {
		t.Errorf("%d requests were sent to engines, want %d, of them %d retries: %v", sum, want, retries, sent)
	}
}

// table shows ways side by side, the first as the best there can be.
func table(outcomes ...outcome) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "prompt tokens:\tfirst turns\tlater turns\tof these cached\tshare\tof the best\tmedian TTFT\t")
	best := outcomes[0].later.hitRate()
	for _, o := range outcomes {
		rate := o.later.hitRate()
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f %%\t%.1f %%\t%.1f ms\t\n", o.way, o.first.Prompt, o.later.Prompt, o.later.Cached,
			100*rate, 100*rate/best, o.ttft().Seconds()*1e3)
	}
	w.Flush()
	return text.String()
}

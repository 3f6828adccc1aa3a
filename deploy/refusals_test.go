package deploy

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/deploy/stage"
)

// problem is an error as OpenAI's clients read it.
type problem struct {
	Error struct{ Message, Type, Code string }
}

// mustRefuse holds that a reply is a refusal in the shape that clients read.
func mustRefuse(t *testing.T, r stage.Reply, status int) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal(r.Body, &p); err != nil || r.Status != status || p.Error.Message == "" || p.Error.Code == "" {
		t.Errorf("%v, want %d with an error object", &r, status)
	}
	if leak := r.Leak(); leak != "" {
		t.Errorf("the client was told %s", leak)
	}
	if kind := r.Header.Get("content-type"); kind != "application/json" {
		t.Errorf("a %d is of type %q, want application/json: %s", r.Status, kind, r.Body)
	}
	return p
}

// What nobody serves gets an error that OpenAI's clients understand, never another
// model's engines.
func TestWhatNobodyServes(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions, Edit: declared})
	client := stage.NewClient()
	for _, state := range []string{"alive", "dead"} {
		if state == "dead" {
			check(t, s.Process("extproc-main").Kill())
		}
		for name, c := range map[string]struct {
			body   string
			status int
		}{
			"unknown model": {string(stage.Chat("gpt-9", "hello", true, 0)), 404},
			"no model":      {`{"messages":[]}`, 400},
			"null model":    {`{"model":null}`, 400},
			"not JSON":      {`model=llama`, 400},
			"empty":         {``, 400},
			"twice":         {`{"model":"gpt-9","model":"llama-3.3-70b"}`, 400},
		} {
			t.Run(state+"/"+name, func(t *testing.T) {
				mustRefuse(t, stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: []byte(c.body)}), c.status)
			})
		}
	}
	large := stage.Call{URL: s.URL("main"), Body: stage.Chat("llama-3.3-70b", "large", false, 33<<20)}
	mustRefuse(t, stage.Do(t.Context(), client, large), 413)
	if n := len(arrivals(t, s)); n != 0 {
		t.Errorf("%d of these requests reached an engine", n)
	}
}

// With no engine left requests get a 503 at once, before anybody has noticed and
// after, weir-extproc alive or dead; and an engine that is back serves.
func TestNoEngineIsLeft(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/four.yaml"})
	client := stage.NewClient()
	refused := func(when string) {
		for i := range 10 {
			r := stage.Do(t.Context(), client, chatCall(s.URL("main"), fmt.Sprint(when, i)))
			status := 503
			if when == "at once" && r.Status == 429 {
				status = 429 // those engines of which it is known already leave too few
			}
			if p := mustRefuse(t, r, status); p.Error.Code == "no_engine" && r.Header.Get("retry-after") != "5" {
				t.Errorf("%s: %v with retry-after %q, want 5", when, &r, r.Header.Get("retry-after"))
			}
			if r.Took > 2*time.Second {
				t.Errorf("%s: a 503 took %v", when, r.Took)
			}
		}
	}
	engines := s.Fleet.Pools[0].Engines
	for _, e := range engines {
		check(t, s.Process("engine-"+string(e)).Kill())
	}
	refused("at once")
	for _, e := range engines {
		eventually(t, "the front-end is told", 10*time.Second, func() bool { return health(s, "main", e) == "unready" })
	}
	refused("when it is known")
	check(t, s.Process("extproc-main").Kill())
	refused("without ext_proc")
	check(t, s.Process("engine-"+string(engines[0])).Start())
	check(t, s.Process("extproc-main").Start())
	check(t, s.Await(t.Context(), "main", true))
	eventually(t, "the engine serves again", 10*time.Second, func() bool { return health(s, "main", engines[0]) == "ready" })
	eventually(t, "requests are answered", 10*time.Second, func() bool {
		r := stage.Do(t.Context(), client, chatCall(s.URL("main"), "back"))
		return r.OK()
	})
}

// Where demand exceeds capacity the plan's fraction is refused with a 429 that says
// when to come back, by conversation, and without weir-extproc by chance.
func TestSheddingRefusesTheFraction(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/four.yaml", Edit: func(text string) string {
		// 100 RPS for 72: four engines of 20 less the headroom.
		return strings.NewReplacer("chat: 20 rps", "chat: 100 rps", "2s, 100%: 2s", "50ms, 100%: 50ms").Replace(text)
	}})
	for _, state := range []string{"with ext_proc", "without ext_proc"} {
		t.Run(state, func(t *testing.T) {
			if state == "without ext_proc" {
				check(t, s.Process("extproc-main").Kill())
				check(t, s.Await(t.Context(), "main", false))
			}
			const n = 500
			refused := 0
			for _, r := range doAll(t, s, names(state, n)) {
				if r.OK() {
					continue
				}
				refused++
				mustRefuse(t, r, 429)
				if why := r.Header.Values("x-weir-shed-reason"); len(why) != 1 || why[0] != "plan" {
					t.Errorf("a 429 says %q for a reason, want plan", why)
				}
				if after, err := strconv.Atoi(r.Header.Get("retry-after")); err != nil || after < 1 {
					t.Errorf("a 429 says retry-after %q, want seconds", r.Header.Get("retry-after"))
				}
			}
			if z := zScore(float64(refused), n, 0.28); math.Abs(z) > 4 {
				t.Errorf("%d of %d refused, want 28 %%: z = %.1f", refused, n, z)
			}
		})
	}
}

// doAll sends the first turns of conversations, some at a time.
func doAll(t *testing.T, s *stage.Stage, names []string) []stage.Reply {
	client := stage.NewClient()
	replies := make([]stage.Reply, len(names))
	slots := make(chan struct{}, 16)
	var clients sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		clients.Go(func() {
			defer func() { <-slots }()
			replies[i] = stage.Do(t.Context(), client, chatCall(s.URL("main"), name))
		})
	}
	clients.Wait()
	return replies
}

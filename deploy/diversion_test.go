package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/deploy/stage"
	"weir/fleet"
)

// talks are conversations at the one front-end of a stage, and where their last turns
// went.
type talks struct {
	t     *testing.T
	stage *stage.Stage
	turns map[string]int
	at    map[string]fleet.EngineID
}

// turn sends the next turn of each, so few at a time that they fill no engine.
func (c *talks) turn(names ...string) {
	c.t.Helper()
	client := stage.NewClient()
	var under errgroup.Group
	under.SetLimit(4)
	for _, name := range names {
		turn := c.turns[name]
		c.turns[name]++
		headers := map[string]string{"x-session-id": name, "x-test-id": fmt.Sprint(name, "/", turn)}
		under.Go(func() error {
			call := stage.Call{URL: c.stage.URL("main"), Body: stage.Turn("llama-3.3-70b", name, turn, false), Headers: headers}
			if r := stage.Do(c.t.Context(), client, call); !r.OK() {
				c.t.Errorf("%s, turn %d: %v", name, turn, &r)
			}
			return nil
		})
	}
	_ = under.Wait() // what failed was told
	groups := byTest(arrivals(c.t, c.stage))
	for _, name := range names {
		e, err := engineOf(groups[fmt.Sprint(name, "/", c.turns[name]-1)])
		if err != nil {
			c.t.Errorf("%s: %v", name, err)
		}
		c.at[name] = e
	}
}

// where is where each of some was last.
func (c *talks) where(names []string) map[string]fleet.EngineID {
	where := map[string]fleet.EngineID{}
	for _, name := range names {
		where[name] = c.at[name]
	}
	return where
}

func named(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, "-", i)
	}
	return names
}

// An engine whose queue is full, whoever filled it, is given no conversation, new or
// old. Those that it turns away stay where they went when the queue is gone, and come
// back after a while; all others stay where they are all the time.
func TestAFullEngineTurnsConversationsAway(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions, Edit: declared})
	c := &talks{t, s, map[string]int{}, map[string]fleet.EngineID{}}
	early, late := named("early", 40), named("late", 40)
	c.turn(early...)
	before := c.where(early)
	full := c.at[early[0]]
	fills := func(n string) func() bool {
		return func() bool {
			return strings.Contains(page(t, s.AdminAddress("extproc-main"), "/metrics"), `weir_extproc_engines_full{pool="`+poolWith(s, full)+`"} `+n+"\n")
		}
	}
	eventually(t, "no engine is full", 10*time.Second, fills("0"))

	setFaults(t, full, `{"hang":true}`)
	hanging, leave := context.WithCancel(t.Context())
	defer leave()
	var queue sync.WaitGroup
	queued := named("queued", 12)
	for _, name := range queued {
		queue.Go(func() {
			call := chatCall("http://"+string(full), name)
			call.Timeout = time.Minute
			stage.Do(hanging, stage.NewClient(), call)
		})
	}
	eventually(t, "the queue is there", 10*time.Second, func() bool {
		there := atEngine(arrivals(t, s), full)
		return !slices.ContainsFunc(queued, func(name string) bool { return !there[name] })
	})
	setFaults(t, full, `{}`)
	eventually(t, "weir-extproc knows of the queue", 10*time.Second, fills("1"))

	c.turn(append(early, late...)...)
	away := c.where(early)
	var turned []string
	for name, e := range c.at {
		switch was := before[name]; {
		case e == full:
			t.Errorf("%s went to the engine whose queue is full", name)
		case was == full:
			turned = append(turned, name)
		case was != "" && was != e:
			t.Errorf("%s moved from %s to %s, neither of which is full", name, was, e)
		}
	}
	if len(turned) == 0 {
		t.Fatal("nobody was turned away: the test shows nothing")
	}

	leave()
	queue.Wait()
	eventually(t, "weir-extproc knows that the queue is gone", 10*time.Second, fills("0"))
	c.turn(turned...)
	for _, name := range turned {
		if c.at[name] != away[name] {
			t.Errorf("%s moved from %s to %s as soon as the queue was gone", name, away[name], c.at[name])
		}
	}
	eventually(t, "those that were turned away are back", 40*time.Second, func() bool {
		c.turn(turned...)
		for _, name := range turned {
			if c.at[name] != away[name] && c.at[name] != before[name] {
				t.Errorf("%s is at %s, which is new to it", name, c.at[name])
			}
			if c.at[name] != before[name] {
				return false
			}
		}
		return true
	})
	c.turn(early...)
	for _, name := range early {
		if c.at[name] != before[name] {
			t.Errorf("%s ends at %s, where it was not before", name, c.at[name])
		}
	}
	t.Logf("%d of %d conversations were turned away and came back", len(turned), len(early))
	noTimeouts(t, s)
}

// poolWith is the name of an engine's pool.
func poolWith(s *stage.Stage, e fleet.EngineID) string {
	for _, p := range s.Fleet.Pools {
		for _, other := range p.Engines {
			if other == e {
				return string(p.ID)
			}
		}
	}
	return ""
}

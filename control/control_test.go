package control

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

// testConfig is that of a loop in a world where all is well.
func testConfig() Config {
	w := newWorld()
	for _, id := range []fleet.EngineID{"p1", "p2", "q1", "q2"} {
		w.engines[id] = fleet.Ready
	}
	c := w.config()
	c.Log = zap.NewNop()
	return c
}

// runLoop runs a loop until the test ends; call it inside a bubble.
func runLoop(t *testing.T, l *Loop) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func TestLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testConfig())
		if r := l.Latest(); r.State != nil || r.Plan != nil || !r.At.IsZero() {
			t.Errorf("before the first round: %+v", r)
		}
		runLoop(t, l)
		elapse(time.Second)
		synctest.Wait()
		r := l.Latest()
		if r.State == nil || r.Plan == nil || r.Plan.Status != fleet.Optimal || !r.Planned.Equal(r.At) {
			t.Fatalf("after the first round: %+v", r)
		}
		elapse(DefaultTick)
		synctest.Wait()
		if next := l.Latest(); next.State == r.State || next.State.Previous != r.Plan || next.At.Sub(r.At) != DefaultTick {
			t.Error("the next round's state is not a new one with the last plan in it")
		}
	})
}

func TestLatestSaysWhyAndSinceWhenAPlanIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		makePlan, rounds := c.Plan, 0
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) {
			if rounds++; rounds > 1 {
				return nil, errors.New("no luck")
			}
			return makePlan(s)
		}
		c.Publish = func(*fleet.State, *fleet.Plan) error { return errors.New("no line") }
		l := New(c)
		runLoop(t, l)
		elapse(time.Second)
		synctest.Wait()
		first := l.Latest()
		elapse(DefaultTick)
		synctest.Wait()
		r := l.Latest()
		if r.Plan.Status != fleet.Held || !r.Planned.Equal(first.At) || r.Why != "planning failed: no luck" || r.Unpublished != "no line" {
			t.Errorf("round %+v, want one that holds the plan of %v and says why", r, first.At)
		}
	})
}

func TestLatestWithoutAPlanShowsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		c.Plan = func(*fleet.State) (*fleet.Plan, error) { return nil, nil }
		c.Publish = func(*fleet.State, *fleet.Plan) error { t.Error("published nothing"); return nil }
		l := New(c)
		runLoop(t, l)
		elapse(time.Second)
		synctest.Wait()
		if r := l.Latest(); r.State == nil || r.Plan != nil || r.Why == "" {
			t.Errorf("round %+v; want a state, no plan and why", r)
		}
	})
}

// News has its round at once, but not more often than is good, and ticks go on.
func TestNewsDoesNotWaitForATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		var rounds []time.Time
		c.Publish = func(*fleet.State, *fleet.Plan) error { rounds = append(rounds, time.Now()); return nil }
		l := New(c)
		runLoop(t, l)
		elapse(probeCheck + 10*time.Millisecond) // the first round is over
		synctest.Wait()
		first := rounds[0]
		hurry := func() { l.Post(func(time.Time) { l.Hurry() }) }
		for range 3 {
			hurry() // too soon after a round for one, and one is enough for all
		}
		elapse(restAtLeast)
		elapse(800 * time.Millisecond)
		hurry() // a while after any round: there and then
		elapse(DefaultTick)
		synctest.Wait()
		var got []time.Duration
		for _, at := range rounds {
			got = append(got, at.Sub(first))
		}
		want := []time.Duration{0, restAtLeast, restAtLeast + 810*time.Millisecond, DefaultTick}
		if !slices.Equal(got, want) || l.Counters.RoundsEarly.Load() != 2 {
			t.Errorf("rounds at %v, want %v; %d early, want 2", got, want, l.Counters.RoundsEarly.Load())
		}
	})
}

// A slow round rests as long as it took, whatever the news.
func TestNewsDoesNotPlanAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		makePlan := c.Plan
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) {
			elapse(500 * time.Millisecond)
			return makePlan(s)
		}
		l := New(c)
		runLoop(t, l)
		for range 1000 {
			l.Post(func(time.Time) { l.Hurry() })
			elapse(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := l.Counters.Rounds.Load(); n < 9 || n > 15 {
			t.Errorf("%d rounds of half a second in ten, want one a second and those of the tick", n)
		}
	})
}

func TestEventsCarryTheTimeOfTheirPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		makePlan := c.Plan
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) {
			elapse(time.Second) // a slow solver
			return makePlan(s)
		}
		l := New(c)
		runLoop(t, l)
		elapse(probeCheck + 500*time.Millisecond) // in the middle of the first plan
		posted := time.Now()
		var at, ran time.Time
		if !l.Post(func(now time.Time) { at, ran = now, time.Now() }) {
			t.Fatal("post refused")
		}
		elapse(time.Second)
		synctest.Wait()
		if !at.Equal(posted) || !ran.After(posted) {
			t.Errorf("event posted at %v was given %v and ran at %v", posted, at, ran)
		}
	})
}

func TestEventsAreObservedBeforeThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		var order []string
		makePlan := c.Plan
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) {
			order = append(order, "plan")
			return makePlan(s)
		}
		l := New(c)
		for range 100 {
			l.Post(func(time.Time) { order = append(order, "event") })
		}
		runLoop(t, l)
		elapse(time.Second)
		synctest.Wait()
		if len(order) != 101 || order[100] != "plan" {
			t.Errorf("%d steps, the last %q; want 100 events, then the plan", len(order), order[len(order)-1])
		}
	})
}

func TestPostDoesNotBlock(t *testing.T) {
	l := New(testConfig()) // not running
	for range maxEvents {
		if !l.Post(func(time.Time) {}) {
			t.Fatal("refused below the cap")
		}
	}
	if l.Post(func(time.Time) {}) {
		t.Error("accepted above the cap")
	}
	if got := l.Counters.EventsDropped.Load(); got != 1 {
		t.Errorf("%d events dropped, want 1", got)
	}
}

// Where nobody knows yet what engines a pool has, a plan would take them from clients
// that have a list of before. It waits for them, but not for ever.
func TestTheFirstPlanWaitsForEnginesToBeFound(t *testing.T) {
	for name, found := range map[string]time.Duration{"found": 6 * time.Second, "never": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, began := testConfig(), time.Now()
				before := c.State
				c.State = func(now time.Time, previous *fleet.Plan) *fleet.State {
					s := before(now, previous)
					f := *s.Fleet
					f.Pools = slices.Clone(f.Pools)
					f.Pools[1].Awaited = now.Sub(began) < found
					s.Fleet = &f
					return s
				}
				l := New(c)
				runLoop(t, l)
				want := min(found, sourceWait)
				elapse(want - probeCheck)
				synctest.Wait()
				if r := l.Latest(); r.State != nil {
					t.Errorf("there was a round %v after the start", r.At.Sub(began))
				}
				elapse(2 * probeCheck)
				synctest.Wait()
				if r := l.Latest(); r.State == nil {
					t.Errorf("no round yet, %v after the start", time.Since(began))
				}
			})
		})
	}
}

func TestRunEndsWithItsContextWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		c.Publish = func(*fleet.State, *fleet.Plan) error { t.Error("published after the end"); return nil }
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := New(c).Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// TestRestoredPlanThatLacksAStream: a class that came with the restart must not
// wait for reports without a route.
func TestRestoredPlanThatLacksAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		c.Restored = &fleet.Plan{Status: fleet.Optimal}
		state := c.State
		c.State = func(now time.Time, previous *fleet.Plan) *fleet.State {
			s := state(now, previous)
			s.Demand[stream] = fleet.Demand{Rps: 1, Source: fleet.SourceDeclared}
			return s
		}
		l := New(c)
		runLoop(t, l)
		elapse(time.Second)
		synctest.Wait()
		if p := l.Latest().Plan; p == nil || p.Status != fleet.Optimal || p.Route(stream) == nil {
			t.Errorf("plan %+v, want a new one with a route for the stream", p)
		}
	})
}

// elapse lets the bubble's clock, which no real time moves, go on.
func elapse(d time.Duration) { <-time.After(d) }

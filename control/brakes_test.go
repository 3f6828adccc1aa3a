package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"weir/fleet"
)

var (
	freeze  = fleet.BrakeTarget{Kind: fleet.BrakeFreeze}
	drainQ  = fleet.BrakeTarget{Kind: fleet.BrakeDrain, Pool: "q"}
	pinP    = fleet.BrakeTarget{Kind: fleet.BrakePin, FrontEnd: "A", Class: "chat", Pool: "p"}
	limited = fleet.BrakeTarget{Kind: fleet.BrakeLimit, Class: "chat"}
)

func mustBrake(t *testing.T, l *Loop, b fleet.Brake, hold time.Duration) []fleet.Brake {
	t.Helper()
	b.Owner = "ann@ops"
	done, err := l.Brake(b, hold, false)
	if err != nil {
		t.Fatal(err)
	}
	return done.Brakes
}

// aRound lets one go by and returns it.
func aRound(l *Loop) fleet.Round {
	elapse(DefaultTick)
	synctest.Wait()
	return l.Latest()
}

// A drain is in the state that the next plan is made of and that is published with it;
// it ends by itself, or when somebody ends it.
func TestADrainIsInTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		var planned, published, told atomic.Int64
		makePlan, publish := c.Plan, c.Publish
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) {
			planned.Store(int64(s.Readiness("q", "q1")))
			return makePlan(s)
		}
		c.Publish = func(s *fleet.State, p *fleet.Plan) error {
			published.Store(int64(s.Readiness("q", "q1")))
			return publish(s, p)
		}
		c.Braked = func(brakes []fleet.Brake) { told.Store(int64(len(brakes))) }
		l := New(c)
		runLoop(t, l)
		aRound(l)
		expect := func(when string, want fleet.Readiness, ready int) {
			t.Helper()
			r := aRound(l)
			p, q := fleet.Readiness(planned.Load()), fleet.Readiness(published.Load())
			if p != want || q != want || r.State.ReadyEngines(r.State.Fleet.Pool("q")) != ready {
				t.Errorf("%s: planned of a %v engine, published a %v one; want %v and %d ready", when, p, q, want, ready)
			}
			if n := told.Load(); n != int64(len(r.State.Brakes)) {
				t.Errorf("%s: told of %d brakes, %d are in force", when, n, len(r.State.Brakes))
			}
		}
		if got := mustBrake(t, l, fleet.Brake{BrakeTarget: drainQ}, time.Minute); len(got) != 1 || got[0].Until.Sub(got[0].Since) != time.Minute {
			t.Errorf("in force: %+v", got)
		}
		expect("drained", fleet.Draining, 0)
		elapse(time.Minute)
		expect("expired", fleet.Ready, 2)
		mustBrake(t, l, fleet.Brake{BrakeTarget: drainQ}, time.Minute)
		expect("drained again", fleet.Draining, 0)
		if got, err := l.Release(drainQ, "bob@ops"); err != nil || len(got.Brakes) > 0 || got.Was.Owner != "ann@ops" {
			t.Errorf("released: %+v, %v", got, err)
		}
		expect("released", fleet.Ready, 2)
		if p, r, e := l.Counters.BrakesPut.Load(), l.Counters.BrakesReleased.Load(), l.Counters.BrakesExpired.Load(); p != 2 || r != 1 || e != 1 {
			t.Errorf("put %d, released %d, expired %d; want 2, 1, 1", p, r, e)
		}
	})
}

// While it is frozen the last plan stays, whatever changes; news of engines is published
// with it all the same, drains too.
func TestAFreezeHoldsThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		var plans, published, news atomic.Int64
		makePlan, publish := c.Plan, c.Publish
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) { plans.Add(1); return makePlan(s) }
		c.Publish = func(s *fleet.State, p *fleet.Plan) error {
			published.Add(1)
			news.Store(int64(s.Readiness("q", "q1")))
			return publish(s, p)
		}
		l := New(c)
		runLoop(t, l)
		aRound(l)
		mustBrake(t, l, fleet.Brake{BrakeTarget: limited, Rps: 1e6}, time.Minute)
		before := aRound(l).Plan
		got := mustBrake(t, l, fleet.Brake{BrakeTarget: freeze, Note: "a game"}, time.Minute)
		mustBrake(t, l, fleet.Brake{BrakeTarget: drainQ}, time.Minute)
		plans.Store(0)
		published.Store(0)
		r := aRound(l)
		want := "frozen by ann@ops until " + got[0].Until.UTC().Format("2006-01-02 15:04:05 UTC") + " (a game)"
		if r.Plan.Status != fleet.Held || r.Plan.Why != want || r.Why != want {
			t.Errorf("%s: %q, want held: %q", r.Plan.Status, r.Plan.Why, want)
		}
		if diff := cmp.Diff(before.Routes, r.Plan.Routes); diff != "" {
			t.Errorf("the plan has changed:\n%s", diff)
		}
		if _, err := l.Release(limited, ""); err != nil {
			t.Fatal(err)
		}
		if b := aRound(l).Plan.Brakes; len(b) != 1 || b[0].BrakeTarget != limited {
			t.Errorf("the plan that stays was made under %v, want the limit", b)
		}
		if p, q, n := plans.Load(), published.Load(), fleet.Readiness(news.Load()); p != 0 || q != 2 || n != fleet.Draining {
			t.Errorf("%d plans made, %d published with a %v engine; want 0, 2, draining", p, q, n)
		}
		if _, err := l.Release(freeze, ""); err != nil {
			t.Fatal(err)
		}
		if r := aRound(l); r.Plan.Status != fleet.Optimal || plans.Load() != 1 {
			t.Errorf("thawed: %s, %d plans made", r.Plan.Status, plans.Load())
		}
	})
}

// Whoever renews a brake learns whose it was, so does the log, and what nobody says anew
// stays.
func TestABrakeIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		core, logs := observer.New(zap.InfoLevel)
		c.Log = zap.New(core)
		l := New(c)
		runLoop(t, l)
		aRound(l)
		brake := func(owner, note string, rps float64) *fleet.Brake {
			t.Helper()
			done, err := l.Brake(fleet.Brake{BrakeTarget: limited, Rps: rps, Owner: owner, Note: note}, time.Minute, false)
			if err != nil || len(done.Brakes) != 1 || done.Brakes[0].Owner != owner || done.Brakes[0].Rps != rps {
				t.Fatalf("%+v, %v", done, err)
			}
			return done.Was
		}
		if was := brake("ann@ops", "the final", 5); was != nil {
			t.Errorf("the first replaces %+v", was)
		}
		if was := brake("bob@ops", "", 50); was == nil || was.Owner != "ann@ops" || was.Note != "the final" || was.Rps != 5 {
			t.Errorf("the second replaces %+v", was)
		}
		if got := aRound(l).Brakes[0].Note; got != "the final" {
			t.Errorf("the note is %q", got)
		}
		if was := brake("bob@ops", "all night", 50); was == nil || was.Owner != "bob@ops" || l.Latest().Brakes[0].Note != "all night" {
			t.Errorf("the third replaces %+v", was)
		}
		told := logs.FilterMessage("brake put on").All()
		if last := told[1].ContextMap(); len(told) != 3 || last["ownerBefore"] != "ann@ops" || last["noteBefore"] != "the final" || last["rpsBefore"] != 5.0 {
			t.Errorf("logged: %v", last)
		}
	})
}

// What cannot be is refused, and changes nothing.
func TestBrakesThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		fails := errors.New("no luck")
		makePlan := c.Plan
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) {
			if fails != nil {
				return nil, fails
			}
			return makePlan(s)
		}
		l := New(c)
		runLoop(t, l)
		aRound(l)
		refused := func(b fleet.BrakeTarget, hold time.Duration, want string) {
			t.Helper()
			if _, err := l.Brake(fleet.Brake{BrakeTarget: b, Owner: "a"}, hold, false); !errors.Is(err, fleet.ErrBrake) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", b, err, want)
			}
		}
		refused(freeze, time.Minute, "there is no plan yet")
		l.Post(func(time.Time) { fails = nil })
		aRound(l)
		refused(freeze, 25*time.Hour, "24h0m0s at most")
		refused(fleet.BrakeTarget{Kind: fleet.BrakeDrain, Pool: "r"}, time.Minute, `there is no pool "r": name one of p, q`)
		mustBrake(t, l, fleet.Brake{BrakeTarget: drainQ}, time.Minute)
		refused(fleet.BrakeTarget{Kind: fleet.BrakeDrain, Pool: "p"}, time.Minute, `no engine for class "chat"`)
		if _, err := l.Release(freeze, ""); !errors.Is(err, fleet.ErrBrake) {
			t.Errorf("release of nothing: %v", err)
		}
		if r := l.Latest(); len(r.State.Brakes) > 0 || len(r.Brakes) != 1 {
			t.Errorf("in force before the round: %v, told of: %v", r.State.Brakes, r.Brakes)
		}
		if got := aRound(l).State.Brakes; len(got) != 1 || got[0].BrakeTarget != drainQ {
			t.Errorf("in force: %v, want the drain of q alone", got)
		}
		if got, err := l.Brake(fleet.Brake{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeDrain, Pool: "p"}, Owner: "a"}, time.Minute, true); err != nil || len(got.Brakes) != 2 {
			t.Errorf("by force: %v, %v", got, err)
		}
	})
}

// What operators ordered outlives the control plane, and its time goes on meanwhile.
func TestOrdersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Store{t.TempDir()}
		begin := func(ordered *Orders) (*Loop, func()) {
			k := NewKeeper(store, zap.NewNop())
			c := testConfig()
			c.Ordered, c.Keep = ordered, k.KeepOrders
			l := New(c)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 2)
			go func() { done <- l.Run(ctx) }()
			go func() { done <- k.Run(ctx) }()
			aRound(l)
			return l, func() {
				cancel()
				if err := errors.Join(<-done, <-done); err != nil {
					t.Error(err)
				}
			}
		}
		l, end := begin(nil)
		mustBrake(t, l, fleet.Brake{BrakeTarget: pinP, Share: 0.25, Note: "why"}, time.Hour)
		mustBrake(t, l, fleet.Brake{BrakeTarget: limited, Rps: 5}, time.Minute)
		if _, err := l.Choose(some(fleet.PolicyEven), some(fleet.PolicyNearest)); err != nil {
			t.Fatal(err)
		}
		before := aRound(l)
		end()
		ordered, err := store.LoadOrders()
		if err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		l, end = begin(ordered)
		r := aRound(l)
		if diff := cmp.Diff(before.State.Brakes[1:], r.State.Brakes); diff != "" || len(r.State.Brakes) != 1 { // the limit came first and is over
			t.Errorf("brakes (-before +after the restart):\n%s", diff)
		}
		if r.Choice != before.Choice || r.Choice.Policy.Name != fleet.PolicyEven {
			t.Errorf("policies %+v, before the restart %+v", r.Choice, before.Choice)
		}
		if _, err := l.Release(pinP, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Choose(some(fleet.PolicyOptimal), some("")); err != nil {
			t.Fatal(err)
		}
		end()
		if ordered, err = store.LoadOrders(); err != nil || len(ordered.Brakes) > 0 {
			t.Errorf("orders %+v, %v; want no brakes", ordered, err)
		}
	})
}

// A plan that refuses what a limit takes off passes the guard while pools are free, and
// one that refuses more does not.
func TestTheGuardKnowsLimits(t *testing.T) {
	s := &fleet.State{
		Fleet: &fleet.Fleet{
			FrontEnds: []fleet.FrontEnd{{ID: "A"}},
			Pools:     []fleet.Pool{{ID: "p", Engines: []fleet.EngineID{"p1"}}},
			Classes:   []fleet.Class{{ID: "chat"}},
		},
		Demand: map[fleet.Stream]fleet.Demand{stream: {Rps: 10}},
		Brakes: []fleet.Brake{{BrakeTarget: limited, Rps: 4}},
	}
	for shed, want := range map[float64]string{0: "", 6: "", 6.1: "sheds while capacity is free"} {
		plan := &fleet.Plan{
			Routes: []fleet.Route{{FrontEnd: "A", Class: "chat", DemandRps: 10, ShedRps: shed, Shares: []fleet.Share{{Pool: "p", Share: 1, Rps: 10 - shed}}}},
			Pools:  []fleet.PoolPlan{{Pool: "p", CapacityRps: 20, Rps: 10 - shed, Utilisation: 0.5}},
		}
		err := guard(s, plan)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v of 10 RPS refused, 4 allowed: %v, want %q", shed, err, want)
		}
	}
}

// What makes no sense of earlier orders, as when an older Weir comes back, takes no drain
// with it.
func TestOrdersThatMakeNoSenseAreDropped(t *testing.T) {
	now := time.Now()
	drain := fleet.Brake{BrakeTarget: drainQ, Owner: "a", Since: now, Until: now.Add(time.Hour)}
	even, none, best := &fleet.Chosen{Name: fleet.PolicyEven}, &fleet.Chosen{}, &fleet.Chosen{Name: "best"}
	many := []fleet.Brake{}
	for i := range fleet.MaxBrakes + 1 {
		b := drain
		b.Pool = fleet.PoolID(fmt.Sprint("p", i))
		many = append(many, b)
	}
	for name, c := range map[string]struct {
		given, want Orders
		why         []string
	}{
		"all is well":   {Orders{Policy: even, Shadow: none, Brakes: []fleet.Brake{drain}}, Orders{Policy: even, Shadow: none, Brakes: []fleet.Brake{drain}}, nil},
		"a policy":      {Orders{Policy: best, Shadow: even, Brakes: []fleet.Brake{drain}}, Orders{Shadow: even, Brakes: []fleet.Brake{drain}}, []string{`no policy "best"`}},
		"a shadow":      {Orders{Policy: even, Shadow: best}, Orders{Policy: even}, []string{`no policy "best"`}},
		"no policy":     {Orders{Policy: none}, Orders{}, []string{`no policy ""`}},
		"brakes":        {Orders{Brakes: []fleet.Brake{{BrakeTarget: freeze, Owner: "a"}, drain, {BrakeTarget: fleet.BrakeTarget{Kind: "halt"}}}}, Orders{Brakes: []fleet.Brake{drain}}, []string{"freeze: for 0s", `no brake "halt"`}},
		"one too many":  {Orders{Brakes: many}, Orders{Brakes: many[:fleet.MaxBrakes]}, []string{"100 brakes are possible"}},
		"both policies": {Orders{Policy: best, Shadow: best}, Orders{}, []string{"best", "best"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := Store{t.TempDir()}
			if err := store.SaveOrders(&c.given); err != nil {
				t.Fatal(err)
			}
			ordered, err := store.LoadOrders()
			if err != nil {
				t.Fatal(err)
			}
			conf := testConfig()
			core, logged := observer.New(zap.ErrorLevel)
			conf.Ordered, conf.Log = ordered, zap.New(core)
			l := New(conf)
			want := New(Config{Ordered: &c.want, Log: zap.NewNop()})
			if diff := cmp.Diff(want.orders(), l.orders()); diff != "" {
				t.Errorf("orders in force (-want +got):\n%s", diff)
			}
			if got := int(l.Counters.OrdersDropped.Load()); got != len(c.why) || logged.Len() != got {
				t.Fatalf("%d dropped and %d logged, want %d", got, logged.Len(), len(c.why))
			}
			for i, e := range logged.All() {
				if text := fmt.Sprint(e.ContextMap()["error"]); !strings.Contains(text, c.why[i]) {
					t.Errorf("logged %q, want %q", text, c.why[i])
				}
			}
		})
	}
}

// Who was told that nobody heard him has ordered nothing: his order does not take effect
// behind his back, and may be given again.
func TestAnOrderThatIsNotHeardIsNotCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		busy := time.Duration(0)
		makePlan := c.Plan
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) {
			elapse(busy)
			return makePlan(s)
		}
		l := New(c)
		runLoop(t, l)
		aRound(l)
		mustBrake(t, l, fleet.Brake{BrakeTarget: drainQ}, time.Hour)
		l.Post(func(time.Time) { busy = chooseWait + DefaultTick })
		aRound(l) // it is at a long plan
		if _, err := l.Release(drainQ, "ann@ops"); !errors.Is(err, errNotHeard) {
			t.Fatalf("asked a busy loop: %v, want %v", err, errNotHeard)
		}
		elapse(2 * DefaultTick) // the plan is made
		l.Post(func(time.Time) { busy = 0 })
		elapse(2 * chooseWait)
		if got := aRound(l).State.Brakes; len(got) != 1 {
			t.Errorf("in force: %v, want the drain", got)
		}
		if got, err := l.Release(drainQ, "ann@ops"); err != nil || len(got.Brakes) > 0 {
			t.Errorf("released again: %v, %v", got, err)
		}
	})
}

// Package control decides when: it observes, plans, guards and publishes, round
// after round. One goroutine, that of [Loop.Run], owns all mutable state; what it
// calls is passed in as plain functions, and readers get immutable snapshots.
//
// Stale weights beat none. A plan that could not be made, or that a guard
// refuses, leaves the last one in force, with status Held and the reason, and the
// state's news of engines is published with it all the same. Without a last plan
// nothing is published.
package control

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"weir/fleet"
)

const (
	// DefaultTick is the time between rounds where the fleet does not say.
	DefaultTick = 2 * time.Second
	// probeWait is how long the first plan waits for every engine's first probe.
	probeWait = 3 * time.Second
	// probeCheck is how often it looks whether they are all in.
	probeCheck = 100 * time.Millisecond
	// reportWait is how long a restored plan is held for want of load reports.
	reportWait = 15 * time.Second
	// sourceWait is how long the first plan waits for the engines of pools of which
	// nothing is known: an empty list would take them from clients that still have one.
	sourceWait = 15 * time.Second
	// mostDoubt is the part of a demand that may be in doubt when a restored plan is
	// given up for it.
	mostDoubt = 0.05
	// restAtLeast is how long after a round the next one may come that news asks for. As
	// long as a round took it rests in any case, so that planning never has it all.
	restAtLeast = 100 * time.Millisecond
	// maxEvents bounds the events that wait for the loop while it plans.
	maxEvents = 8192
)

// Config is what a loop works with. The functions but Plan are called by the goroutine
// of Run alone, one at a time; Braked by [New] first, where there is something to tell.
type Config struct {
	// State says what is believed now; the previous plan becomes part of it. Each
	// call returns a state of its own.
	State func(now time.Time, previous *fleet.Plan) *fleet.State
	// Plan makes a plan of a state by the policy that stands in its options, and bounds
	// its own time. It may be called once more while it is at work, for a shadow.
	Plan func(*fleet.State) (*fleet.Plan, error)
	// Publish tells the fleet. It is called each round, with an unchanged plan
	// too, and must not change what it is given.
	Publish func(*fleet.State, *fleet.Plan) error
	// Restored is the last plan of an earlier process; nil: none.
	Restored *fleet.Plan
	// Ordered is what operators had ordered of an earlier process; nil: nothing.
	Ordered *Orders
	// Braked is told of the brakes in force when they change, so that what is drained is
	// not taken for able by whoever judges evidence; nil: nobody is. So is Keep told of
	// all orders each round, to save them: it must not wait, and knows itself what is new.
	Braked func([]fleet.Brake)
	Keep   func(Orders)
	Log    *zap.Logger
}

// Counters count rounds and what went wrong in them. Any goroutine may read them.
type Counters struct {
	Rounds          atomic.Uint64
	RoundsEarly     atomic.Uint64 // of these, those that news asked for
	PlansFailed     atomic.Uint64 // rounds in which no plan could be made
	PlansRefused    atomic.Uint64 // rounds whose plan a guard refused
	RoundsHeld      atomic.Uint64 // rounds that published the last plan again
	RoundsEmpty     atomic.Uint64 // rounds that had nothing to publish
	PublishErrors   atomic.Uint64
	EventsDropped   atomic.Uint64 // the loop was too far behind to take them
	RestoredDropped atomic.Uint64 // plans of an earlier process that made no sense
	OrdersDropped   atomic.Uint64 // orders that operators gave an earlier process and that made no sense
	StartsUnprobed  atomic.Uint64 // first rounds before every engine was probed
	BudgetsKept     atomic.Uint64 // retry budgets whose attempts are not known any more, once a round
	BrakesPut       atomic.Uint64 // or renewed
	BrakesReleased  atomic.Uint64 // by hand
	BrakesExpired   atomic.Uint64
	ShadowsPlanned  atomic.Uint64 // plans of the second policy
	ShadowsFailed   atomic.Uint64 // rounds in which it made none, or one that a guard refused
	ShadowsSkipped  atomic.Uint64 // rounds in which it was still at an earlier one
}

// Loop is the control loop. [New] makes one, Run runs it once.
type Loop struct {
	Counters Counters

	events   chan event
	shades   chan shade    // what the shadow made; it is at one round at a time
	news     chan struct{} // holds one: the next round should not wait for its tick
	latest   atomic.Pointer[fleet.Round]
	planning prometheus.Histogram

	// Only the goroutine of Run touches these.
	config      Config
	plan        *fleet.Plan // the last good one; nil: none
	planned     time.Time   // when it was made; zero: by an earlier process
	restored    bool        // plan is of an earlier process
	started     time.Time
	rested      time.Time     // from when on there may be a round that news asks for
	brakes      []fleet.Brake // in force, by target
	policy      override      // of the fleet file's policy
	shadowed    override      // of the fleet file's shadow
	choice      fleet.Choice  // of the last round
	shadow      shadow
	believed    *fleet.State                   // in the last round; nil: there was none
	turn        *fleet.Turn                    // the last one; nil: none
	retries     map[fleet.Stream]fleet.Retries // in force
	why         string                         // why the last round had no new plan; empty: it had
	unpublished string                         // why the last round could not be published; empty: it was
}

type event struct {
	at time.Time
	do func(now time.Time)
}

// New returns a loop. A restored plan that is not sound is dropped, and so is each
// order that is not; the log says why.
func New(c Config) *Loop {
	l := &Loop{config: c, events: make(chan event, maxEvents), shades: make(chan shade, 1), news: make(chan struct{}, 1), planning: newPlanning()}
	if c.Ordered != nil {
		l.restoreOrders(c.Ordered)
	}
	if c.Restored == nil {
		return l
	}
	if err := sound(c.Restored); err != nil {
		l.Counters.RestoredDropped.Add(1)
		c.Log.Warn("restored plan dropped", zap.Error(err))
		return l
	}
	l.plan, l.restored = c.Restored, true
	return l
}

// Post has the loop call do, with the time of the Post, before its next round.
// This is how whatever State reads is changed. It does not block; false means
// that too many events wait and that this one is dropped and counted.
func (l *Loop) Post(do func(now time.Time)) bool {
	select {
	case l.events <- event{time.Now(), do}:
		return true
	default:
		l.Counters.EventsDropped.Add(1)
		return false
	}
}

// Hurry has a round come soon, beside those of the tick, since what an event brought
// cannot wait. It does not block.
func (l *Loop) Hurry() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// Latest is what was believed and decided in the last round, and zero before the
// first. It is immutable, and any goroutine may ask.
func (l *Loop) Latest() fleet.Round {
	if r := l.latest.Load(); r != nil {
		return *r
	}
	return fleet.Round{}
}

// Run runs rounds until ctx ends, and then returns nil. The first comes when every
// engine was found and probed once, or after fifteen seconds for the one and three
// for the other.
func (l *Loop) Run(ctx context.Context) error {
	l.started = time.Now()
	if !l.awaitProbes(ctx) {
		return nil
	}
	tick := l.round()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var early <-chan time.Time // when the news that there is has its round
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-l.events:
			e.do(e.at)
			continue
		case s := <-l.shades:
			l.takeShade(s)
			continue
		case <-l.news:
			early = time.After(time.Until(l.rested))
			continue
		case <-early:
			l.Counters.RoundsEarly.Add(1)
		case <-ticker.C:
		}
		early = nil
		if next := l.round(); next != tick {
			tick = next
			ticker.Reset(tick)
		}
	}
}

// awaitProbes handles events until every engine's readiness is known or time is
// up; false means that ctx ended.
func (l *Loop) awaitProbes(ctx context.Context) bool {
	check := time.NewTicker(probeCheck)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case e := <-l.events:
			e.do(e.at)
		case <-check.C:
			s, waited := l.config.State(time.Now(), l.plan), time.Since(l.started)
			if known(s) {
				return true
			}
			if waited >= sourceWait || waited >= probeWait && !awaited(s.Fleet) {
				l.Counters.StartsUnprobed.Add(1)
				return true
			}
		}
	}
}

// awaited says whether the engines of some pool are not known yet.
func awaited(f *fleet.Fleet) bool {
	return slices.ContainsFunc(f.Pools, func(p fleet.Pool) bool { return p.Awaited })
}

// known says whether every engine's readiness is.
func known(s *fleet.State) bool {
	if awaited(s.Fleet) {
		return false
	}
	for i := range s.Fleet.Pools {
		for _, e := range s.Fleet.Pools[i].Engines {
			if s.Readiness(s.Fleet.Pools[i].ID, e) == fleet.Unknown {
				return false
			}
		}
	}
	return true
}

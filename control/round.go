package control

import (
	"cmp"
	"errors"
	"math"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

// round observes, plans, guards and publishes once. It returns the time to the
// next round.
func (l *Loop) round() time.Duration {
	l.Counters.Rounds.Add(1)
	for range len(l.events) {
		e := <-l.events
		e.do(e.at)
	}
	select {
	case <-l.news: // it is in this round
	default:
	}
	now := time.Now()
	defer func() { l.rested = time.Now().Add(max(restAtLeast, time.Since(now))) }()
	l.expire(now)
	s := l.config.State(now, l.plan)
	s.Brake(l.brakes)
	s.ElapsedSeconds = l.elapsedSeconds(now)
	choice := l.choose(s)
	l.keepOrders()
	plan := l.decide(now, s)
	l.noteTurn(now, s, plan)
	if plan != nil {
		l.retries = fleet.RetryBudgets(s, plan, l.retries)
		s.Retries = l.retries
		l.countKept(s)
		l.publish(s, plan)
		l.plan = plan
	}
	l.castShadow(now, s, plan)
	l.latest.Store(&fleet.Round{
		At: now, State: s, Brakes: l.brakes, Plan: plan, Planned: l.planned,
		Why: l.why, Unpublished: l.unpublished, Turn: l.turn, Choice: choice, Shadow: l.shadow.last,
	})
	return cmp.Or(max(0, s.Fleet.Options.Tick), DefaultTick)
}

// countKept counts the retry budgets that stay since nothing newer is measured.
func (l *Loop) countKept(s *fleet.State) {
	for st, d := range s.Retries {
		if !d.At.Equal(s.Attempts[st].At) {
			l.Counters.BudgetsKept.Add(1)
		}
	}
}

// noteTurn keeps what was believed around the last change of plan that people notice:
// traffic moved, or other amounts are refused. Rounds that hold the plan change nothing.
func (l *Loop) noteTurn(now time.Time, s *fleet.State, plan *fleet.Plan) {
	before := l.believed
	l.believed = s
	if before == nil || l.plan == nil || plan == nil {
		return
	}
	if refusedOtherwise(l.plan, plan) || fleet.Moved(l.plan, plan) >= noticed {
		l.turn = &fleet.Turn{At: now, Before: before, After: s, From: l.plan, To: plan}
	}
}

// refusedOtherwise says whether people notice that a plan refuses more or less.
func refusedOtherwise(before, after *fleet.Plan) bool {
	was, is := before.ShedRps(), after.ShedRps()
	return math.Abs(is-was) > noticedShed*max(is, was)
}

// elapsedSeconds is the time since the last plan was made; 0: an earlier process
// made it.
func (l *Loop) elapsedSeconds(now time.Time) float64 {
	if l.planned.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.planned).Seconds())
}

// decide returns the plan to publish: a new one, else the last one, else nil.
func (l *Loop) decide(now time.Time, s *fleet.State) *fleet.Plan {
	plan, err := l.propose(now, s)
	if err == nil {
		l.restored, l.planned = false, now
		l.logChange(plan)
		l.why = ""
		return plan
	}
	return l.hold(err.Error())
}

// hold returns the last plan, marked as held, or nil if there is none. It logs
// each reason once.
func (l *Loop) hold(why string) *fleet.Plan {
	message, counter := "last plan held", &l.Counters.RoundsHeld
	if l.plan == nil {
		message, counter = "no plan yet, nothing is published", &l.Counters.RoundsEmpty
	}
	counter.Add(1)
	if why != l.why {
		l.config.Log.Warn(message, zap.String("why", why))
	}
	l.why = why
	if l.plan == nil {
		return nil
	}
	held := *l.plan
	held.Status, held.Why = fleet.Held, why
	return &held
}

var errRestored = errors.New("restarted: waiting for every front-end's load reports")

// propose makes a plan that the guards let pass.
func (l *Loop) propose(now time.Time, s *fleet.State) (*fleet.Plan, error) {
	if b := s.Frozen(); b != nil && l.plan != nil {
		return nil, frozen(b)
	}
	if l.restored && now.Sub(l.started) < reportWait && !measured(s) && l.stillHolds(s) {
		return nil, errRestored
	}
	began := time.Now()
	plan, err := l.config.Plan(s)
	l.planning.Observe(time.Since(began).Seconds())
	if err != nil {
		l.Counters.PlansFailed.Add(1)
		return nil, failed(s.Fleet.Options.Policy, "planning failed", err)
	}
	if err := guard(s, plan); err != nil {
		l.Counters.PlansRefused.Add(1)
		return nil, failed(s.Fleet.Options.Policy, "plan refused", err)
	}
	plan.Brakes = fleet.PlanningBrakes(s.Brakes)
	return plan, nil
}

// stillHolds says whether the restored plan is worth waiting with, whichever policy made
// it: every stream has its route, every share a pool that may serve it and is ready, and
// nobody is refused for a shortage that may be over, but by a limit.
func (l *Loop) stillHolds(s *fleet.State) bool {
	j := newJudge(s, l.plan)
	for i := range l.plan.Routes {
		r := &l.plan.Routes[i]
		if r.ShedRps > 0 && s.LimitOf(r.Class) == nil || !j.reaches(r) {
			return false
		}
	}
	return j.complete() == nil
}

// measured says whether every front-end's demand was measured for long enough to plan
// by, unless the file wants the declared one. The first seconds of counts are mostly
// noise, and the restored plan is better than that.
func measured(s *fleet.State) bool {
	if s.Fleet.Options.DeclaredOnly {
		return true
	}
	for _, d := range s.Demand {
		if d.Source == fleet.SourceDeclared || d.DoubtRps > mostDoubt*d.Rps {
			return false
		}
	}
	return true
}

// publish tells the fleet. An error is logged once and the next round tries again.
func (l *Loop) publish(s *fleet.State, plan *fleet.Plan) {
	err := l.config.Publish(s, plan)
	if err == nil {
		l.unpublished = ""
		return
	}
	l.Counters.PublishErrors.Add(1)
	if err.Error() != l.unpublished {
		l.config.Log.Error("plan not published, will be tried again", zap.Error(err))
	}
	l.unpublished = err.Error()
}

// logChange logs a plan that differs from the last.
func (l *Loop) logChange(plan *fleet.Plan) {
	c := compare(l.plan, plan)
	if c == (change{}) {
		return
	}
	l.config.Log.Info("plan",
		zap.String("status", string(plan.Status)),
		zap.String("why", plan.Why),
		zap.Float64("meanMs", 1000*plan.MeanSeconds),
		zap.Float64("movedShare", c.moved),
		zap.Float64("shedRps", c.shed))
}

package control

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

// shadow is a second policy that plans what was planned and published, each round. It
// works beside the loop, which waits for it nowhere, and nothing is done with its plans
// but to compare them.
type shadow struct {
	policy   string      // empty: there is none
	previous *fleet.Plan // its own last one; at first that in force
	planned  time.Time   // when that was made; zero: it is not its own
	busy     bool        // it is still at an earlier round
	last     *fleet.Shadow
}

// shade is what a shadow made of a round.
type shade struct {
	policy string
	at     time.Time
	live   *fleet.Plan // that was in force
	plan   *fleet.Plan
	err    error
}

// castShadow has the second policy plan a round once more. While it is still at an
// earlier one it skips this one.
func (l *Loop) castShadow(now time.Time, s *fleet.State, live *fleet.Plan) {
	select {
	case made := <-l.shades:
		l.takeShade(made)
	default:
	}
	if policy := s.Fleet.Options.Shadow; policy != l.shadow.policy {
		l.shadow = shadow{policy: policy, previous: s.Previous, busy: l.shadow.busy}
	}
	switch {
	case l.shadow.policy == "" || live == nil:
		return
	case l.shadow.busy:
		l.Counters.ShadowsSkipped.Add(1)
		return
	}
	l.shadow.busy = true
	own := l.shadow.state(now, s)
	go func() { l.shades <- l.cast(now, own, live) }()
}

// state is that of the round, as it would be if the second policy had been in force.
func (sh *shadow) state(now time.Time, s *fleet.State) *fleet.State {
	own, f := *s, *s.Fleet
	f.Options.Policy = sh.policy
	own.Fleet, own.Previous = &f, sh.previous
	if !sh.planned.IsZero() {
		own.ElapsedSeconds = max(0, now.Sub(sh.planned).Seconds())
	}
	return &own
}

// cast makes a shadow's plan. A fault of the second policy must not end the process.
func (l *Loop) cast(now time.Time, s *fleet.State, live *fleet.Plan) (out shade) {
	out = shade{policy: s.Fleet.Options.Policy, at: now, live: live}
	defer func() {
		if fault := recover(); fault != nil {
			out.plan, out.err = nil, fmt.Errorf("planning failed: panic: %v", fault)
		}
	}()
	plan, err := l.config.Plan(s)
	if err != nil {
		out.err = fmt.Errorf("planning failed: %w", err)
		return out
	}
	if err := guard(s, plan); err != nil {
		out.err = fmt.Errorf("plan refused: %w", err)
		return out
	}
	out.plan = plan
	return out
}

// takeShade takes what the second policy made of a round, unless it is another one by
// now.
func (l *Loop) takeShade(s shade) {
	l.shadow.busy = false
	if s.policy != l.shadow.policy {
		return
	}
	last := &fleet.Shadow{Policy: s.policy, At: s.at}
	if s.err != nil {
		l.Counters.ShadowsFailed.Add(1)
		last.Why = s.err.Error()
		if l.shadow.last == nil || l.shadow.last.Why != last.Why {
			l.config.Log.Warn("no plan of the shadow", zap.String("policy", s.policy), zap.Error(s.err))
		}
	} else {
		l.Counters.ShadowsPlanned.Add(1)
		last.Difference = differ(s.live, s.plan)
		l.shadow.previous, l.shadow.planned = s.plan, s.at
	}
	l.shadow.last = last
	round := l.Latest()
	round.Shadow = last
	l.latest.Store(&round)
}

// differ says what a plan would change of the one in force.
func differ(live, other *fleet.Plan) *fleet.Difference {
	return &fleet.Difference{
		MeanSeconds:    other.MeanSeconds - live.MeanSeconds,
		MovedShare:     fleet.Moved(live, other),
		ShedRps:        other.ShedRps() - live.ShedRps(),
		MaxUtilisation: other.Fullest().Utilisation,
	}
}

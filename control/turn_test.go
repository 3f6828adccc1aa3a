package control

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

// The last change of plan that people notice stays the one to explain while plans are
// held, and while they change by less.
func TestTurns(t *testing.T) {
	plan := func(status fleet.Status, share, shed float64) *fleet.Plan {
		return &fleet.Plan{Status: status, Routes: []fleet.Route{{
			FrontEnd: "A", Class: "chat", DemandRps: 10, ShedRps: shed,
			Shares: []fleet.Share{{Pool: "p", Share: share}, {Pool: "q", Share: 1 - share}},
		}}}
	}
	l := New(Config{Log: zap.NewNop()})
	states := map[int]*fleet.State{}
	start := time.Now()
	for i, step := range []struct {
		plan *fleet.Plan
		turn int // the step that is the last turn by then; -1: none
	}{
		{plan(fleet.Optimal, 0.5, 0), -1},
		{plan(fleet.Optimal, 0.501, 0), -1},
		{plan(fleet.Optimal, 0.6, 0), 2},
		{plan(fleet.Held, 0.6, 0), 2},
		{plan(fleet.Optimal, 0.6, 0), 2},
		{nil, 2},
		{plan(fleet.Shedding, 0.6, 1), 6},
		{plan(fleet.Shedding, 0.6, 1.02), 6},
		{plan(fleet.Shedding, 0.6, 2), 8},
		{plan(fleet.Optimal, 0.6, 0), 9},
	} {
		states[i] = &fleet.State{}
		at := start.Add(time.Duration(i) * time.Second)
		l.noteTurn(at, states[i], step.plan)
		if step.plan != nil {
			l.plan = step.plan
		}
		switch {
		case step.turn < 0 && l.turn != nil:
			t.Errorf("step %d: a turn, want none", i)
		case step.turn >= 0 && (l.turn == nil || l.turn.After != states[step.turn] || l.turn.Before != states[step.turn-1]):
			t.Errorf("step %d: turn %+v, want that of step %d", i, l.turn, step.turn)
		}
	}
}

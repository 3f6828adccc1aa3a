package signals

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"weir/fleet"
)

func historyOf(t *Tracker, now time.Time) []fleet.Span {
	return t.State(now, nil).Pools["big"].History
}

// What is kept of a minute is what was sent and shown in it.
func TestHistoryIsTrue(t *testing.T) {
	tracker := NewTracker(serviceFleet())
	at := served(tracker, epoch, 250, 12, 0.34, nil)
	h := historyOf(tracker, at)
	if len(h) != 4 {
		t.Fatalf("%d spans of 250 s, want 4", len(h))
	}
	for _, s := range h {
		length := s.To.Sub(s.From).Seconds()
		if length < 60 || length > 62 || !near(s.EngineSeconds, 2*length, 1e-9) || !near(s.Rps(), 6, 0.01) || !near(s.Ended, s.Issued, 0.01) || s.Failed != 0 {
			t.Errorf("%+v: want 6 rps at each of two engines, all of which ended", s)
		}
		if !near(s.TTFT.Seconds, 0.3, 0.01) || s.TTFT.Items < 700 { // 40 ms are the network's
			t.Errorf("TTFT %+v, want 0.3 s of 720 requests", s.TTFT)
		}
	}
	if last := h[3]; !near(last.Tokens.Prompt, 3000, 1e-6) || !near(last.Tokens.Output, 50, 1e-6) {
		t.Errorf("tokens %+v, want what was measured", last.Tokens)
	}
	if again := historyOf(tracker, at); len(again) != 4 {
		t.Errorf("asked again, there are %d spans", len(again))
	}
}

// What is not sound is not kept: it ends the span under way, and with it all of it.
func TestHistoryIsSound(t *testing.T) {
	down := Probe{Pool: "big", Engine: "10.0.0.1:80", Err: errors.New("down"), Answered: true}
	for name, c := range map[string]struct {
		disturb func(*Tracker, time.Time)
		spans   int // of seven minutes, which are disturbed in the middle of the third
	}{
		"nothing happens": {func(*Tracker, time.Time) {}, 7},
		"an engine goes": {func(tr *Tracker, now time.Time) {
			tr.ObserveProbe(now, down)
			tr.ObserveProbe(now, down)
		}, 5}, // the others must settle
		"a front-end is silent": {func(tr *Tracker, now time.Time) {
			tr.ObserveLoad(now.Add(-10*time.Second), fleet.LoadReport{FrontEnd: "west", Node: "w", Role: fleet.RoleEnvoy, Interval: time.Second})
		}, 2}, // it may send all the while
		"an operator drains": {func(tr *Tracker, now time.Time) {
			tr.Brake([]fleet.Brake{{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeDrain, Engine: "10.0.0.2:80"}}})
		}, 5},
		"an engine is penalised": {func(tr *Tracker, now time.Time) {
			tr.ObserveLoad(now, fleet.LoadReport{
				FrontEnd: "east", Node: "a", Role: fleet.RoleExtProc, Interval: time.Second,
				Penalties: []fleet.Penalty{{Pool: "big", Engine: "10.0.0.1:80", Value: 0.5}},
			})
			tr.State(now, nil)
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := NewTracker(serviceFleet())
			for _, e := range []fleet.EngineID{"10.0.0.1:80", "10.0.0.2:80"} {
				tracker.ObserveProbe(epoch, Probe{Pool: "big", Engine: e})
			}
			at := served(tracker, epoch, 150, 12, 0.34, nil)
			c.disturb(tracker, at)
			at = served(tracker, at, 280, 12, 0.34, nil)
			if h := historyOf(tracker, at); len(h) != c.spans {
				t.Errorf("%d spans, want %d", len(h), c.spans)
			}
		})
	}
}

// Reports come unevenly. What is counted is what was sent in the time, whatever part of
// it was reported; where other clients report than did, that cannot be told.
func TestCoverage(t *testing.T) {
	begun := coverage{envoySeconds: 100, extProcSeconds: 50, envoys: 2, extProcs: 1}
	now := coverage{envoySeconds: 216, extProcSeconds: 114, envoys: 2, extProcs: 1}
	envoy, extProc, ok := now.scales(begun, 60)
	if !ok || envoy != 120.0/116 || extProc != 60.0/64 {
		t.Errorf("%v, %v, %v: want two Envoys' minute of 116 s, and a weir-extproc's of 64 s", envoy, extProc, ok)
	}
	now.envoys++
	if _, _, ok := now.scales(begun, 60); ok {
		t.Error("another Envoy reports, and that is no matter")
	}
	if _, _, ok := begun.scales(begun, 60); ok {
		t.Error("nobody has reported yet, and that is no matter")
	}
}

// At a low load a span goes on until it says something.
func TestHistoryWaitsForRequests(t *testing.T) {
	tracker := NewTracker(serviceFleet())
	at := epoch
	for range 100 { // six seconds with one request
		at = served(tracker, at, 1, 1, 0.34, nil)
		at = served(tracker, at, 5, 0, 0, nil)
	}
	h := historyOf(tracker, at)
	if len(h) == 0 || h[0].TTFT.Items < fewestTimes || h[0].To.Sub(h[0].From) < 100*time.Second {
		t.Fatalf("%+v: want spans of twenty requests", h)
	}
	if !near(h[0].Rps(), 1.0/6/2, 0.15) {
		t.Errorf("%v rps, want one request in 12 s at each engine", h[0].Rps())
	}
}

// A history is bounded, and keeps rare loads beside the usual one.
func TestHistoryIsBounded(t *testing.T) {
	p := &serviceFleet().Pools[0].Profile
	at := epoch
	span := func(u float64) fleet.Span {
		from := at
		at = at.Add(time.Minute)
		return fleet.Span{From: from, To: at, EngineSeconds: 60, Issued: u * p.CapacityRps * 60, Tokens: p.Reference}
	}
	var h []fleet.Span
	most := 0
	for i := range 3000 {
		u := 0.5
		if i%200 == 0 {
			u = 0.9 // rarely
		}
		if i < 200 {
			u = float64(i%30) / 20
		}
		h = since(trim(append(h, span(u)), p), at.Add(-historySteps*time.Minute))
		most = max(most, len(h))
	}
	high := 0
	for i, s := range h {
		if at.Sub(s.To) > historySteps*time.Minute {
			t.Errorf("a span of %v ago is kept", at.Sub(s.To))
		}
		if i > 0 && !s.From.After(h[i-1].From) {
			t.Error("out of order")
		}
		if s.Utilisation(p) > 0.8 {
			high++
		}
	}
	if most > historyRecent+historyOfLoad*historyLoads || len(h) != historyRecent+2*historyOfLoad || high != historyOfLoad {
		t.Errorf("%d spans at most, %d at the end, %d of the rare load", most, len(h), high)
	}
}

// What is a day old is forgotten, though nothing new comes: by a pool that has no traffic,
// and by a process that begins later, which remembers no more than is kept, either.
func TestHistoryIsForgotten(t *testing.T) {
	tracker := NewTracker(serviceFleet())
	at := served(tracker, epoch, 250, 12, 0.34, nil)
	h := historyOf(tracker, at)
	late := h[1].To.Add(historySteps * time.Minute) // two of four are old
	if got := historyOf(tracker, late); len(got) != len(h)-2 || got[0] != h[2] {
		t.Errorf("a day later %d spans, want the newest %d", len(got), len(h)-2)
	}
	if got := historyOf(tracker, late.Add(time.Hour)); len(got) != 0 {
		t.Errorf("another hour later %d spans are there", len(got))
	}
	next := NewTracker(serviceFleet())
	next.Remember(late, map[fleet.PoolID][]fleet.Span{"big": h})
	if got := next.pools["big"].record.spans; len(got) != len(h)-2 || got[0] != h[2] {
		t.Errorf("%d spans are remembered, want the newest %d", len(got), len(h)-2)
	}
	next = NewTracker(serviceFleet())
	next.Remember(at, map[fleet.PoolID][]fleet.Span{"big": slices.Repeat(h[:1], 2*historyRecent)})
	if got := next.pools["big"].record.spans; len(got) != historyRecent+historyOfLoad {
		t.Errorf("%d spans of one load are remembered, want %d", len(got), historyRecent+historyOfLoad)
	}
}

// A factor is evidence against one profile. Put in force in its place, one that promises
// what was found is not held against it again.
func TestFactorRestsOnTheProfileInUse(t *testing.T) {
	for _, c := range []struct{ factor, from, to, want float64 }{
		{1, 10, 8, 1},         // nothing was found
		{0.8, 10, 8, 1},       // all of it is told
		{0.8, 10, 9, 8.0 / 9}, // some of it
		{0.8, 10, 7, 1},       // more
		{0.8, 10, 12, 0.8 * 10 / 12},
		{1.1, 10, 11, 1},
		{1.05, 10, 9, 1.1}, // the most that a factor is
		{0.4, 10, 20, 0.3}, // the least
		{0, 10, 8, 0},
	} {
		f := factor{value: c.factor, reason: "x"}
		f.rest(&fleet.Profile{CapacityRps: c.from}, &fleet.Profile{CapacityRps: c.to})
		if math.Abs(f.value-c.want) > 1e-9 || (f.value == 1 && c.factor != 1) != (f.reason == "") {
			t.Errorf("a factor of %v, from %v rps to %v: %v (%q), want %v", c.factor, c.from, c.to, f.value, f.reason, c.want)
		}
	}
	tracker := NewTracker(serviceFleet())
	tracker.pools["big"].burden.factor = factor{value: 0.8, reason: "slow"}
	next := serviceFleet()
	next.Pools[0].Profile.CapacityRps = 8
	tracker.SetFleet(next)
	if got := tracker.pools["big"].burden.factor.value; got != 1 {
		t.Errorf("with a profile of 8 rps in place of 10 the factor is %v, want 1", got)
	}
}

func TestHistoryIsRemembered(t *testing.T) {
	tracker := NewTracker(serviceFleet())
	at := served(tracker, epoch, 250, 12, 0.34, nil)
	h := historyOf(tracker, at)
	next := NewTracker(serviceFleet())
	bad, later := h[0], h[0]
	bad.Tokens.Prompt, later.To = -1, at.Add(time.Hour)
	next.Remember(at, map[fleet.PoolID][]fleet.Span{"big": append(append([]fleet.Span{}, h...), fleet.Span{To: at}, bad, later), "gone": h})
	at = served(next, at, 130, 12, 0.34, nil)
	got := historyOf(next, at)
	if len(got) != len(h)+2 || got[0] != h[0] {
		t.Errorf("%d spans after a restart and two minutes, want the %d before it and two", len(got), len(h))
	}
}

package deploy

import (
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// Engines die, load, hang and come back under load. Only what a dead or hung
// engine already held may fail.
func TestEnginesFailUnderLoad(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet})
	victim := s.Fleet.Pool("east").Engines[0]
	engine := s.Process("engine-" + string(victim))
	told := func(want string) func() bool { return func() bool { return health(s, "east", victim) == want } }
	t.Run("killed, loading and back", func(t *testing.T) {
		l := startSteady(t, s, "killed")
		check(t, engine.Kill())
		eventually(t, "the front-end is told", 10*time.Second, told("unready"))
		check(t, engine.Start("--load-time", "3s"))
		since := time.Now()
		l.flow(60)
		eventually(t, "the front-end is told that it is back", 20*time.Second, told("ready"))
		if waited := time.Since(since); waited < 3*time.Second {
			t.Errorf("an engine that loads for 3 s was taken for ready after %v", waited)
		}
		l.flow(60)
		onlyBegunStreams(t, s, l, victim)
	})
	t.Run("hung and going on", func(t *testing.T) {
		l := startSteady(t, s, "hung")
		check(t, engine.Freeze())
		frozen := time.Now()
		eventually(t, "the front-end is told", 10*time.Second, told("unready"))
		t.Logf("told after %v", time.Since(frozen).Round(time.Millisecond))
		calm := startSteady(t, s, "calm") // begins after two failed probes: nothing of it may wait
		calm.flow(120)
		calm.endWhole()
		l.flow(1)
		failed := l.end() // ends: what the engine held is cut by the idle limit
		for name, r := range failed {
			if took := r.Took; took < s.Fleet.Options.Idle-time.Second || took > s.Fleet.Options.Idle+5*time.Second {
				t.Errorf("%s was ended after %v, want the idle limit of %v: %v", name, took, s.Fleet.Options.Idle, &r)
			}
		}
		t.Logf("%d requests that the engine held were ended by the idle limit", len(failed))
		check(t, engine.Thaw())
		eventually(t, "the front-end is told that it is back", 20*time.Second, told("ready"))
	})
}

// onlyBegunStreams holds that what failed had begun on the engine that died.
func onlyBegunStreams(t *testing.T, s *stage.Stage, l *steady, victim fleet.EngineID) {
	t.Helper()
	failed := l.end()
	there := atEngine(arrivals(t, s), victim)
	for name, r := range failed {
		if begun := r.Status == 200 && r.Err != nil; !begun || !there[name] {
			t.Errorf("%s (at the dead engine: %v): %v", name, there[name], &r)
		}
	}
	t.Logf("%d of %d requests had begun on the engine that died", len(failed), l.sent.Load())
}

// Pools and classes leave and come under load, by the fleet file alone, and no
// request of a class that stays fails.
func TestTheFleetChangesUnderLoad(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet, EngineFlags: func(fleet.PoolID) []string {
		return []string{"--models", "llama-3.3-70b,late-model"}
	}})
	original := read(t, s)
	t.Run("a pool leaves and comes back", func(t *testing.T) {
		l := startSteady(t, s, "pool")
		rewrite(t, s, withoutPoolEast)
		eventually(t, "the pool is not served", 10*time.Second, func() bool {
			return shares(t, s)[fleet.Link{FrontEnd: "east", Pool: "west"}] == 1
		})
		l.flow(60)
		rewrite(t, s, func(string) string { return original })
		eventually(t, "the pool is served", 10*time.Second, func() bool {
			return shares(t, s)[fleet.Link{FrontEnd: "east", Pool: "east"}] == 1
		})
		l.flow(60)
		l.endWhole()
	})
	t.Run("a class comes and leaves", func(t *testing.T) {
		l := startSteady(t, s, "class")
		call := chatCall(s.URL("east"), "late")
		call.Body = stage.Chat("late-model", "hello", false, 0)
		status := func() int { r := stage.Do(t.Context(), stage.NewClient(), call); return r.Status }
		if got := status(); got != 404 {
			t.Errorf("before the class is there: %d, want 404", got)
		}
		rewrite(t, s, withClassLate)
		seen := map[int]bool{}
		eventually(t, "the class serves", 10*time.Second, func() bool { got := status(); seen[got] = true; return got == 200 })
		rewrite(t, s, func(string) string { return original })
		eventually(t, "the class is gone", 10*time.Second, func() bool { got := status(); seen[got] = true; return got == 404 })
		for got := range seen {
			if got != 200 && got != 404 && got != 503 {
				t.Errorf("on the way a request got %d, want 200, 404 or 503", got)
			}
		}
		t.Logf("on the way requests got %v", seen)
		l.flow(60)
		l.endWhole()
	})
	if late := countModel(arrivals(t, s), "late-model"); late == 0 {
		t.Error("no request of the class that came reached an engine")
	}
}

func countModel(all []stage.Arrival, model string) int {
	n := 0
	for _, a := range all {
		if a.Model == model {
			n++
		}
	}
	return n
}

func withoutPoolEast(text string) string {
	from, to := strings.Index(text, "  - name: east\n    region: east"), strings.Index(text, "  - name: west\n    region: west")
	pool := text[from:to]
	profile := pool[strings.Index(pool, "    profile: &profile"):]
	text = strings.Replace(text, pool, "", 1)
	text = strings.Replace(text, "    profile: *profile\n", profile, 1)
	return strings.NewReplacer("{east: 2ms, west: 40ms}", "{west: 40ms}", "{east: 40ms, west: 2ms}", "{west: 2ms}").Replace(text)
}

func withClassLate(text string) string {
	text = strings.ReplaceAll(text, "models: [llama-3.3-70b]", "models: [llama-3.3-70b, late-model]")
	return strings.Replace(text, "\nclasses:\n", "\nclasses:\n  - name: late\n    match:\n      - model: late-model\n", 1)
}

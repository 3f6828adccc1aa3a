package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"weir/fleet"
	"weir/simulate"
)

// talkScene is the talk's fleet under an hour of made-up conversations.
func talkScene(t *testing.T) (*simulation, *scene) {
	t.Helper()
	c := newSimulate()
	c.SetContext(t.Context())
	s := &simulation{sessions: true, rate: "100rps", kvTokens: 500_000, slots: 20, seed: 1, seeds: 2, duration: time.Hour}
	s.talks = simulate.Sessions{Turns: 4, ThinkSeconds: 8, System: 256, Prompt: simulate.Sizes{Mean: 300}, Output: simulate.Sizes{Mean: 200}}
	sc, err := s.scene(c, "../../testdata/fleets/talk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s, sc
}

// A simulation ends with its context, whenever that does.
func TestSimulationIsInterrupted(t *testing.T) {
	s, sc := talkScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	plans := 0
	policy := simulate.Named{Name: "interrupting", Policy: func(st *fleet.State) (*fleet.Plan, error) {
		if plans++; plans == 3 {
			cancel()
		}
		return makePlan(st)
	}}
	s.seeds = 1
	_, err := s.runs(ctx, sc, []simulate.Named{policy}, newProgress(nil, false))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted") || plans > 4 {
		t.Errorf("after %d plans: %v", plans, err)
	}
	if _, err = s.runs(ctx, sc, []simulate.Named{policy}, newProgress(nil, false)); !errors.Is(err, context.Canceled) || plans > 4 {
		t.Errorf("one that begins after it, after %d plans: %v", plans, err)
	}
}

func TestProgress(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, false)
	p.begin(200)
	p.told = time.Time{}
	if p.add(20); out.Len() > 0 {
		t.Errorf("nobody asked, and it says %q", out.String())
	}
	p = newProgress(&out, true)
	p.begin(200)
	watch := p.watch(t.Context())
	p.told = time.Time{} // long ago
	if err := errors.Join(watch(20), watch(30)); err != nil {
		t.Fatal(err)
	}
	p.told = time.Time{}
	p.add(15)
	p.end()
	if want := "simulated 20 of 200 s\nsimulated 45 of 200 s\n"; out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
}

// More replicas are others, and the file's stay.
func TestSceneWithReplicas(t *testing.T) {
	_, sc := talkScene(t)
	has := sc.fleet.Pools[1].Engines
	if more := sc.with(1, 4).fleet.Pools[1].Engines; len(more) != 4 || more[0] != has[0] || more[2] == more[3] {
		t.Errorf("four replicas: %v", more)
	}
	if fewer := sc.with(1, 1).fleet.Pools[1].Engines; len(fewer) != 1 || fewer[0] != has[0] {
		t.Errorf("one replica: %v", fewer)
	}
	if len(sc.fleet.Pools[1].Engines) != 2 {
		t.Error("the fleet has changed")
	}
}

func TestKeyOf(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range measures(true) {
		seen[keyOf(m)] = true
	}
	for _, key := range []string{"ttftP95Seconds", "endToEndMeanSeconds", "shedPercent", "conversationsMovedPercent", "promptTokensCachedPercent", "priceSeconds"} {
		if !seen[key] {
			t.Errorf("no measure is called %s: %v", key, seen)
		}
	}
}

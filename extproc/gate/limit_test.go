package gate

import (
	"testing"
	"time"
)

// An operator's limit is kept from the first moment on, after an idle time too.
func TestAnOperatorsLimit(t *testing.T) {
	for _, ceiling := range []float64{0, 1, 4, 50} {
		g, r := &Gate{}, seeded()
		l := Limit{Planned: 1, CeilingRps: ceiling, Open: 1, Strict: true}
		run(g, r, l, time.Minute)
		n := run(g, r, l, 10*time.Second, stream{rps: 100, kind: Fresh})
		if most := ceiling*10 + l.atOnce(); n[0].entered > most || ceiling == 0 && n[0].entered > 0 {
			t.Errorf("%v entered in ten seconds at a limit of %v RPS", n[0].entered, ceiling)
		}
		if _, cause := g.Admit(0, Fresh, 0.9999, 1); cause != Limited {
			t.Errorf("refused for cause %d, want the limit", cause)
		}
		// While it opens, the cause that shut it is told.
		g.Step(250*time.Millisecond, Limit{Planned: 1, CeilingRps: 1000, Open: 0, Strict: true})
		if ok, cause := g.Admit(0, Fresh, 0.9999, 1); !ok && cause != Limited {
			t.Errorf("refused for cause %d while the gate opens, want the limit", cause)
		} else if ok && ceiling == 0 {
			t.Error("a gate that was shut opens at once")
		}
	}
}

// In no span of time does more enter of an operator's limit than that and what may enter at
// once, whoever asks: not when many do at one moment after nobody did, nor of tenants that
// nobody has seen.
func TestAnOperatorsLimitIsHard(t *testing.T) {
	for _, limit := range []float64{0, 0.5, 3, 40} {
		var g Gate
		r := seeded()
		l := Limit{Planned: 1, CeilingRps: limit, Open: 1, Strict: true}
		most := 0.0
		if limit > 0 {
			most = l.atOnce()
		}
		left := most // of a token bucket beside it
		for range 600 {
			g.Step(step, l)
			left = min(most, left+limit*step.Seconds())
			for range r.IntN(2) * r.IntN(200) {
				if ok, cause := g.Admit(r.Uint64(), Kind(r.IntN(int(kinds))), r.Float64(), 1); ok {
					left--
				} else if cause != Limited {
					t.Fatalf("limit %v: refused for cause %d", limit, cause)
				}
			}
			if left < -1e-6 {
				t.Fatalf("limit %v: %v too many entered", limit, -left)
			}
		}
	}
}

// What is shut stays shut, whatever may have entered before.
func TestWhatIsShutStaysShut(t *testing.T) {
	var g Gate
	r := seeded()
	run(&g, r, Limit{Planned: 0.5, CeilingRps: 50, Open: endless, Strict: true}, time.Minute, stream{rps: 100, kind: Fresh})
	shut := Limit{Planned: 0, CeilingRps: 0, Open: endless, Strict: true}
	g.Step(step, shut)
	if n := run(&g, r, shut, time.Second, stream{rps: 100, kind: Fresh}); n[0].entered != 0 {
		t.Errorf("%v of %v enter", n[0].entered, n[0].asked)
	}
}

// A limit of nothing lets nobody in, though nobody asked for long.
func TestNothingMayEnter(t *testing.T) {
	g := &Gate{}
	l := Limit{Planned: 0, CeilingRps: 0, Open: endless}
	for range 100 {
		g.Step(step, l)
	}
	for _, kind := range []Kind{Ongoing, Fresh, Back} {
		if ok, _ := g.Admit(3, kind, 0, 0); ok {
			t.Errorf("a request of kind %d entered", kind)
		}
	}
}

// Who is refused for the sake of a limit is told so, whatever was told before.
func TestALimitIsTold(t *testing.T) {
	var g Gate
	r := seeded()
	run(&g, r, Limit{Planned: 0.5, CeilingRps: 50, Open: endless}, 10*time.Second, stream{rps: 100, kind: Fresh})
	g.Step(step, Limit{Planned: 1, CeilingRps: 1e3, Strict: true})
	for range 10000 {
		if ok, cause := g.Admit(r.Uint64(), Fresh, r.Float64(), 1); !ok && cause != Limited {
			t.Fatalf("refused for cause %d, want the limit", cause)
		}
	}
}

// A limit is shared fairly, whether under load it begins, is raised or is lowered.
func TestALimitIsSharedFairly(t *testing.T) {
	streams := []stream{{tenant: 1, rps: 30, kind: Fresh}, {tenant: 2, rps: 3, kind: Fresh}}
	for name, before := range map[string]Limit{
		"no limit before": {Planned: 1, CeilingRps: 1000},
		"a low one":       {Planned: 1, CeilingRps: 1, Strict: true},
		"a high one":      {Planned: 1, CeilingRps: 100, Strict: true},
	} {
		var g Gate
		r := seeded()
		run(&g, r, before, 20*time.Second, streams...)
		l := Limit{Planned: 1, CeilingRps: 10, Open: endless, Strict: true}
		run(&g, r, l, 20*time.Second, streams...)
		const lasts = 5 * time.Minute
		n := run(&g, r, l, lasts, streams...)
		t.Logf("%s: of 30 RPS %.2f, of 3 RPS %.2f", name, n[0].entered/lasts.Seconds(), n[1].entered/lasts.Seconds())
		if n[1].entered < 0.85*n[1].asked {
			t.Errorf("%s: %v of %v enter of who asks for less than its fair part", name, n[1].entered, n[1].asked)
		}
		if all := (n[0].entered + n[1].entered) / lasts.Seconds(); all < 9.3 {
			t.Errorf("%s: %.1f RPS of a limit of 10 enter", name, all)
		}
	}
}

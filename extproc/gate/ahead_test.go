package gate

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// What classes ahead take is not there for new ones.
func TestWhatOthersTakeIsNotThere(t *testing.T) {
	const lasts = time.Minute
	for _, c := range []struct{ ahead, want float64 }{{0, 80}, {30, 50}, {80, 0}, {200, 0}} {
		g, r := &Gate{}, seeded()
		l := Limit{Planned: 1, CeilingRps: 80, Open: endless, AheadRps: c.ahead}
		s := stream{rps: 240, kind: Fresh}
		run(g, r, l, 10*time.Second, s)
		n := run(g, r, l, lasts, s)
		want := c.want * lasts.Seconds()
		if z := (n[0].entered - want) / math.Sqrt(max(1, want)); z > 4 || n[0].entered < 0.95*want {
			t.Errorf("%v RPS ahead of 80: %v entered, want %v: z = %.1f", c.ahead, n[0].entered, want, z)
		}
	}
}

// Conversations under way go on for some seconds while others take all: the next plan says
// what is left for them.
func TestOthersCutNobodyAtOnce(t *testing.T) {
	g, r := &Gate{}, seeded()
	l := Limit{Planned: 1, CeilingRps: 80, Open: endless, AheadRps: 80}
	n := run(g, r, l, 5*time.Second, stream{rps: 100, underWay: 0.5, kind: Fresh})
	if n[0].ongoingEntered != n[0].ongoing {
		t.Errorf("%v of %v under way entered", n[0].ongoingEntered, n[0].ongoing)
	}
}

// Engines that others keep busy are not idle.
func TestOthersLeaveNoRoomForABurst(t *testing.T) {
	burst := func(ahead float64) float64 {
		g := &Gate{}
		n := run(g, seeded(), Limit{Planned: 1, CeilingRps: 10, Open: 40, OpenAhead: ahead}, time.Second, stream{rps: 500, kind: Fresh})
		return n[0].entered
	}
	if idle, busy := burst(0), burst(100); busy > idle/1.3 {
		t.Errorf("%v of a burst enter beside a hundred open requests, %v beside none", busy, idle)
	}
}

// Levels go with what is left: when the plan knows what others take, nothing changes, and
// when they take more at once, nothing enters for what was left before.
func TestThePlanCatchesUp(t *testing.T) {
	before := Limit{Planned: 1, CeilingRps: 80, Open: endless}
	taken := Limit{Planned: 1, CeilingRps: 80, Open: endless, AheadRps: 50}
	known := Limit{Planned: 1, CeilingRps: 30, Open: endless}
	r, s := seeded(), stream{rps: 240, kind: Fresh}
	sums := [2]float64{}
	for range 20 {
		var g Gate
		run(&g, r, before, 20*time.Second, s)
		for i, l := range []Limit{taken, known} {
			sums[i] += run(&g, r, l, 1*time.Second, s)[0].entered
			run(&g, r, l, 20*time.Second, s)
		}
	}
	const want = 20 * 30
	for i, name := range []string{"others take more", "the plan knows of it"} {
		if z := (sums[i] - want) / math.Sqrt(want); math.Abs(z) > 3 {
			t.Errorf("%s: %v entered in twenty seconds, want %v: z = %.1f", name, sums[i], want, z)
		}
	}
}

// Of those who ask for the first time chance makes bunches: there is room for these though
// those who come back fill the rest.
func TestWhoComesBackTakesNobodysRoom(t *testing.T) {
	const lasts = 30 * time.Minute
	for _, c := range []struct{ rps, refused float64 }{{10, 2e-4}, {30, 1e-3}, {100, 1e-3}} {
		t.Run(fmt.Sprint(c.rps, " RPS"), func(t *testing.T) {
			g, r := &Gate{}, seeded()
			l := Limit{Planned: 1, CeilingRps: c.rps, Open: endless}
			streams := []stream{{rps: 0.7 * c.rps, kind: Fresh}, {rps: 3 * c.rps, kind: Back}}
			run(g, r, l, 20*time.Second, streams...)
			n := run(g, r, l, lasts, streams...)
			if refused := 1 - n[0].entered/n[0].asked; refused > c.refused {
				t.Errorf("%.5f of those who ask for the first time refused, want %v at most", refused, c.refused)
			}
			if served := (n[0].entered + n[1].entered) / lasts.Seconds(); served < 0.95*c.rps {
				t.Errorf("%.1f RPS entered in all", served)
			}
		})
	}
}

// A fraction that was small and is nearly 1 again refuses few, at once.
func TestOldRefusalsAreForgotten(t *testing.T) {
	r := seeded()
	l := Limit{Planned: 1, CeilingRps: 30, Open: endless}
	asked, entered := 0.0, 0.0
	for range 20 {
		var g Gate
		back := stream{rps: 200, kind: Back} // who keep the gate shut
		run(&g, r, l, 20*time.Second, stream{rps: 150, kind: Fresh}, back)
		run(&g, r, l, 20*time.Second, stream{rps: 15, kind: Fresh}, back)
		n := run(&g, r, l, 2*time.Second, stream{rps: 40, kind: Fresh}, back)
		asked += n[0].asked
		entered += n[0].entered
	}
	if part := entered / asked; part < 0.85 {
		t.Errorf("%.2f of 40 RPS enter where 30 may, and before it all did", part)
	}
}

// Where the plan refuses a part, its word counts however few requests are open; and what too
// many under way brought in is soon over.
func TestShortRequestsKeepThePlansPart(t *testing.T) {
	const lasts = 5 * time.Minute
	for _, open := range []float64{0, 3, 30} {
		g, r := &Gate{}, seeded()
		l := Limit{Planned: 0.5, CeilingRps: 10, Open: open}
		run(g, r, l, 10*time.Second, stream{rps: 20, kind: Fresh})
		n := run(g, r, l, lasts, stream{rps: 20, kind: Fresh})
		want := l.CeilingRps * lasts.Seconds()
		if z := (n[0].entered - want) / math.Sqrt(want); math.Abs(z) > 4 {
			t.Errorf("%v open: %v entered, want %v: z = %.1f", open, n[0].entered, want, z)
		}
		run(g, r, l, time.Minute, stream{rps: 40, kind: Ongoing})
		run(g, r, l, 20*time.Second, stream{rps: 5, kind: Fresh})
		if after := run(g, r, l, 20*time.Second, stream{rps: 5, kind: Fresh}); after[0].entered < after[0].asked {
			t.Errorf("%v open: %v of %v enter later", open, after[0].entered, after[0].asked)
		}
	}
}

package gate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// endless is an engine that never ends a request.
const endless = math.MaxFloat64

const step = 100 * time.Millisecond

// stream is Poisson traffic of one tenant.
type stream struct {
	tenant   uint64
	rps      float64
	underWay float64 // part of its requests
	kind     Kind    // of the others
}

// counts are what became of a stream's requests.
type counts struct{ asked, entered, ongoing, ongoingEntered float64 }

// run feeds a gate for so long, and steps it.
func run(g *Gate, r *rand.Rand, l Limit, lasts time.Duration, streams ...stream) []counts {
	out := make([]counts, len(streams))
	for range lasts / step {
		for i, s := range streams {
			for range poisson(r, s.rps*step.Seconds()) {
				kind := s.kind
				if r.Float64() < s.underWay {
					kind = Ongoing
				}
				ok, _ := g.Admit(s.tenant, kind, r.Float64(), l.Planned)
				out[i].add(kind == Ongoing, ok)
			}
		}
		g.Step(step, l)
	}
	return out
}

func (c *counts) add(underWay, ok bool) {
	c.asked++
	if underWay {
		c.ongoing++
	}
	if ok {
		c.entered++
		if underWay {
			c.ongoingEntered++
		}
	}
}

func poisson(r *rand.Rand, mean float64) int {
	n, p, limit := 0, r.Float64(), math.Exp(-mean)
	for p > limit {
		n++
		p *= r.Float64()
	}
	return n
}

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func TestEverybodyEntersWhileThereIsRoom(t *testing.T) {
	for _, rps := range []float64{0.5, 5, 80, 1000} {
		g := &Gate{}
		n := run(g, seeded(), Limit{Planned: 1, CeilingRps: rps / 0.9, Open: endless}, 5*time.Minute, stream{rps: rps, kind: Fresh})
		if refused := 1 - n[0].entered/n[0].asked; refused > 0.001 {
			t.Errorf("%v RPS at nine tenths of the ceiling: %.4f refused", rps, refused)
		}
	}
}

func TestTheCeilingIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		ceiling float64
		planned float64
		times   float64
	}{
		"three times, unknown to the plan": {80, 1, 3},
		"three times, as planned":          {80, 1.0 / 3, 3},
		"three times, planned for two":     {80, 0.5, 3},
		"ten times":                        {80, 1, 10},
		"few":                              {6, 1, 3},
		"many":                             {2000, 1, 3},
		"less than planned":                {80, 0.5, 0.7},
		"half more":                        {80, 1, 1.5},
	} {
		t.Run(name, func(t *testing.T) {
			const lasts = 2 * time.Minute
			g, r := &Gate{}, seeded()
			l := Limit{Planned: c.planned, CeilingRps: c.ceiling, Open: endless}
			run(g, r, l, 10*time.Second, stream{rps: c.times * c.ceiling, kind: Fresh})
			n := run(g, r, l, lasts, stream{rps: c.times * c.ceiling, kind: Fresh})
			want := min(n[0].asked, c.ceiling*lasts.Seconds())
			if z := (n[0].entered - want) / math.Sqrt(want); z > 4 || n[0].entered < 0.95*want {
				t.Errorf("%.0f entered, want %.0f: z = %.1f", n[0].entered, want, z)
			}
		})
	}
}

// What a burst brings in beside the ceiling is no more than two seconds of it, and soon
// after everybody enters.
func TestABurst(t *testing.T) {
	g, r := &Gate{}, seeded()
	l := Limit{Planned: 1, CeilingRps: 80, Open: endless}
	run(g, r, l, time.Minute, stream{rps: 40, kind: Fresh})
	n := run(g, r, l, 5*time.Second, stream{rps: 400, kind: Fresh})
	if over := n[0].entered/80 - 5; over > 2 {
		t.Errorf("%.1f s of the ceiling were let in beside it, want 2 at most", over)
	}
	run(g, r, l, 9*time.Second, stream{rps: 40, kind: Fresh})
	after := run(g, r, l, time.Minute, stream{rps: 40, kind: Fresh})
	if after[0].entered != after[0].asked {
		t.Errorf("%v of %v enter ten seconds later", after[0].entered, after[0].asked)
	}
	if g.Refused() != 0 {
		t.Errorf("the gate says that it refuses %v", g.Refused())
	}
}

// Conversations that are under way are not cut while new ones can be refused.
func TestNewOnesAreRefusedFirst(t *testing.T) {
	g, r := &Gate{}, seeded()
	l := Limit{Planned: 1, CeilingRps: 80, Open: endless}
	s := stream{rps: 240, underWay: 0.25, kind: Fresh} // 60 RPS of them
	run(g, r, l, 10*time.Second, s)
	n := run(g, r, l, time.Minute, s)
	if n[0].ongoingEntered < 0.995*n[0].ongoing {
		t.Errorf("%v of %v under way entered", n[0].ongoingEntered, n[0].ongoing)
	}
	fresh := n[0].entered - n[0].ongoingEntered
	if z := (fresh - 20*60) / math.Sqrt(20*60); math.Abs(z) > 4 {
		t.Errorf("%v new ones entered, want what is left, %v: z = %.1f", fresh, 20*60, z)
	}
}

// Who was refused comes back to what the others leave.
func TestThoseWhoComeBackComeLast(t *testing.T) {
	g, r := &Gate{}, seeded()
	l := Limit{Planned: 1, CeilingRps: 80, Open: endless}
	streams := []stream{{rps: 50, kind: Fresh}, {rps: 200, kind: Back}}
	run(g, r, l, 20*time.Second, streams...)
	n := run(g, r, l, time.Minute, streams...)
	if n[0].entered < 0.99*n[0].asked {
		t.Errorf("%v of %v who ask for the first time entered", n[0].entered, n[0].asked)
	}
	if z := (n[1].entered - 30*60) / math.Sqrt(30*60); math.Abs(z) > 5 {
		t.Errorf("%v who came back entered, want what is left, %v: z = %.1f", n[1].entered, 30*60, z)
	}
}

// Who asks for less than its fair part gets all of it; the rest is shared alike.
func TestTenantsAreServedFairly(t *testing.T) {
	g, r := &Gate{}, seeded()
	l := Limit{Planned: 1, CeilingRps: 90, Open: endless}
	streams := []stream{{tenant: 1, rps: 400, kind: Fresh}, {tenant: 2, rps: 60, kind: Fresh}, {tenant: 3, rps: 10, kind: Fresh}}
	run(g, r, l, 10*time.Second, streams...)
	const lasts = time.Minute
	n := run(g, r, l, lasts, streams...)
	for i, want := range []float64{40, 40, 10} {
		want *= lasts.Seconds()
		if z := (n[i].entered - want) / math.Sqrt(want); math.Abs(z) > 5 {
			t.Errorf("tenant %d: %v entered, want %v: z = %.1f", i+1, n[i].entered, want, z)
		}
	}
}

// Engines that end everything at once serve more than the plan believes.
func TestFastEnginesRefuseNobody(t *testing.T) {
	g := &Gate{}
	n := run(g, seeded(), Limit{Planned: 1, CeilingRps: 20, Open: 5}, time.Minute, stream{rps: 200, kind: Fresh})
	if n[0].entered != n[0].asked {
		t.Errorf("%v of %v entered though five are open", n[0].entered, n[0].asked)
	}
}

// Conversations that are under way are cut when they alone are too many.
func TestTooManyUnderWay(t *testing.T) {
	g, r := &Gate{}, seeded()
	l := Limit{Planned: 1, CeilingRps: 80, Open: endless}
	n := run(g, r, l, 2*time.Minute, stream{rps: 160, kind: Ongoing})
	if over := n[0].entered/80 - 120; over > 16 {
		t.Errorf("%.1f s of the ceiling entered beside it", over)
	}
	// All of one name share one draw: what can be served of it enters, and no more.
	g = &Gate{}
	entered := 0.0
	for range 1200 {
		for range 16 {
			if ok, _ := g.Admit(0, Ongoing, 0.3, 1); ok {
				entered++
			}
		}
		g.Step(step, l)
	}
	if over := entered/80 - 120; math.Abs(over) > 16 {
		t.Errorf("of one name %.1f s of the ceiling entered beside it", over)
	}
}

// Many requests at one moment are no burst to engines that have nothing to do.
func TestABunchOnAnIdleFleet(t *testing.T) {
	g, entered := &Gate{}, 0.0
	for i := range 60 {
		if ok, _ := g.Admit(0, Fresh, 0.99, 1); ok {
			entered++
		}
		if i%10 == 9 {
			g.Step(step/10, Limit{Planned: 1, CeilingRps: 30, Open: entered})
		}
	}
	if entered != 60 {
		t.Errorf("%v of 60 that came at once entered", entered)
	}
}

func TestUnknownCeiling(t *testing.T) {
	g, r := &Gate{}, seeded()
	n := run(g, r, Limit{Planned: 1, CeilingRps: Unknown, Open: endless}, time.Minute, stream{rps: 1000, kind: Fresh})
	if n[0].entered != n[0].asked {
		t.Errorf("%v of %v entered though no ceiling is known", n[0].entered, n[0].asked)
	}
	l := Limit{Planned: 0.25, CeilingRps: Unknown, Open: endless}
	run(g, r, l, 10*time.Second, stream{rps: 100, kind: Fresh})
	n = run(g, r, l, time.Minute, stream{rps: 100, kind: Fresh})
	if z := (n[0].entered - 0.25*n[0].asked) / math.Sqrt(0.25*0.75*n[0].asked); math.Abs(z) > 5 {
		t.Errorf("%v of %v entered, want the plan's quarter: z = %.1f", n[0].entered, n[0].asked, z)
	}
}

// Before anybody has asked the plan's fraction rules, where no ceiling is known.
func TestTheFirstAreJudgedByThePlan(t *testing.T) {
	g, r, entered := &Gate{}, seeded(), 0.0
	l := Limit{Planned: 0.72, CeilingRps: Unknown, Open: 0}
	run(g, r, l, 10*time.Second)
	for range 1000 {
		if ok, _ := g.Admit(0, Fresh, r.Float64(), l.Planned); ok {
			entered++
		}
	}
	if z := (entered - 720) / math.Sqrt(720*0.28); math.Abs(z) > 4 {
		t.Errorf("%v of the first 1000 entered, want 720: z = %.1f", entered, z)
	}
}

func TestCauses(t *testing.T) {
	var g Gate
	if ok, cause := g.Admit(0, Fresh, 0.6, 0.5); ok || cause != Plan {
		t.Errorf("before the first step: %v, %v; want the plan's fraction to decide", ok, cause)
	}
	r := seeded()
	run(&g, r, Limit{Planned: 1, CeilingRps: 10, Open: endless}, 5*time.Second, stream{rps: 100, kind: Fresh})
	if ok, cause := g.Admit(0, Fresh, 0.999, 1); ok || cause != Burst {
		t.Errorf("in a burst: %v, %v", ok, cause)
	}
	run(&g, r, Limit{Planned: 0.1, CeilingRps: 10, Open: endless}, 5*time.Second, stream{rps: 100, kind: Fresh})
	if ok, cause := g.Admit(0, Fresh, 0.999, 0.1); ok || cause != Plan {
		t.Errorf("by the plan: %v, %v", ok, cause)
	}
}

// All that is granted is the total where more is wanted, nobody gets more than it wants
// or less than it had, and nobody who gets less than it wants gets less than another.
func TestFillLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wants, have [Buckets]float64
		had, wanted := 0.0, 0.0
		for b := range rapid.IntRange(0, Buckets).Draw(t, "tenants") {
			wants[b] = rapid.Float64Range(0, 1000).Draw(t, "wants")
			have[b] = rapid.Float64Range(0, 10).Draw(t, "has")
			had += have[b]
			wanted += have[b] + wants[b]
		}
		total := rapid.Float64Range(had, 2*wanted+1).Draw(t, "total")
		got := fill(&wants, &have, total)
		sum, level := 0.0, 0.0
		for b := range Buckets {
			if got[b] < have[b] || got[b] > have[b]+wants[b]+1e-9 {
				t.Fatalf("bucket %d: has %v, wants %v, got %v", b, have[b], wants[b], got[b])
			}
			sum += got[b]
			if got[b] > have[b] {
				level = max(level, got[b])
			}
		}
		if want := min(total, wanted); math.Abs(sum-want) > 1e-6*(1+want) {
			t.Fatalf("%v granted in all, want %v", sum, want)
		}
		for b := range Buckets {
			if got[b] < have[b]+wants[b]-1e-6 && got[b] < level-1e-6 {
				t.Fatalf("bucket %d has %v and wants more, another got %v", b, got[b], level)
			}
		}
	})
}

func BenchmarkAdmit(b *testing.B) {
	var g Gate
	for b.Loop() {
		g.Admit(7, Fresh, 0.5, 1)
	}
}

func BenchmarkStep(b *testing.B) {
	var g Gate
	for b.Loop() {
		g.Admit(7, Fresh, 0.5, 0.5)
		g.Step(step, Limit{Planned: 0.5, CeilingRps: 10, Open: endless})
	}
}

// Who is refused a turn asks for the next one all the same, and with the same draw: among
// those who ask, high draws add up. What is meant to enter does.
func TestConversationsThatGoOn(t *testing.T) {
	for name, l := range map[string]Limit{
		"the plan's part, the ceiling unknown": {Planned: 0.75, CeilingRps: Unknown},
		"a ceiling":                            {Planned: 0.75, CeilingRps: 30},
	} {
		t.Run(name, func(t *testing.T) {
			const talks, turns, settled, lasts = 10.0, 4, 30, 330 // per second; seconds
			var g Gate
			r := seeded()
			type talk struct {
				draw    float64
				left    int
				entered bool
			}
			due := make([][]talk, lasts*10+1)
			asked, entered := 0.0, 0.0
			for i := range lasts * 10 {
				for range poisson(r, talks*step.Seconds()) {
					due[i] = append(due[i], talk{r.Float64(), turns, false})
				}
				for _, one := range due[i] {
					kind := Fresh
					if one.entered {
						kind = Ongoing
					}
					ok, _ := g.Admit(0, kind, one.draw, l.Planned)
					one.entered = one.entered || ok
					if i >= settled*10 {
						asked++
						if ok {
							entered++
						}
					}
					if next := i + 1 + r.IntN(30); one.left > 1 && next < len(due) {
						one.left--
						due[next] = append(due[next], one)
					}
				}
				g.Step(step, l)
			}
			// Turns of a conversation fare alike.
			if z := (entered/asked - 0.75) / math.Sqrt(0.75*0.25/(asked/turns)); math.Abs(z) > 4 {
				t.Errorf("%.3f of %.0f requests entered, want 0.75: z = %.1f", entered/asked, asked, z)
			}
		})
	}
}

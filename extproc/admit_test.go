package extproc

import (
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/zap"

	"weir/envoy"
	"weir/extproc/gate"
	"weir/fleet"
)

// gated is a server whose clock the test moves, with levels that never grow stale.
type gated struct {
	*Server
	now time.Time
}

func newGated(v *fleet.View, a *fleet.Admission) *gated {
	g := &gated{New(zap.NewNop()), time.Unix(1_800_000_000, 0)}
	g.swapAt(NewTable(v), g.now)
	g.pass(0)
	g.SwapAdmission(a, 1)
	return g
}

// pass lets a time pass, step by step.
func (g *gated) pass(d time.Duration) {
	for end := g.now.Add(d); ; {
		g.swapLevelsAt(&fleet.Levels{Round: g.now.UnixMilli(), Tick: time.Second}, 0, g.now)
		g.refreshAt(g.now)
		g.stepAt(g.now)
		if !g.now.Before(end) {
			return
		}
		g.now = g.now.Add(gateStep)
	}
}

// ask sends one turn and ends it; nil means that it entered.
func (g *gated) ask(lines ...string) *refusal {
	x := exchange{table: g.table.Load()}
	x.head = newHead(headersOf(post("/", lines...)))
	d := x.table.decide(&x.head, facts{model: "small"}, nil, 1)
	if back := d.cameBack(); !back {
		d.class.tally.arrive(&d, x.head.clientRetry())
	}
	x.table.remember(&d)
	if d.refusal == nil { // it stays open for the length of the test
		d.class.tally.open.Add(1)
	}
	return d.refusal
}

func ceilingOf(rps float64) *fleet.Admission {
	return &fleet.Admission{Classes: []fleet.ClassAdmission{{Class: "chat", CeilingRps: fleet.Known(rps), RetryAfterSeconds: 10}}}
}

// In a burst conversations that are under way go on, new ones are told when to come
// back and why, and those that do are no new demand.
func TestABurstIsHeldBack(t *testing.T) {
	t.Parallel()
	g := newGated(twoPools(), ceilingOf(20))
	session := func(i int) string { return fmt.Sprint("x-session: ", i) }
	for i := range 5 {
		if r := g.ask(session(i)); r != nil {
			t.Fatalf("refused while there is room: %+v", r)
		}
		g.pass(time.Second)
	}
	refused := 0
	later := map[string]int{} // who was refused last, and for how long
	for second := range 10 {
		for i := range 5 {
			if r := g.ask(session(i)); r != nil {
				t.Errorf("second %d: a conversation that is under way was refused", second)
			}
		}
		for i := range 200 {
			r := g.ask(session(1000*(second+1) + i))
			if r == nil {
				continue
			}
			refused++
			if second == 9 {
				later[session(1000*(second+1)+i)] = r.retryAfterSeconds
			}
			if r.status != 429 || r.shedReason != envoy.ShedInBurst || r.retryAfterSeconds < 10 || r.retryAfterSeconds >= 20 {
				t.Fatalf("refused with %+v", r)
			}
		}
		g.pass(time.Second)
	}
	if refused < 1700 || refused > 2000 {
		t.Errorf("%d of 2000 refused", refused)
	}
	g.Take()
	for passed := 1; passed < 30; passed++ {
		for name, after := range later {
			if passed == after || passed == 3 && after > 15 {
				g.ask(name)
				delete(later, name)
			}
		}
		if passed == 3 && len(g.Take()) == 0 {
			t.Error("those who come far too soon are no demand")
		}
		g.pass(time.Second)
	}
	if taken := g.Take(); len(taken) > 0 {
		t.Errorf("%d who came when they were told to count as demand again", taken[0].Arrivals)
	}
	g.pass(30 * time.Second)
	for i := range 5 {
		if r := g.ask(session(10_000 + i)); r != nil {
			t.Errorf("refused half a minute later: %+v", r)
		}
	}
}

// What a class that is ahead takes beside what is planned for it the other has not,
// before the next plan says so.
func TestWhoIsAheadTakesOfTheCeiling(t *testing.T) {
	t.Parallel()
	a := ceilingOf(100)
	a.Classes[0].Ahead = []fleet.Precedence{{Class: "gold", Part: 1}}
	a.Classes = append(a.Classes, fleet.ClassAdmission{Class: "gold", PlannedRps: fleet.Known(10)})
	v := twoPools()
	gold := v.Classes[0]
	gold.ID = "gold"
	v.Classes = append(v.Classes, gold)
	g := newGated(v, a)
	const seconds = 20
	chatEnters := func(goldPerStep int) (n float64) {
		for range seconds * int(time.Second/gateStep) {
			for range goldPerStep {
				g.classOf("gold").tally.gate.Admit(0, gate.Fresh, 0.5, 1)
			}
			for i := range 20 {
				if ok, _ := g.classOf("chat").tally.gate.Admit(0, gate.Fresh, float64(i)/20, 1); ok {
					g.classOf("chat").tally.open.Add(1)
					n++
				}
			}
			g.pass(gateStep)
		}
		return n
	}
	for _, c := range []struct {
		goldPerStep int
		want        float64
	}{{1, 100}, {6, 50}} {
		chatEnters(c.goldPerStep) // until what it notices is settled
		got, want := chatEnters(c.goldPerStep), c.want*seconds
		if z := (got - want) / math.Sqrt(want); math.Abs(z) > 3 {
			t.Errorf("%v chats enter beside %d RPS of gold instead of 10, want %v: z = %.1f", got, 10*c.goldPerStep, want, z)
		}
	}
}

// classOf is a class of the table.
func (g *gated) classOf(id fleet.ClassID) *class {
	for _, c := range g.table.Load().classes {
		if c.id == id {
			return c
		}
	}
	panic("no class " + id)
}

// What the plan says counts only while the control plane is heard.
func TestOldCeilingsAreForgotten(t *testing.T) {
	t.Parallel()
	g := newGated(twoPools(), ceilingOf(1))
	burst := func() (refused int) {
		for range 20 {
			for i := range 50 {
				if r := g.ask(fmt.Sprint("x-session: ", g.now.UnixMilli(), i)); r != nil {
					refused++
				}
			}
			g.now = g.now.Add(gateStep)
			g.refreshAt(g.now)
			g.stepAt(g.now)
		}
		return refused
	}
	if burst() == 0 {
		t.Error("nobody was refused at a hundred times the ceiling")
	}
	g.now = g.now.Add(time.Minute)
	for range 100 {
		g.now = g.now.Add(gateStep)
		g.refreshAt(g.now)
		g.stepAt(g.now)
	}
	if n := burst(); n != 0 {
		t.Errorf("%d refused by a ceiling of a minute ago", n)
	}
}

// Tenants are told apart where the fleet file says how.
func TestTenantsShareWhatIsScarce(t *testing.T) {
	t.Parallel()
	v := twoPools()
	v.TenantHeader = "x-tenant"
	g := newGated(v, ceilingOf(50))
	entered := map[string]int{}
	for second := range 40 {
		for i := range 300 {
			tenant := "large"
			if i%30 == 0 {
				tenant = "small"
			}
			if g.ask("x-tenant: "+tenant, fmt.Sprint("x-session: ", second, "-", i)) == nil && second >= 10 {
				entered[tenant]++
			}
			if i%30 == 0 {
				g.pass(gateStep)
			}
		}
	}
	if entered["small"] < 290 {
		t.Errorf("%d of 300 of the tenant that asks for less than its part entered", entered["small"])
	}
	if entered["large"] < 1000 || entered["large"] > 1400 {
		t.Errorf("%d of the other one's entered, want 40 a second", entered["large"])
	}
}

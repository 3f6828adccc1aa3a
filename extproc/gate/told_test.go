package gate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"weir/fleet"
)

// With a hundred RPS planned chance moves what is measured in a quarter of a second by 14
// RPS: what is more than three times that is not chance.
func TestWhatIsAhead(t *testing.T) {
	known := fleet.Known
	told := &fleet.Admission{Classes: []fleet.ClassAdmission{
		{Class: "gold", CeilingRps: known(400), PlannedRps: known(200)},
		{Class: "new", CeilingRps: known(400)},
		{Class: "silver", CeilingRps: known(400), PlannedRps: known(200)},
	}}
	gold, half, gone, unplanned := fleet.Precedence{Class: "gold", Part: 1}, fleet.Precedence{Class: "silver", Part: 0.5}, fleet.Precedence{Class: "gone", Part: 1}, fleet.Precedence{Class: "new", Part: 1}
	for _, c := range []struct {
		name         string
		of           fleet.ClassAdmission
		gold, silver float64 // RPS that enter of them at an Envoy that takes in half
		want         float64
	}{
		{"nobody", fleet.ClassAdmission{}, 1000, 1000, 0},
		{"as planned", fleet.ClassAdmission{Ahead: []fleet.Precedence{gold}}, 100, 0, 0},
		{"chance", fleet.ClassAdmission{Ahead: []fleet.Precedence{gold}}, 140, 0, 0},
		{"more than planned", fleet.ClassAdmission{Ahead: []fleet.Precedence{gold}}, 180, 0, 80},
		{"less than planned", fleet.ClassAdmission{Ahead: []fleet.Precedence{gold}}, 0, 0, 0},
		{"both", fleet.ClassAdmission{Ahead: []fleet.Precedence{gold, half}}, 180, 140, 100},
		{"one more, the other less", fleet.ClassAdmission{Ahead: []fleet.Precedence{gold, half}}, 180, 60, 60},
		{"one of which nothing is told", fleet.ClassAdmission{Ahead: []fleet.Precedence{gone, gold}}, 180, 0, 80},
		{"one whose plan is not told", fleet.ClassAdmission{Ahead: []fleet.Precedence{unplanned, gold}}, 180, 0, 80},
		{"beside a limit much can be served", fleet.ClassAdmission{Ahead: []fleet.Precedence{gold}, Limited: true, SpareRps: 300}, 180, 0, 0},
		{"beside a limit a little can be served", fleet.ClassAdmission{Ahead: []fleet.Precedence{gold}, Limited: true, SpareRps: 20}, 180, 0, 70},
	} {
		use := func(id fleet.ClassID) Use {
			return Use{EnteredRps: map[fleet.ClassID]float64{"gold": c.gold, "silver": c.silver, "new": 50}[id], Open: 8}
		}
		of := c.of
		of.Class, of.CeilingRps = "z", known(60)
		all := *told
		all.Classes = append(all.Classes[:3:3], of)
		l := NewLimit(&all, "z", 0.9, 0.5, use)
		if l.AheadRps != c.want || l.CeilingRps != 30 || l.Planned != 0.9 || l.Open != 8 || l.Strict != of.Limited {
			t.Errorf("%s: %+v, want %v RPS ahead", c.name, l, c.want)
		}
	}
	if l := NewLimit(nil, "z", 0.9, 0.5, func(fleet.ClassID) Use { return Use{} }); l != (Limit{Planned: 0.9, CeilingRps: Unknown}) {
		t.Errorf("nothing was told: %+v", l)
	}
}

// two is what is told of a class and of one that is ahead of it.
func two(highRps, highCeiling, lowCeiling float64) *fleet.Admission {
	return &fleet.Admission{Classes: []fleet.ClassAdmission{
		{Class: "high", CeilingRps: fleet.Known(highCeiling), PlannedRps: fleet.Known(highRps)},
		{Class: "low", CeilingRps: fleet.Known(lowCeiling), Ahead: []fleet.Precedence{{Class: "high", Part: 1}}},
	}}
}

// pair is the gates of both.
type pair struct{ high, low Gate }

func (p *pair) use(id fleet.ClassID) Use {
	g := map[fleet.ClassID]*Gate{"high": &p.high, "low": &p.low}[id]
	return Use{EnteredRps: g.EnteredRps(), Open: endless}
}

// step lets a step's requests come, and returns what became of them.
func (p *pair) step(r *rand.Rand, told *fleet.Admission, planned float64, high, low stream) (ofHigh, ofLow counts) {
	ofHigh = run(&p.high, r, NewLimit(told, "high", 1, 1, p.use), step, high)[0]
	ofLow = run(&p.low, r, NewLimit(told, "low", planned, 1, p.use), step, low)[0]
	return ofHigh, ofLow
}

// Five times as much is asked for at once. The high class gets what it asks for; what the
// low one gets beside what is left is the depth of its queue, and little more for what is
// noticed late, though the plan knows of nothing.
func TestTwoClassesAtAnOnset(t *testing.T) {
	const ceiling, low, high, lasts, seeds = 36, 17.3, 4.3, 3, 20
	told := two(high, ceiling, ceiling-high)
	beside, refused := 0.0, 0.0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 7))
		var p pair
		times, entered := 1.0, 0.0
		for i := range (10 + lasts) * 10 {
			if i == 10*10 {
				times, entered = 5.3, 0
			}
			h, l := p.step(r, told, 1, stream{rps: times * high, kind: Fresh}, stream{rps: times * low, kind: Fresh})
			entered += h.entered + l.entered
			refused += h.asked - h.entered
		}
		beside += (entered - lasts*ceiling) / seeds
	}
	if beside > 2*leastDepth {
		t.Errorf("%.0f requests entered beside what can be served, want %d at most", beside, 2*leastDepth)
	}
	if refused > 0 {
		t.Errorf("%v of the high class were refused", refused)
	}
}

// What chance does to a large class takes nothing from a small one.
func TestChanceAheadTakesNothing(t *testing.T) {
	const lasts = 5 * time.Minute
	for _, c := range []struct{ high, low float64 }{{30, 3}, {100, 5}, {100, 20}, {1000, 10}, {1000, 50}} {
		for _, planned := range []float64{1, 0.5} {
			r := rand.New(rand.NewPCG(uint64(c.high), uint64(c.low)))
			told := two(c.high, 2*c.high, c.low)
			var p pair
			entered := 0.0
			for range lasts / step {
				_, l := p.step(r, told, planned, stream{rps: c.high, kind: Fresh}, stream{rps: 2 * c.low, kind: Fresh})
				entered += l.entered
			}
			want := c.low * lasts.Seconds()
			if z := (entered - leastDepth - want) / math.Sqrt(want); z > 4 || entered < 0.94*want {
				t.Errorf("%v RPS ahead of %v, planned %v: %v entered, want %v: z = %.1f", c.high, c.low, planned, entered, want, z)
			}
		}
	}
}

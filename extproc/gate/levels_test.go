package gate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// asker is a tenant whose conversations ask without end.
type asker struct {
	tenant uint64
	rps    float64
	kind   Kind
	draws  []float64
}

// conversations are the draws of so many.
func conversations(r *rand.Rand, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = r.Float64()
	}
	return out
}

// letIn is how many requests a second of each asker enter, after so long, of requests that
// take five seconds each; longest is for how long, from the first moment on, none of one did.
func letIn(l Limit, r *rand.Rand, settles, lasts time.Duration, askers ...asker) (rps []float64, longest time.Duration) {
	var g Gate
	rps = make([]float64, len(askers))
	last := make([]time.Duration, len(askers))
	var ends []time.Duration
	for now := time.Duration(0); now < settles+lasts; now += step {
		for i, a := range askers {
			for range poisson(r, a.rps*step.Seconds()) {
				if ok, _ := g.Admit(a.tenant, a.kind, a.draws[r.IntN(len(a.draws))], l.Planned); !ok {
					continue
				}
				ends = append(ends, now+5*time.Second)
				if now >= settles {
					rps[i] += 1 / lasts.Seconds()
				}
				longest = max(longest, now-last[i])
				last[i] = now
			}
		}
		for len(ends) > 0 && ends[0] <= now {
			ends = ends[1:]
		}
		l.Open = float64(len(ends))
		g.Step(step, l)
	}
	for i := range last {
		longest = max(longest, settles+lasts-last[i])
	}
	return rps, longest
}

// A tenant gets its fair part whether it has one conversation or a thousand, and whatever
// the draw of the one.
func TestFairnessDoesNotDependOnTheNumberOfConversations(t *testing.T) {
	const lasts = 2 * time.Minute
	for _, draw := range []float64{0, 0.01, 0.3, 0.5, 0.9, 0.999} {
		r := seeded()
		rps, longest := letIn(Limit{Planned: 1, CeilingRps: 20}, r, 10*time.Second, lasts,
			asker{1, 40, Fresh, []float64{draw}}, asker{2, 20, Fresh, conversations(r, 1000)}, asker{3, 2, Fresh, []float64{draw}})
		for i, want := range []float64{9, 9, 2} {
			if z := (rps[i] - want) / math.Sqrt(want/lasts.Seconds()); math.Abs(z) > 5 {
				t.Errorf("draw %v: tenant %d gets %.2f RPS, want %v: z = %.1f", draw, i+1, rps[i], want, z)
			}
		}
		if longest > 5*time.Second {
			t.Errorf("draw %v: a tenant waits %v for a turn", draw, longest)
		}
	}
}

// What can be served of a few conversations enters, and no more.
func TestTheCeilingIsKeptOfFewConversations(t *testing.T) {
	const lasts = time.Minute
	for _, strict := range []bool{false, true} {
		for _, kind := range []Kind{Ongoing, Fresh, Back} {
			for _, ceiling := range []float64{10, 100} {
				for _, times := range []float64{1.5, 2, 5} {
					for _, n := range []int{1, 2, 3, 10} {
						r := rand.New(rand.NewPCG(uint64(ceiling*times), uint64(n)))
						l := Limit{Planned: 1 / times, CeilingRps: ceiling, Strict: strict}
						rps, _ := letIn(l, r, 20*time.Second, lasts, asker{0, times * ceiling, kind, conversations(r, n)})
						if z := (rps[0] - ceiling) * math.Sqrt(lasts.Seconds()/ceiling); z > 4 || rps[0] < 0.93*ceiling {
							t.Errorf("strict %v, kind %d, ceiling %v, asked for %v times of it by %d: %.1f RPS enter, z = %.1f", strict, kind, ceiling, times, n, rps[0], z)
						}
					}
				}
			}
		}
	}
}

// Which conversations enter is their draws' doing for as long as what is asked for stays.
func TestConversationsKeepWhatTheyHave(t *testing.T) {
	var g Gate
	r := seeded()
	l := Limit{Planned: 1, CeilingRps: 50, Open: endless}
	draws := conversations(r, 200)
	var asked, entered [200]float64
	for i := range 1200 {
		for range poisson(r, 100*step.Seconds()) {
			k := r.IntN(len(draws))
			ok, _ := g.Admit(0, Ongoing, draws[k], 1)
			if i < 300 {
				continue
			}
			asked[k]++
			if ok {
				entered[k]++
			}
		}
		g.Step(step, l)
	}
	alike, all := 0.0, 0.0
	for k := range draws {
		alike += max(entered[k], asked[k]-entered[k])
		all += asked[k]
	}
	t.Logf("%.3f of the requests fare as most of their conversation do", alike/all)
	if alike < 0.9*all {
		t.Errorf("%.3f of the requests fare as most of their conversation do, want 0.9", alike/all)
	}
}

// Of many who come at once where nobody asked before, the plan's fraction enters.
func TestOfABunchThePlansFractionEnters(t *testing.T) {
	for _, ceiling := range []float64{Unknown, 400} {
		var g Gate
		r := seeded()
		l := Limit{Planned: 0.72, CeilingRps: ceiling}
		run(&g, r, l, time.Minute)
		n := run(&g, r, l, time.Second, stream{rps: 600, kind: Fresh})
		if z := (n[0].entered - 0.72*n[0].asked) / math.Sqrt(0.72*0.28*n[0].asked); ceiling == Unknown && math.Abs(z) > 4 || z < -4 {
			t.Errorf("ceiling %v: %v of %v enter, want 72 %%: z = %.1f", ceiling, n[0].entered, n[0].asked, z)
		}
	}
}

// When less can be served all at once, what was let in before is no claim.
func TestWhatWasLetInIsNoClaim(t *testing.T) {
	for _, tenants := range []int{1, 16} {
		for _, to := range []float64{450, 100} {
			var g Gate
			r := seeded()
			var streams []stream
			for i := range tenants {
				streams = append(streams, stream{tenant: uint64(i), rps: 1000 / float64(tenants), kind: Fresh})
			}
			run(&g, r, Limit{Planned: 1, CeilingRps: 900, Open: endless}, time.Minute, streams...)
			const lasts = 5 * time.Second
			entered := 0.0
			for _, n := range run(&g, r, Limit{Planned: 1, CeilingRps: to, Open: endless}, lasts, streams...) {
				entered += n.entered
			}
			if over := entered/to - lasts.Seconds(); over > 1 {
				t.Errorf("from 900 to %v RPS, %d tenants: %.1f s of it enter beside it", to, tenants, over)
			}
		}
	}
}

// Next to nothing becomes next to everything, and all enter.
func TestAllEnterOnceTheCeilingHasRisen(t *testing.T) {
	var g Gate
	r := seeded()
	run(&g, r, Limit{Planned: 1, CeilingRps: 1e-3, Open: endless}, time.Minute, stream{rps: 100, kind: Fresh})
	run(&g, r, Limit{Planned: 1, CeilingRps: 1e7}, 5*time.Second, stream{rps: 100, kind: Fresh})
	if n := run(&g, r, Limit{Planned: 1, CeilingRps: 1e7}, 10*time.Second, stream{rps: 100, kind: Fresh}); n[0].entered != n[0].asked {
		t.Errorf("%v of %v enter", n[0].entered, n[0].asked)
	}
}

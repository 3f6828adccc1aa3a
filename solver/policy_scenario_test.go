package solver

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"weir/fleet"
)

// What a scenario is like. Readings are smoothed as the tracker smooths them.
const (
	smoothSeconds = 8
	wobble        = 0.03 // of each demand, at random
	ticks         = 180
	judged        = 60 // of the last
)

// plant is the talk's regions alive: engines serve what they can and the rest waits.
type plant struct {
	state  *fleet.State
	random *rand.Rand
	queue  map[fleet.PoolID]float64 // requests
	ttft   map[fleet.PoolID]float64 // smoothed, seconds
}

// newPlant is asked for that part of all that its engines can do.
func newPlant(load float64) *plant {
	s := talk()
	s.Fleet.Options = fleet.Options{ChurnSeconds: 0.005, MinShare: 0.001}
	for id, d := range s.Demand {
		ask(s, id.FrontEnd, id.Class, d.Rps*load*280/250)
	}
	return &plant{s, rand.New(rand.NewPCG(1, 2)), map[fleet.PoolID]float64{}, map[fleet.PoolID]float64{}}
}

// run has a policy plan tick by tick, and returns the part of all traffic that a pool
// gets at each.
func (p *plant) run(t *testing.T, policy string, pool fleet.PoolID) []float64 {
	t.Helper()
	var parts []float64
	for range ticks {
		s := *p.state
		s.Demand = map[fleet.Stream]fleet.Demand{}
		total := 0.0
		for _, f := range s.Fleet.FrontEnds {
			d := p.state.Demand[fleet.Stream{FrontEnd: f.ID, Class: "chat"}]
			d.Rps *= 1 + wobble*(2*p.random.Float64()-1)
			ask(&s, f.ID, "chat", d.Rps)
			total += d.Rps
		}
		plan := planBy(t, policy, &s)
		for i := range plan.Pools {
			p.serve(&plan.Pools[i])
		}
		p.state.Previous = plan
		parts = append(parts, plan.Pool(pool).Rps/total)
	}
	return parts
}

// serve lets a tick go by at a pool.
func (p *plant) serve(q *fleet.PoolPlan) {
	profile := &p.state.Fleet.Pool(q.Pool).Profile
	capacity := 2 * profile.CapacityRps
	waiting := max(0, p.queue[q.Pool]+(q.Rps-capacity)*tickSeconds)
	seconds := profile.TTFT.At(min(1, q.Rps/capacity)) + waiting/capacity
	seen, known := p.ttft[q.Pool]
	if !known {
		seen = seconds
	}
	p.queue[q.Pool] = waiting
	p.ttft[q.Pool] = seen + (seconds-seen)*(1-math.Exp(-tickSeconds/float64(smoothSeconds)))
	p.state.Pools[q.Pool] = fleet.PoolState{Signals: fleet.PoolSignals{
		TTFTSeconds: fleet.Reading{Value: p.ttft[q.Pool], At: noon},
	}}
}

// The talk's reason to leave the feedback loop: near full load the signals come too
// late, and traffic shifts back and forth, for ever. A policy that knows what its step
// will do stands still on the same engines; and with room to spare the loop does, too.
func TestTheFeedbackLoopOscillates(t *testing.T) {
	for name, c := range map[string]struct {
		policy       string
		load         float64
		least, most  float64 // of the distance between the pool's largest and smallest part
		leastTurning int     // times that it passes its middle
	}{
		"proportional": {fleet.PolicyProportional, 0.93, 0.5, 1, 3},
		// Demand that wobbles by 3 % moves it by that.
		"optimal":                     {fleet.PolicyOptimal, 0.93, 0, 0.04, 0},
		"waterfall":                   {fleet.PolicyWaterfall, 0.93, 0, 0.04, 0},
		"proportional, room to spare": {fleet.PolicyProportional, 0.8, 0, 0.01, 0},
	} {
		t.Run(name, func(t *testing.T) {
			parts := newPlant(c.load).run(t, c.policy, "C")
			last, before := parts[ticks-judged:], parts[ticks-2*judged:ticks-judged]
			t.Logf("C's part of all traffic: %.3f", last)
			for _, window := range [][]float64{before, last} {
				if got := slices.Max(window) - slices.Min(window); got < c.least || got > c.most {
					t.Errorf("the part of C moves by %.3f, want %v to %v", got, c.least, c.most)
				}
			}
			if got := turns(last); got < c.leastTurning {
				t.Errorf("it passes its middle %d times, want %d at least", got, c.leastTurning)
			}
		})
	}
}

// turns counts how often a series passes its middle.
func turns(xs []float64) int {
	middle, n := (slices.Max(xs)+slices.Min(xs))/2, 0
	for i := 1; i < len(xs); i++ {
		if (xs[i] > middle) != (xs[i-1] > middle) {
			n++
		}
	}
	return n
}

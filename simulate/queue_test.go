package simulate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// plain is an engine that does nothing but serve: no prefill, no load but its slots.
func plain(slots int) Engine {
	return Engine{CapacityRps: 1e9, TBT: Line{Idle: 0.001}, Window: 5, Slots: slots, KVTokens: 16, Block: 16}
}

// poisson makes n requests at a rate, each of so many tokens of output at 1 ms.
func poisson(n int, rps float64, output func(*rand.Rand) float64) []Request {
	r := rand.New(rand.NewPCG(7, 7))
	at := 0.0
	out := make([]Request, n)
	for i := range out {
		at += r.ExpFloat64() / rps
		out[i] = Request{At: at, Prompt: 1, Output: 1 + int(math.Round(1000*output(r)))}
	}
	return out
}

func exponential(r *rand.Rand) float64 { return r.ExpFloat64() }
func constant(*rand.Rand) float64      { return 1 }

// The queue is the one that theory knows: a mean service of 1 s, Poisson arrivals.
func TestQueueAgainstTheory(t *testing.T) {
	// erlang is Erlang's C, the chance to wait for one of c servers.
	erlang := func(c int, load float64) float64 {
		term, sum := 1.0, 1.0
		for k := 1; k < c; k++ {
			term *= load / float64(k)
			sum += term
		}
		last := term * load / float64(c) / (1 - load/float64(c))
		return last / (sum + last)
	}
	tests := []struct {
		name    string
		slots   int
		rps     float64
		service func(*rand.Rand) float64
		wait    float64 // mean, seconds

		exponential bool // so is the time inside
	}{
		{"M/M/1 at 50 %", 1, 0.5, exponential, 0.5 / (1 - 0.5), true},
		{"M/M/1 at 80 %", 1, 0.8, exponential, 0.8 / (1 - 0.8), true},
		{"M/D/1 at 80 %", 1, 0.8, constant, 0.8 / 2 / (1 - 0.8), false},
		{"M/M/4 at 80 %", 4, 3.2, exponential, erlang(4, 3.2) / (4 - 3.2), false},
		{"M/M/32 at 90 %", 32, 28.8, exponential, erlang(32, 28.8) / (32 - 28.8), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			done, r := alone(plain(tt.slots), poisson(100_000, tt.rps, tt.service))
			waits, longer, sojourns := make([]float64, len(done)), make([]float64, len(done)), 0.0
			for i := range done {
				stay := done[i].seen - done[i].reached
				waits[i] = done[i].first - done[i].reached
				sojourns += stay
				if stay > 2*(tt.wait+1) {
					longer[i] = 1
				}
			}
			near(t, "seconds of waiting", waits, tt.wait)
			if tt.exponential {
				near(t, "part that stays twice the mean", longer, math.Exp(-2))
			}
			// Little's law, exactly: what was inside was inside for as long as it stayed.
			if got := r.told.insideSeconds; math.Abs(got/sojourns-1) > 1e-9 {
				t.Errorf("∫ requests inside dt = %v s, all stayed %v s together", got, sojourns)
			}
		})
	}
}

// near holds that values have a mean, but for chance.
func near(t *testing.T, what string, values []float64, want float64) {
	t.Helper()
	m, sigma := batches(values)
	if z := (m - want) / sigma; math.Abs(z) > 4 {
		t.Errorf("%s: %.4f, want %.4f: z = %.1f", what, m, want, z)
	}
}

// The pace's closed forms are what summing small steps gives, and each other's
// inverse.
func TestPace(t *testing.T) {
	for _, p := range []pace{
		{0.01, 0, 5},
		{0.01, 0.03, 5},
		{0.02, 0.001, 0.5},
		{leastGap, 0.05, 2},
	} {
		for _, seconds := range []float64{0.01, 1, 7, 60} {
			const steps = 200_000
			want := 0.0
			for i := range steps {
				s := (float64(i) + 0.5) * seconds / steps
				want += seconds / steps / (p.a + p.c*math.Exp(-s/p.w))
			}
			got := p.tokens(seconds)
			if math.Abs(got/want-1) > 1e-4 {
				t.Errorf("%+v makes %v tokens in %v s, want %v", p, got, seconds, want)
			}
			if back := p.seconds(got); math.Abs(back/seconds-1) > 1e-6 {
				t.Errorf("%+v takes %v s for %v tokens, want %v", p, back, got, seconds)
			}
		}
	}
}

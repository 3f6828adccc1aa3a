package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLineAt(t *testing.T) {
	rising := line{idle: 200 * time.Millisecond, full: 250 * time.Millisecond}
	tests := []struct {
		name        string
		line        line
		utilisation float64
		want        time.Duration
	}{
		{"idle", rising, 0, 200 * time.Millisecond},
		{"half", rising, 0.5, 225 * time.Millisecond},
		{"full", rising, 1, 250 * time.Millisecond},
		{"beyond", rising, 2, 300 * time.Millisecond},
		{"level without a second end", line{idle: time.Second}, 3, time.Second},
		{"falling stops at nothing", line{idle: 2, full: 1}, 9, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.line.at(tt.utilisation); got != tt.want {
				t.Errorf("at(%v) = %v, want %v", tt.utilisation, got, tt.want)
			}
		})
	}
}

func TestFirstTokenQueuesOnlyOverCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		idle := time.Duration(rapid.Int64Range(1, 1e9).Draw(t, "idle"))
		p := profile{ttft: line{idle, idle + time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "rise"))}}
		u := rapid.Float64Range(0, 5).Draw(t, "utilisation")
		queue, prefill := p.firstToken(u, 1)
		if got, want := queue+prefill, p.ttft.at(u); got != want {
			t.Errorf("queue %v + prefill %v = %v, want %v", queue, prefill, got, want)
		}
		if u <= 1 && queue != 0 {
			t.Errorf("queue = %v at utilisation %v, want none", queue, u)
		}
	})
}

func TestPrefillFollowsTheLength(t *testing.T) {
	p := profile{ttft: line{200 * time.Millisecond, 400 * time.Millisecond}, promptTokens: 1000}
	tests := []struct {
		name           string
		utilisation    float64
		prompt         int
		queue, prefill time.Duration
	}{
		{"the reference", 0, 1000, 0, 200 * time.Millisecond},
		{"twice as long", 0, 2000, 0, 400 * time.Millisecond},
		{"half, under load", 1, 500, 0, 200 * time.Millisecond},
		{"half, over capacity: the queue is not shorter for it", 2, 500, 200 * time.Millisecond, 200 * time.Millisecond},
		{"next to nothing", 0, 1, 0, 20 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if queue, prefill := p.firstToken(tt.utilisation, tt.prompt); queue != tt.queue || prefill != tt.prefill {
				t.Errorf("queue %v, prefill %v, want %v and %v", queue, prefill, tt.queue, tt.prefill)
			}
		})
	}
}

func TestWork(t *testing.T) {
	reference := profile{promptTokens: 1000, outputTokens: 200, outputCost: 5}
	tests := []struct {
		name           string
		profile        profile
		prompt, output int
		want           float64
	}{
		{"without a reference every request is one", profile{}, 7, 9, 1},
		{"the reference itself", reference, 1000, 200, 1},
		{"half of it", reference, 500, 100, 0.5},
		{"output only", reference, 0, 400, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.profile.work(tt.prompt, tt.output); got != tt.want {
				t.Errorf("work(%d, %d) = %v, want %v", tt.prompt, tt.output, got, tt.want)
			}
		})
	}
}

func TestMeterFindsTheRateOfRandomArrivals(t *testing.T) {
	const capacity, rate, arrivals = 50, 30, 20_000
	m := meter{capacity: capacity, window: 5 * time.Second}
	random := rand.New(rand.NewPCG(1, 2))
	now, sum, counted := time.Unix(0, 0), 0.0, 0
	for i := range arrivals {
		now = now.Add(time.Duration(random.ExpFloat64() / rate * 1e9))
		met := m.arrive(now, 1)
		if i > arrivals/10 { // the window has filled
			sum, counted = sum+met, counted+1
		}
	}
	got, want := sum/float64(counted), float64(rate)/capacity
	if math.Abs(got-want) > 0.02*want {
		t.Errorf("mean utilisation met = %v, want %v within 2 %%", got, want)
	}
}

func TestMeterForgets(t *testing.T) {
	start := time.Unix(0, 0)
	m := meter{capacity: 1, window: time.Second}
	if got := m.arrive(start, 4); got != 0 {
		t.Errorf("the first arrival meets utilisation %v, want 0", got)
	}
	if got, want := m.at(start.Add(time.Second)), 4/math.E; math.Abs(got-want) > 1e-9 {
		t.Errorf("after one window: %v, want %v", got, want)
	}
	if got := m.at(start.Add(-time.Hour)); got != 4 {
		t.Errorf("with a clock set back: %v, want 4", got)
	}
}

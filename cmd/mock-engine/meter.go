package main

import (
	"math"
	"time"
)

// meter measures utilisation: the rate at which work arrives, exponentially
// forgotten, over the capacity. It is not safe for concurrent use.
type meter struct {
	capacity float64 // work per second at utilisation 1
	window   time.Duration
	rate     float64 // work per second, as of last
	last     time.Time
}

// at is the utilisation at a time not before the last arrival.
func (m *meter) at(now time.Time) float64 {
	return m.decayed(now) / m.capacity
}

// arrive counts work and returns the utilisation that it meets, itself not
// included: the mean of that is the true one when arrivals are random.
func (m *meter) arrive(now time.Time, work float64) float64 {
	met := m.decayed(now)
	m.rate, m.last = met+work/m.window.Seconds(), now
	return met / m.capacity
}

func (m *meter) decayed(now time.Time) float64 {
	age := now.Sub(m.last).Seconds()
	return m.rate * math.Exp(-max(0, age)/m.window.Seconds())
}

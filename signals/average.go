package signals

import (
	"math"
	"time"

	"weir/fleet"
)

// A mean, and how far chance may have taken it.
//
// Items (times, tokens) come in reports, each a number of items and their sum. What
// is t old counts e^(−t/τ): the mean is Σ λ·sum / Σ λ·n, and as good as one of
// (Σ λ·n)² / Σ λ²·n items that count alike (Kish, Survey Sampling, 1965).
//
// Their variance is taken from how batches of items lie about that mean, by West's
// update of weighted sums of squares (CACM 22(9), 1979), each batch weighing its
// items. If items vary by σ² each, the sum of squares is expected to be
// σ² (Σ λ − Σ λ²·n / Σ λ·n), and the mean's variance is σ² / items.
//
// A batch is what came within a second, not a report nor an item: items of one
// second share its load, and reports differ lastingly by front-end, class and engine.
// The first makes means less certain than items tell, the second makes them no less
// certain. Batch means see both right (Schmeiser, Operations Research 30(3), 1982);
// what outlasts a second, they see only in part.
const (
	batchSpan = time.Second
	// minFreedom is how many degrees of freedom a variance must rest on: by one
	// alone, chance makes it nothing too often.
	minFreedom = 2
	// maxItem is beyond any time or size, and its square still a number; so is that of
	// a sum of so many.
	maxItem = 1e15
)

// batch is what came within batchSpan.
type batch struct {
	from, to time.Time
	n, sum   float64
}

// average is a time-decayed mean. The zero value has heard of nothing.
type average struct {
	closed scatter
	open   batch
}

// add takes n items and their sum. No items, or what cannot be one, change nothing.
func (a *average) add(now time.Time, tau time.Duration, n, sum float64) {
	if !(n > 0 && n <= maxItem && sum >= 0 && sum/n <= maxItem) {
		return
	}
	if a.open.n > 0 && now.Sub(a.open.from) >= batchSpan {
		a.closed.add(tau, a.open)
		a.open = batch{}
	}
	if a.open.n == 0 {
		a.open.from = now
	}
	if now.After(a.open.to) {
		a.open.to = now
	}
	a.open.n += n
	a.open.sum += sum
}

// count is how many items there were, as far as they are not decayed.
func (a *average) count() float64 { return a.closed.items + a.open.n }

// estimate is what an average says.
type estimate struct {
	mean  float64
	items float64   // on which it rests, decayed
	alike float64   // how many items that count alike would make as good a mean
	at    time.Time // of the last item; zero: there was none
	// stdErr stays what it was at the last item: silence makes a mean old, not more
	// uncertain by chance.
	stdErr fleet.StdErr
}

func (a *average) read(now time.Time, tau time.Duration) estimate {
	if a.open.n == 0 {
		return estimate{}
	}
	all := a.closed
	all.add(tau, a.open)
	e := estimate{mean: all.mean, alike: all.items * all.items / all.squares, at: all.at, stdErr: all.stdErr()}
	all.decay(now, tau)
	e.items = all.items
	return e
}

// reading is the estimate as others get it; less than so many items are unknown.
func (e estimate) reading(least float64) fleet.Reading {
	if e.at.IsZero() || e.items < least {
		return fleet.Reading{}
	}
	return fleet.Reading{Value: e.mean, At: e.at, StdErr: e.stdErr}
}

// scatter sums batches: λ = e^(−age/τ).
type scatter struct {
	at      time.Time
	items   float64 // Σ λ·n
	squares float64 // Σ λ²·n
	batches float64 // Σ λ
	mean    float64
	about   float64 // Σ λ·n·(batch's mean − mean)²
}

func (s *scatter) add(tau time.Duration, b batch) {
	s.decay(b.to, tau)
	s.items += b.n
	s.squares += b.n
	s.batches++
	off := b.sum/b.n - s.mean
	s.mean = max(0, s.mean+off*b.n/s.items) // rounding, once what was before weighs nothing
	s.about += b.n * off * (b.sum/b.n - s.mean)
}

func (s *scatter) decay(now time.Time, tau time.Duration) {
	if !now.After(s.at) {
		return
	}
	if !s.at.IsZero() {
		lambda := math.Exp(-now.Sub(s.at).Seconds() / tau.Seconds())
		s.items *= lambda
		s.squares *= lambda * lambda
		s.batches *= lambda
		s.about *= lambda
	}
	s.at = now
}

func (s *scatter) stdErr() fleet.StdErr {
	freedom := s.batches - s.squares/s.items
	if !(freedom >= minFreedom) {
		return fleet.StdErr{}
	}
	variance := max(0, s.about) / freedom
	return fleet.StdErr{Value: math.Sqrt(variance*s.squares) / s.items, Known: true}
}

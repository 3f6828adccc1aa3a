package signals

import (
	"math"
	"time"
)

// decayed is a sum that forgets: what is t old counts e^(−t/τ) of itself. Reports
// come unevenly and from many, so it is decayed by the clock, not by their number.
type decayed struct {
	sum   float64
	since time.Time // of the first addition
	at    time.Time // of the last
}

func (d *decayed) add(now time.Time, tau time.Duration, x float64) {
	if d.since.IsZero() {
		d.since = now
	}
	d.sum = d.read(now, tau) + x
	if now.After(d.at) {
		d.at = now
	}
}

func (d *decayed) read(now time.Time, tau time.Duration) float64 {
	if d.at.IsZero() || !now.After(d.at) {
		return d.sum
	}
	return d.sum * math.Exp(-now.Sub(d.at).Seconds()/tau.Seconds())
}

// rate is what was added per second lately. The time before the first addition does
// not count as idle.
func (d *decayed) rate(now time.Time, tau time.Duration) float64 {
	elapsed := now.Sub(d.since).Seconds()
	if d.since.IsZero() || elapsed < 1 {
		return 0
	}
	return d.read(now, tau) / (tau.Seconds() * (1 - math.Exp(-elapsed/tau.Seconds())))
}

package signals

import (
	"time"

	"weir/fleet"
)

// Round trips are probed every few seconds; the way to a region does not change
// from one to the next.
const roundTripTau = 30 * time.Second

// distance is the measured round trip of a link.
type distance struct{ count, seconds decayed }

func (d *distance) observe(now time.Time, r fleet.RoundTrip) {
	d.count.add(now, roundTripTau, float64(r.Count))
	d.seconds.add(now, roundTripTau, r.Seconds)
}

// mean is in seconds; false means that nothing was measured lately.
func (d *distance) mean(now time.Time) (float64, bool) {
	n := d.count.read(now, roundTripTau)
	if n < 0.1 { // the last probe is over a minute old
		return 0, false
	}
	return d.seconds.read(now, roundTripTau) / n, true
}

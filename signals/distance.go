package signals

import (
	"time"

	"weir/fleet"
)

const (
	// Round trips are probed every few seconds; the way to a region does not change
	// from one to the next.
	roundTripTau = 30 * time.Second
	// leastTrips are left of a probe after a little more than a minute.
	leastTrips = 0.1
)

// distance is the measured round trip of a link.
type distance struct{ average }

func (d *distance) observe(now time.Time, r fleet.RoundTrip) {
	d.add(now, roundTripTau, float64(r.Count), r.Seconds)
}

// seconds is unknown if nothing was measured lately.
func (d *distance) seconds(now time.Time) fleet.Reading {
	return d.read(now, roundTripTau).reading(leastTrips)
}

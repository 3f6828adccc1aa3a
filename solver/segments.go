package solver

import (
	"slices"

	"weir/fleet"
)

// maxSegments is how many linear pieces stand for a pool's queueing curve, unless
// its profile has more points. Sixteen keep the plan within 0.1 % of the curve's.
const maxSegments = 16

// segment is a range of utilisation over which one engine-second of work costs
// the same queueing.
type segment struct {
	width float64 // utilisation of one replica
	slope float64 // seconds of waiting, over all requests, per engine-second
}

// queueing is how much longer a request takes per engine-second of its work at
// that utilisation than on an idle replica. A noisy profile that falls below its
// start says 0.
func queueing(p *fleet.Profile, utilisation float64) float64 {
	return p.CapacityRps * max(0, p.Queueing(utilisation))
}

// waiting is the queueing of all work of one replica at that utilisation, seconds
// per second: the function that the segments approximate.
func waiting(p *fleet.Profile, utilisation float64) float64 {
	return utilisation * queueing(p, utilisation)
}

// segments approximates a replica's waiting from 0 to the usable utilisation from
// above by pieces of rising slope.
func segments(p *fleet.Profile, usable float64) []segment {
	points := breakpoints(p, usable)
	var out []segment
	for i := 1; i < len(points); i++ {
		width := points[i] - points[i-1]
		rise := waiting(p, points[i]) - waiting(p, points[i-1])
		out = rising(append(out, segment{width, rise / width}))
	}
	return out
}

// breakpoints are the profile's own points, then the middles of the pieces whose
// chord is farthest from the curve.
func breakpoints(p *fleet.Profile, usable float64) []float64 {
	points := []float64{0, usable}
	for _, curve := range []fleet.Curve{p.TTFT, p.TBT} {
		for _, point := range curve {
			if point.Utilisation > 0 && point.Utilisation < usable {
				points = append(points, point.Utilisation)
			}
		}
	}
	slices.Sort(points)
	points = slices.Compact(points)
	for len(points) <= maxSegments {
		i := worstChord(p, points)
		if i == 0 {
			break
		}
		points = slices.Insert(points, i, (points[i-1]+points[i])/2)
	}
	return points
}

// worstChord returns the index of the point that ends the piece to split, or 0
// when every chord is the curve itself. Between two points of the profile the
// curve is a parabola, farthest from its chord in the middle. Of equal pieces,
// rounding apart, it is the leftmost.
func worstChord(p *fleet.Profile, points []float64) int {
	worst, index := 1e-12, 0
	for i := 1; i < len(points); i++ {
		width := points[i] - points[i-1]
		bend := queueing(p, points[i]) - queueing(p, points[i-1])
		if off := max(bend, -bend) * width / 4; off > worst*(1+1e-9) {
			worst, index = off, i
		}
	}
	return index
}

// rising restores rising slopes after a segment was appended, by merging it with
// those before it that are steeper (pool adjacent violators).
func rising(s []segment) []segment {
	for n := len(s); n > 1 && s[n-2].slope >= s[n-1].slope; n-- {
		a, b := s[n-2], s[n-1]
		width := a.width + b.width
		s[n-2] = segment{width, (a.slope*a.width + b.slope*b.width) / width}
		s = s[:n-1]
	}
	return s
}

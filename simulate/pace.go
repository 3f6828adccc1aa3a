package simulate

import "math"

// Line is a latency that rises in a straight line with utilisation, in seconds: Idle
// at 0, Full at 1, and on beyond it. Without Full it is level.
type Line struct{ Idle, Full float64 }

// At is the latency at a utilisation.
func (l Line) At(utilisation float64) float64 {
	return max(0, l.Idle+l.rise()*utilisation)
}

func (l Line) rise() float64 {
	if l.Full == 0 {
		return 0
	}
	return l.Full - l.Idle
}

// meter measures utilisation: the rate at which work arrives, exponentially forgotten,
// over the capacity.
type meter struct {
	capacity float64 // work per second at utilisation 1
	window   float64 // seconds
	rate     float64 // work per second, as of last
	last     float64
}

func (m *meter) at(now float64) float64 { return m.decayed(now) / m.capacity }

// arrive counts work and returns the utilisation that it meets, itself not included.
func (m *meter) arrive(now, work float64) float64 {
	met := m.decayed(now)
	m.rate, m.last = met+work/m.window, now
	return met / m.capacity
}

func (m *meter) decayed(now float64) float64 {
	return m.rate * math.Exp(-max(0, now-m.last)/m.window)
}

// pace is how fast the requests of a batch make tokens, all alike: the time between
// two tokens is a line in a utilisation that falls by itself, as e^(−t/window), for
// as long as nothing arrives.
//
// With a the time on an idle engine and c what the utilisation adds to it at first,
// the rate is 1/(a + c·e^(−t/w)), whose integral is t/a + w/a · ln((a + c·e^(−t/w))/(a + c)).
type pace struct{ a, c, w float64 }

// leastGap is the least time between two tokens, seconds.
const leastGap = 1e-6

func paceOf(l Line, utilisation, window float64) pace {
	return pace{max(l.Idle, leastGap), max(0, l.rise()) * utilisation, window}
}

// tokens is how many tokens each request makes in so many seconds.
func (p pace) tokens(seconds float64) float64 {
	if p.c == 0 {
		return seconds / p.a
	}
	return seconds/p.a + p.w/p.a*math.Log((p.a+p.c*math.Exp(-seconds/p.w))/(p.a+p.c))
}

// seconds is how long each request takes to make so many tokens: the inverse.
func (p pace) seconds(tokens float64) float64 {
	if p.c == 0 {
		return tokens * p.a
	}
	return p.a*tokens + p.w*math.Log((p.a+p.c-p.c*math.Exp(-p.a*tokens/p.w))/p.a)
}

package signals

import (
	"time"

	"weir/fleet"
)

const (
	// seenTau smooths what is seen of one engine, which may get no more than a request
	// a second.
	seenTau = 20 * time.Second
	// seenFor is how long what was seen of an engine can be acted on.
	seenFor = 3 * seenTau
)

// seen is how fast an engine or a pool was, as front-ends saw it.
type seen struct{ ttft, tbt average }

// observe takes what a report says of an engine that is network seconds away.
func (s *seen) observe(now time.Time, tau time.Duration, e *fleet.EngineLoad, network float64) {
	n, seconds := firstTokens(e, network)
	s.ttft.add(now, tau, n, seconds)
	s.tbt.add(now, tau, float64(e.TBT.Count()), e.TBT.Sum)
}

// firstTokens are their number, and their times in all without the network.
func firstTokens(e *fleet.EngineLoad, network float64) (n, seconds float64) {
	n = float64(e.TTFT.Count())
	return n, max(0, e.TTFT.Sum-n*network)
}

// signals are the means over what was seen in the last few τ.
func (s *seen) signals(now time.Time, tau time.Duration) fleet.EngineSeen {
	mean := func(a *average) fleet.Reading {
		r := a.read(now, tau).reading(1)
		r.Stale = r.Known() && now.Sub(r.At) > seenFor
		return r
	}
	return fleet.EngineSeen{TTFTSeconds: mean(&s.ttft), TBTSeconds: mean(&s.tbt)}
}

package fleet

import "slices"

// Profile is what one replica of a pool can do: its latency against its load.
//
// Load is work, in engine-seconds per second: one replica at utilisation 1 does
// one engine-second of work each second, and utilisation 1 is the load at which
// its TTFT target breaks. A reference request costs 1/CapacityRps of it.
type Profile struct {
	CapacityRps     float64 // reference requests per second of one replica at utilisation 1
	Reference       Tokens  // the request that CapacityRps and the curves speak of
	CacheStated     bool    // how much of it was cached is known; else as much as of the traffic is
	OutputTokenCost float64 // work of one output token in prompt tokens
	TTFT            Curve   // seconds against utilisation, for the reference request
	TBT             Curve   // seconds against utilisation; empty: not known, taken as level
}

// Curve is a piecewise linear function of utilisation, by rising utilisation.
// Left of its first point it is level, right of its last it goes on as its last
// piece does.
type Curve []CurvePoint

// CurvePoint is one measured point of a curve.
type CurvePoint struct{ Utilisation, Seconds float64 }

// At returns the curve's value in seconds; an empty curve is 0 everywhere.
func (c Curve) At(utilisation float64) float64 {
	n := len(c)
	switch {
	case n == 0:
		return 0
	case n == 1 || utilisation <= c[0].Utilisation:
		return c[0].Seconds
	}
	i := 1
	for i < n-1 && c[i].Utilisation < utilisation {
		i++
	}
	a, b := c[i-1], c[i]
	slope := (b.Seconds - a.Seconds) / (b.Utilisation - a.Utilisation)
	return a.Seconds + slope*(utilisation-a.Utilisation)
}

// Work is what a mean request of that size costs one replica, in engine-seconds.
// Zero tokens stand for the reference request. Where it is known what of the reference's
// prompt was cached, what is computed counts, else whole prompts do.
func (p *Profile) Work(t Tokens) float64 {
	reference := p.tokenCost(p.Reference)
	if reference <= 0 || t == (Tokens{}) {
		return 1 / p.CapacityRps
	}
	return p.tokenCost(t) / reference / p.CapacityRps
}

func (p *Profile) tokenCost(t Tokens) float64 {
	return p.Prefill(t) + p.OutputTokenCost*t.Output
}

// Prefill is how many tokens of a request's prompt cost work by the profile.
func (p *Profile) Prefill(t Tokens) float64 {
	if p.CacheStated {
		return t.Computed()
	}
	return t.Prompt
}

// Queueing is how much longer the reference request takes at that utilisation
// than on an idle replica, in seconds: TTFT's rise plus TBT's rise over its
// output tokens.
func (p *Profile) Queueing(utilisation float64) float64 {
	return p.TTFT.At(utilisation) - p.TTFT.At(0) +
		p.Reference.Output*(p.TBT.At(utilisation)-p.TBT.At(0))
}

// Same says whether two profiles are the same.
func (p *Profile) Same(q *Profile) bool {
	return p.CapacityRps == q.CapacityRps && p.Reference == q.Reference && p.CacheStated == q.CacheStated && p.OutputTokenCost == q.OutputTokenCost &&
		slices.Equal(p.TTFT, q.TTFT) && slices.Equal(p.TBT, q.TBT)
}

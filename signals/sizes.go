package signals

import (
	"math"
	"time"

	"weir/fleet"
)

const (
	// Mean sizes of requests change with what people do, not with the second; every
	// plan's work rests on them, so they are slow.
	tokensTau = time.Minute
	// priorRequests is how many measured requests the declared size outweighs: a mean
	// over a handful is mostly luck, and token counts are spread over decades.
	priorRequests = 50
	// mostEstimated is the part of the requests that may be estimated from bytes.
	mostEstimated = 0.5
)

// sizes sums the tokens of a class's requests.
type sizes struct {
	prompt, output, cached average
	estimated              decayed
}

func (s *sizes) observe(now time.Time, t fleet.TokenLoad) {
	s.prompt.add(now, tokensTau, float64(t.Requests), t.Prompt)
	s.output.add(now, tokensTau, float64(t.Requests), t.Output)
	s.cached.add(now, tokensTau, float64(t.Requests), t.Cached)
	s.estimated.add(now, tokensTau, float64(t.Estimated))
}

// belief blends what was measured with the declared size, or takes it alone where
// nothing is declared and enough was measured. What rests mostly on estimates is not
// believed. Engines that do not tell what was cached make that less.
func (s *sizes) belief(now time.Time, prior fleet.Tokens) (fleet.TokenBelief, bool) {
	prompt, output := s.prompt.read(now, tokensTau), s.output.read(now, tokensTau)
	b := fleet.TokenBelief{Requests: prompt.items, Estimated: s.estimated.read(now, tokensTau), At: prompt.at}
	measured := 1.0 // the part of what is believed
	if prior != (fleet.Tokens{}) {
		measured = b.Requests / (b.Requests + priorRequests)
	} else if b.Requests < priorRequests {
		return b, false
	}
	if b.Estimated > mostEstimated*b.Requests {
		return b, false
	}
	b.Mean.Prompt, b.PromptStdErr = blend(measured, prompt, prior.Prompt)
	b.Mean.Output, b.OutputStdErr = blend(measured, output, prior.Output)
	b.Mean.Cached = b.Mean.Prompt * cachedPart(measured, s.cached.read(now, tokensTau).mean/prompt.mean, prior)
	return b, true
}

// cachedPart is the part of the prompts' tokens that was cached, 0–1: measured alone
// where none is declared.
func cachedPart(measured, part float64, prior fleet.Tokens) float64 {
	switch {
	case !(part >= 0): // there was no prompt
		part = 0
	case prior.Cached > 0:
		part = measured*part + (1-measured)*prior.Cached/prior.Prompt
	}
	return min(1, part)
}

// blend is a mean of which a part is measured, and what chance does to it: to the mean
// that is measured, and by how many requests there were to that part.
func blend(measured float64, e estimate, prior float64) (float64, fleet.StdErr) {
	mean := measured*e.mean + (1-measured)*prior
	if !e.stdErr.Known {
		return mean, fleet.StdErr{}
	}
	part := (e.mean - mean) / math.Sqrt(e.alike) // Poisson's: as many as there were vary by their root
	return mean, fleet.StdErr{Value: measured * math.Hypot(e.stdErr.Value, part), Known: true}
}

package signals

import (
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
	requests, estimated, prompt, output decayed
}

func (s *sizes) observe(now time.Time, t fleet.TokenLoad) {
	s.requests.add(now, tokensTau, float64(t.Requests))
	s.estimated.add(now, tokensTau, float64(t.Estimated))
	s.prompt.add(now, tokensTau, t.Prompt)
	s.output.add(now, tokensTau, t.Output)
}

// belief blends what was measured with the declared size, or takes it alone where
// nothing is declared and enough was measured. What rests mostly on estimates is not
// believed.
func (s *sizes) belief(now time.Time, prior fleet.Tokens) (fleet.TokenBelief, bool) {
	n := s.requests.read(now, tokensTau)
	b := fleet.TokenBelief{Requests: n, Estimated: s.estimated.read(now, tokensTau)}
	prompt, output := s.prompt.read(now, tokensTau), s.output.read(now, tokensTau)
	if prior != (fleet.Tokens{}) {
		n += priorRequests
		prompt += priorRequests * prior.Prompt
		output += priorRequests * prior.Output
	} else if n < priorRequests {
		return b, false
	}
	if b.Estimated > mostEstimated*b.Requests {
		return b, false
	}
	b.Mean = fleet.Tokens{Prompt: prompt / n, Output: output / n}
	return b, true
}

package fit

import (
	"fmt"
	"math"
	"slices"
	"time"

	"weir/fleet"
)

// Is a profile still true? What traffic showed is held against what the profile says
// at the same load, by the logarithm of the ratio, in bands of load. A drift is named
// where, over the newest spans of a band, it lies beyond what nobody would mind by more
// than chance takes it: three standard errors, the larger of those that the spans'
// requests tell and those by which the spans scatter about one another, so that a few
// bad minutes among good ones make no drift. And it must show at two bands of load, or
// for twice as long at the one that there is; or at all loads together, where there are
// too few spans at each.
const (
	bandWidth    = 0.2
	lastBand     = 4    // it goes on to mostLoad
	mostLoad     = 1.05 // beyond, the profile says nothing of which it is sure
	windowSpans  = 20   // those that are compared: the newest
	windowSteps  = 60   // and no older than that
	leastInBand  = 5    // spans
	aloneInBand  = 2 * leastInBand
	someInBand   = 2 // make it one of several
	driftSigmas  = 3
	driftPart    = 0.1   // of what the profile says: nobody minds less
	driftSeconds = 0.003 // likewise: the network is known no better
	// A longer prompt than the profile's takes longer, a shorter one less, and so one
	// that is found in a cache: within this part they are alike.
	sizeTolerance = 0.1
	// A span from which a drift is said to last shows at least that part of it.
	halfOfIt  = 0.5
	sinceSpan = 3 // spans that are judged together
)

// Comparison is what a history says of a profile.
type Comparison struct {
	Spans  int    // that could be compared
	Why    string // why not all; empty: they could
	Drifts []fleet.Drift
}

// sign is one span beside the profile.
type sign struct {
	span     *fleet.Span
	off      float64 // logarithm of shown / said
	stdErr   float64 // of off
	weight   float64
	floor    float64 // of off: less is nothing
	prompt   float64 // tokens computed / the profile's
	promptly bool    // the size of the prompt matters
}

// Compare holds a history, oldest first, against a profile. Step is how long a span
// is, as a rule.
func Compare(p *fleet.Profile, history []fleet.Span, now time.Time, step time.Duration) Comparison {
	var c Comparison
	var bands [lastBand + 1][2][]sign // by load, then TTFT and TBT
	recent := history
	if n := len(recent); n > windowSpans {
		recent = recent[n-windowSpans:]
	}
	beyond := 0
	for i := range recent {
		s := &recent[i]
		if now.Sub(s.To) > windowSteps*step {
			continue
		}
		if u := s.Utilisation(p); u > mostLoad {
			beyond++
		} else {
			b := &bands[bandOf(u)]
			b[0], b[1] = append(b[0], ttftSign(p, s)...), append(b[1], tbtSign(p, s)...)
			c.Spans++
		}
	}
	if beyond > 0 {
		c.Why = fmt.Sprintf("%d spans had more load than the profile speaks of", beyond)
	}
	for k, signal := range []fleet.Signal{fleet.SignalTTFT, fleet.SignalTBT} {
		c.judge(signal, k, &bands)
	}
	for i := range c.Drifts {
		c.Drifts[i].Since = since(p, history, &c.Drifts[i])
	}
	return c
}

func bandOf(utilisation float64) int { return min(lastBand, int(utilisation/bandWidth)) }

// ttftSign is what a span says of the profile's TTFT, if anything.
func ttftSign(p *fleet.Profile, s *fleet.Span) []sign {
	g := newSign(p.TTFT.At(s.Utilisation(p)), &s.TTFT, s)
	if g == nil {
		return nil
	}
	g[0].promptly = true
	g[0].prompt = 1
	if p.Reference.Prompt > 0 && s.Tokens.Prompt > 0 {
		g[0].prompt = s.Tokens.Computed() / p.Prefill(p.Reference)
	}
	return g
}

func tbtSign(p *fleet.Profile, s *fleet.Span) []sign {
	if len(p.TBT) == 0 {
		return nil
	}
	return newSign(p.TBT.At(s.Utilisation(p)), &s.TBT, s)
}

func newSign(said float64, shown *fleet.Timing, s *fleet.Span) []sign {
	if !(said > 0 && shown.Seconds > 0 && shown.Items > 0) {
		return nil
	}
	g := sign{span: s, off: math.Log(shown.Seconds / said), weight: min(shown.Items, usualRequests), floor: math.Log1p(max(driftPart, driftSeconds/said))}
	g.stdErr = 1 / math.Sqrt(shown.Items) // as of exponential times, where nobody tells
	if shown.StdErr.Known {
		g.stdErr = shown.StdErr.Value / shown.Seconds
	}
	return []sign{g}
}

// judge names the drifts of a signal.
func (c *Comparison) judge(signal fleet.Signal, k int, bands *[lastBand + 1][2][]sign) {
	var found []fleet.Drift
	most := 0
	for b := range bands {
		signs := bands[b][k]
		d, why := drifted(signal, signs)
		if c.Why == "" {
			c.Why = why
		}
		if d == nil {
			continue
		}
		d.Low, d.High = float64(b)*bandWidth, float64(b+1)*bandWidth
		found = append(found, *d)
		most = max(most, d.Spans)
	}
	if len(found) > 1 || most >= aloneInBand {
		c.Drifts = append(c.Drifts, found...)
	} else if d := c.overall(signal, k, bands); d != nil {
		c.Drifts = append(c.Drifts, *d)
	}
}

// overall is a drift at all loads together, where there are too few spans at each to
// tell; nil: none.
func (c *Comparison) overall(signal fleet.Signal, k int, bands *[lastBand + 1][2][]sign) *fleet.Drift {
	var all []sign
	low, high, some := math.Inf(1), 0.0, 0
	for b := range bands {
		if signs := bands[b][k]; len(signs) > 0 {
			all = append(all, signs...)
			low, high = min(low, float64(b)*bandWidth), float64(b+1)*bandWidth
			some += min(1, len(signs)/someInBand)
		}
	}
	if len(all) < aloneInBand || some < 2 {
		return nil
	}
	slices.SortFunc(all, func(a, b sign) int { return a.span.To.Compare(b.span.To) })
	d, _ := drifted(signal, all)
	if d != nil {
		d.Low, d.High = low, high
	}
	return d
}

// drifted is the drift that signs of one band speak of; nil: none. Why says what keeps
// one from being named that they seem to speak of.
func drifted(signal fleet.Signal, signs []sign) (d *fleet.Drift, why string) {
	if len(signs) < leastInBand {
		return nil, ""
	}
	m := pool(signs)
	if math.Abs(m.off)-driftSigmas*m.stdErr <= m.floor {
		return nil, ""
	}
	if signs[0].promptly {
		switch slower := m.off > 0; {
		case slower && m.prompt > 1+sizeTolerance:
			return nil, fmt.Sprintf("prompts that are computed are %.3g times as long as the profile's: that TTFT is longer says nothing", m.prompt)
		case !slower && m.prompt < 1-sizeTolerance:
			return nil, fmt.Sprintf("prompts that are computed are %.2g times as long as the profile's: that TTFT is shorter says nothing", m.prompt)
		}
	}
	ratio := math.Exp(m.off)
	return &fleet.Drift{
		Signal: signal, Ratio: ratio, StdErr: ratio * m.stdErr, Spans: len(signs), Requests: m.requests,
		Until: signs[len(signs)-1].span.To,
	}, ""
}

// pooled is what signs say together.
type pooled struct{ off, stdErr, floor, prompt, requests float64 }

func pool(signs []sign) (m pooled) {
	weight := 0.0
	for _, g := range signs {
		weight += g.weight
		m.off += g.weight * g.off
		m.prompt += g.weight * g.prompt
		m.requests += g.span.Issued
		m.floor = max(m.floor, g.floor)
	}
	m.off /= weight
	m.prompt /= weight
	told, scatter := 0.0, 0.0
	for _, g := range signs {
		part := g.weight / weight
		told += part * part * g.stdErr * g.stdErr
		scatter += part * part * (g.off - m.off) * (g.off - m.off)
	}
	if n := float64(len(signs)); n > 1 {
		scatter *= n / (n - 1)
	}
	m.stdErr = math.Sqrt(max(told, scatter))
	return m
}

// since is when a drift began: going back through the spans at loads that show it, the
// first that do so, a few at a time.
func since(p *fleet.Profile, history []fleet.Span, d *fleet.Drift) time.Time {
	began, want := d.Until, halfOfIt*math.Log(d.Ratio)
	var some []sign
	for i := len(history) - 1; i >= 0; i-- {
		s := &history[i]
		if u := s.Utilisation(p); u > mostLoad || float64(bandOf(u))*bandWidth < d.Low-bandWidth/2 || float64(bandOf(u)+1)*bandWidth > d.High+bandWidth/2 {
			continue
		}
		if d.Signal == fleet.SignalTTFT {
			some = append(some, ttftSign(p, s)...)
		} else {
			some = append(some, tbtSign(p, s)...)
		}
		if len(some) < sinceSpan {
			continue
		}
		if m := pool(some); m.off/want < 1 {
			break
		}
		began, some = s.From, nil
	}
	return began
}

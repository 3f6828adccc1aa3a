package fit

import (
	"errors"
	"fmt"
	"math"
	"time"

	"weir/fleet"
)

// What of a history is taken.
const (
	// fewestSpans: a profile is not made of a handful of minutes.
	fewestSpans = 8
	// maxOtherCache is how far the part of the prompts that was cached may lie from the
	// usual: what is cached is computed by nobody.
	maxOtherCache = 0.15
	// A span whose load rose or fell by so much since the one before is not steady:
	// what it ended less than it began says nothing.
	steadyLoad = 0.15
	// behindSigmas is by how much less must end than began for it not to be chance.
	behindSigmas = 3
)

// Measurements makes measurements of what a pool showed since a time. Spans of unlike
// requests, and of which it cannot be told whether the engines kept up, are left out;
// the notes say what a reader should know.
func Measurements(history []fleet.Span, from time.Time) (ms []Measurement, notes []string, err error) {
	spans := sound(history, from)
	if len(spans) < fewestSpans {
		return nil, nil, tooFewSpans(len(spans), len(history), from)
	}
	u := usual(spans)
	unlikely, unsteady, requests, cached := 0, 0, 0.0, 0.0
	for i := range spans {
		s := &spans[i]
		m, ok := measured(s, before(spans, i))
		switch {
		case unlike(s.Tokens.Prompt, u.Prompt) || unlike(s.Tokens.Output, u.Output) || math.Abs(s.Tokens.CachedPart()-u.cached) > maxOtherCache:
			unlikely++
		case !ok:
			unsteady++
		default:
			ms = append(ms, m)
			requests += s.Issued
			cached += s.Issued * s.Tokens.CachedPart()
		}
	}
	if len(ms) < fewestSpans {
		return nil, nil, fmt.Errorf("of %d spans %d had other requests than usual and %d no steady load: %d are left, and %d are needed; wait, or run a benchmark", len(spans), unlikely, unsteady, len(ms), fewestSpans)
	}
	notes = append(notes, fmt.Sprintf("fitted to traffic, not to a benchmark: to %.0f requests from %s to %s", requests, clock(spans[0].From), clock(spans[len(spans)-1].To)))
	if part := cached / requests; part >= 0.01 {
		notes = append(notes, fmt.Sprintf("%.0f %% of the prompts' tokens were found in caches: the profile is that of such traffic", 100*part))
	}
	if unlikely+unsteady > 0 {
		notes = append(notes, fmt.Sprintf("left out: %d spans with other requests than usual, %d whose load was not steady", unlikely, unsteady))
	}
	return ms, notes, nil
}

// sound are the spans since a time in which something was measured.
func sound(history []fleet.Span, from time.Time) (some []fleet.Span) {
	for _, s := range history {
		if !s.From.Before(from) && s.EngineSeconds > 0 && s.Issued > 0 && s.TTFT.Items > 0 {
			some = append(some, s)
		}
	}
	return some
}

func tooFewSpans(n, all int, from time.Time) error {
	switch {
	case all == 0:
		return errors.New("there is no history yet: traffic must flow for some minutes, with engines ready and nothing penalised")
	case from.IsZero():
		return fmt.Errorf("the history has %d spans, and %d are needed: wait some minutes more", n, fewestSpans)
	}
	return fmt.Errorf("the history has %d spans since %s, when the engines became other than the profile says, and %d are needed: wait some minutes more", n, clock(from), fewestSpans)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// likeness is what requests have in common.
type likeness struct {
	fleet.Tokens
	cached float64 // part of the prompt
}

// usual are the medians, by requests.
func usual(spans []fleet.Span) (u likeness) {
	prompts, outputs, parts, weights := make([]float64, len(spans)), make([]float64, len(spans)), make([]float64, len(spans)), make([]float64, len(spans))
	for i := range spans {
		s := &spans[i]
		prompts[i], outputs[i], parts[i], weights[i] = s.Tokens.Prompt, s.Tokens.Output, s.Tokens.CachedPart(), s.Issued
	}
	u.Prompt, u.Output, u.cached = median(prompts, weights), median(outputs, weights), median(parts, weights)
	u.Cached = u.cached * u.Prompt
	return u
}

// before is the span just before another; nil: there was a gap.
func before(spans []fleet.Span, i int) *fleet.Span {
	if i == 0 || spans[i].From.Sub(spans[i-1].To) > spans[i].To.Sub(spans[i].From) {
		return nil
	}
	return &spans[i-1]
}

// measured is a span as a measurement of one engine; false: it cannot be told whether
// the engine kept up.
func measured(s, before *fleet.Span) (m Measurement, ok bool) {
	m = Measurement{
		Source: clock(s.From), AchievedRps: s.Rps(), TTFTSeconds: s.TTFT.Seconds, Tokens: s.Tokens,
		Requests: s.TTFT.Items, Failed: s.Failed * s.TTFT.Items / max(1, s.Ended), DurationSeconds: s.To.Sub(s.From).Seconds(),
	}
	if s.TBT.Items > 0 {
		m.TBTSeconds = s.TBT.Seconds
	}
	if s.Ended >= s.Issued*keptUp || s.Issued-s.Ended < behindSigmas*math.Sqrt(s.Issued+s.Ended) {
		return m, true
	}
	// Less ended than began. Either a queue grows, or load has risen, and what it
	// brought is still under way.
	if before == nil || math.Abs(s.Rps()/before.Rps()-1) > steadyLoad {
		return m, false
	}
	m.OfferedRps, m.AchievedRps, m.Requests = s.Rps(), s.Ended/s.EngineSeconds, s.Issued
	return m, true
}

// FitHistory makes a profile of what a pool showed, for one to stand in for the other.
// What the options leave open is as the profile has it: the TTFT that its capacity
// keeps to, where requests are like its own, and what an output token costs.
func FitHistory(history []fleet.Span, from time.Time, inForce *fleet.Profile, o Options) (*Result, error) {
	ms, notes, err := Measurements(history, from)
	if err != nil {
		return nil, err
	}
	if o.OutputTokenCost == 0 {
		o.OutputTokenCost = inForce.OutputTokenCost
	}
	o.CacheStated = inForce.CacheStated
	if o.TargetSeconds == 0 && len(inForce.TTFT) > 1 {
		spans := usual(sound(history, from))
		if !unlike(inForce.Prefill(spans.Tokens), inForce.Prefill(inForce.Reference)) {
			o.TargetSeconds = inForce.TTFT.At(1)
		}
	}
	r, err := Fit(ms, o)
	if err != nil {
		return nil, fmt.Errorf("traffic does not show enough: %w; or wait until it has had other loads, or run a benchmark", err)
	}
	r.Notes = append(notes, r.Notes...)
	return r, nil
}

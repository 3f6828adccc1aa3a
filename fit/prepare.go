package fit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"weir/fleet"
)

// What is taken for what.
const (
	maxMeasurements  = 10_000
	minLoads         = 4    // a curve with a bend and a check of it
	minRange         = 0.5  // of the capacity, between the lowest load and the highest
	maxExtrapolation = 1.25 // of the highest load
	maxUnlike        = 1.25 // between a run's mean prompt and the usual one: TTFTs of unlike prompts make no curve
	sameLoad         = 1.02 // loads so near are one level
	maxLevels        = 48
	keptUp           = 0.9  // of what was offered: below, the queue grew
	maxAhead         = 1.2  // of what was offered: nothing completes what was not sent
	aheadSigmas      = 3    // by which more must be completed than was offered for it not to be chance
	unknownRequests  = 100  // what a run counts for whose number of requests nobody knows
	maxFailed        = 0.05 // of a run's requests
	usualRequests    = 300  // beyond, a run's mean is no better: runs differ by more than chance
)

// Beyond these a value can only be a slip; a fleet file would not take it.
const (
	leastRps, mostRps         = 1e-6, 1e7
	leastCapacityRps          = 1e-3
	leastSeconds, mostSeconds = 1e-6, 3600
	mostTokens                = 1e8
	mostRequests              = 1e9 // of a run, and as many clients at most
	mostRunSeconds            = 1e7 // four months
)

// prepare gives every distinct measurement its load and fate, by rising load.
func prepare(all []Measurement, o Options) ([]Point, fleet.Tokens, error) {
	if len(all) > maxMeasurements {
		return nil, fleet.Tokens{}, fmt.Errorf("%d measurements are more than %d: give one for each run, not for each request", len(all), maxMeasurements)
	}
	ms := distinct(all)
	var bad []error
	for i := range ms {
		if ms[i].Tokens == (fleet.Tokens{}) {
			ms[i].Tokens = o.Tokens
		}
		bad = append(bad, ms[i].check())
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fleet.Tokens{}, err
	}
	reference, err := referenceOf(ms)
	if err != nil {
		return nil, fleet.Tokens{}, err
	}
	return pointsOf(ms, reference, o), reference, nil
}

// distinct sorts measurements by all they say, whatever their order, and drops
// those that say the same.
func distinct(all []Measurement) []Measurement {
	ms := slices.Clone(all)
	slices.SortFunc(ms, func(a, b Measurement) int { return cmp.Or(a.compare(b), cmp.Compare(a.Source, b.Source)) })
	return slices.CompactFunc(ms, func(a, b Measurement) bool { return a.compare(b) == 0 })
}

func (m Measurement) compare(b Measurement) int {
	return slices.Compare(m.values(), b.values())
}

func (m Measurement) values() []float64 {
	return []float64{
		m.OfferedRps, m.AchievedRps, m.Concurrency, m.TTFTSeconds, m.TBTSeconds,
		m.Tokens.Prompt, m.Tokens.Output, m.Tokens.Cached, m.Requests, m.Failed, m.DurationSeconds,
	}
}

// check finds what no run can show.
func (m Measurement) check() error {
	for i, v := range m.values() {
		if math.IsNaN(v) || v < 0 || math.IsInf(v, 0) && i > 0 {
			return fmt.Errorf("%s: %v is no measured value; leave the run out, or its value empty", m.Source, rounded(v))
		}
	}
	for _, l := range []struct {
		name          string
		value, at, to float64
	}{
		{"requests per second", cmp.Or(m.AchievedRps, m.OfferedRps), leastRps, mostRps},
		{"TTFT in seconds", m.TTFTSeconds, leastSeconds, mostSeconds},
		{"TBT in seconds", m.TBTSeconds, leastSeconds, mostSeconds},
		{"prompt tokens", m.Tokens.Prompt, 0, mostTokens},
		{"output tokens", m.Tokens.Output, 0, mostTokens},
		{"cached tokens", m.Tokens.Cached, 0, m.Tokens.Prompt},
		{"completed requests", m.Requests, 0, mostRequests},
		{"failed requests", m.Failed, 0, mostRequests},
		{"requests under way", m.Concurrency, 0, mostRequests},
		{"seconds of duration", m.DurationSeconds, 0, mostRunSeconds},
	} {
		if l.value != 0 && !math.IsInf(l.value, 1) && (l.value < l.at || l.value > l.to) {
			return fmt.Errorf("%s: %v %s cannot be; look at its unit: %v to %v are taken", m.Source, rounded(l.value), l.name, l.at, rounded(l.to))
		}
	}
	switch {
	case m.AchievedRps == 0 && (m.OfferedRps == 0 || math.IsInf(m.OfferedRps, 1)):
		return fmt.Errorf("%s: the load is not known; give the completed requests per second", m.Source)
	case m.TTFTSeconds == 0:
		return fmt.Errorf("%s: TTFT is not known; measure with streamed answers", m.Source)
	case m.ahead():
		return fmt.Errorf("%s: %v requests per second were completed, and only %v offered; are the two swapped? What was sent is offered (in CSV offered_rps), what was answered is completed (rps)", m.Source, rounded(m.AchievedRps), rounded(m.OfferedRps))
	case m.Failed > 0 && m.completed() == 0:
		return fmt.Errorf("%s: %.0f requests failed, and how many did not is not known; give the requests that were completed, or leave the run out", m.Source, m.Failed)
	}
	return nil
}

// ahead says whether far more was completed than offered. In a short run it may be by
// chance: arrivals as of a Poisson process come early or late.
func (m *Measurement) ahead() bool {
	if m.OfferedRps == 0 || m.AchievedRps <= maxAhead*m.OfferedRps {
		return false
	}
	n := cmp.Or(m.completed(), unknownRequests)
	offered := n * m.OfferedRps / m.AchievedRps // in the time of n
	return n-offered > aheadSigmas*math.Sqrt(offered)
}

// referenceOf is the usual request: the medians over the runs.
func referenceOf(ms []Measurement) (fleet.Tokens, error) {
	var prompts, outputs, cached, weights []float64
	for i := range ms {
		t := ms[i].Tokens
		if t.Prompt == 0 {
			return t, fmt.Errorf("%s: the requests' tokens are not known; add them, or say --tokens PROMPT,OUTPUT", ms[i].Source)
		}
		prompts, outputs, cached, weights = append(prompts, t.Prompt), append(outputs, t.Output), append(cached, t.Cached), append(weights, 1)
	}
	t := fleet.Tokens{Prompt: median(prompts, weights), Output: median(outputs, weights), Cached: median(cached, weights)}
	for i := range ms {
		if unlike(ms[i].Tokens.Prompt, t.Prompt) || unlike(ms[i].Tokens.Output, t.Output) {
			return t, fmt.Errorf("%s: its requests have %.0f prompt and %.0f output tokens, the usual ones %.0f and %.0f; fit runs of unlike requests apart",
				ms[i].Source, ms[i].Tokens.Prompt, ms[i].Tokens.Output, t.Prompt, t.Output)
		}
		if own, usual := ms[i].Tokens.CachedPart(), t.CachedPart(); math.Abs(own-usual) > maxOtherCache {
			return t, fmt.Errorf("%s: %.0f %% of its prompts' tokens were cached, of the usual ones' %.0f %%; fit runs with unlike caches apart, and say of all what was cached",
				ms[i].Source, 100*own, 100*usual)
		}
	}
	prompt := max(1, math.Round(t.Prompt))
	return fleet.Tokens{Prompt: prompt, Output: math.Round(t.Output), Cached: min(math.Round(t.Cached), prompt-1)}, nil
}

// stated says whether it is known what of the reference was cached: somebody says so, or
// measurements tell of some.
func stated(reference *fleet.Tokens, o *Options) bool { return o.CacheStated || reference.Cached > 0 }

// unlike compares counts of tokens; a few either way are no difference.
func unlike(a, b float64) bool {
	return math.Abs(a-b) > 4 && (a > b*maxUnlike || b > a*maxUnlike)
}

// pointsOf tells how loaded one engine was in each run.
func pointsOf(ms []Measurement, reference fleet.Tokens, o Options) []Point {
	profile := fleet.Profile{CapacityRps: 1, Reference: reference, CacheStated: stated(&reference, &o), OutputTokenCost: o.OutputTokenCost}
	tail := math.Inf(1)
	for i := range ms {
		tail = min(tail, ms[i].TTFTSeconds)
	}
	points := make([]Point, len(ms))
	for i, m := range ms {
		rps, fate := loadOf(&m, tail)
		points[i] = Point{Measurement: m, LoadRps: rps * profile.Work(m.Tokens) / float64(o.Engines), Fate: fate}
	}
	markPlateau(points)
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.LoadRps, b.LoadRps) })
	return points
}

// completed is how many requests a run completed; 0: nobody knows.
func (m *Measurement) completed() float64 { return cmp.Or(m.Requests, m.AchievedRps*m.DurationSeconds) }

// loadOf is a run's load in its own requests per second. What was offered is the
// better figure where it was kept up with: what was achieved is counted to the end
// of the last answer, when no more arrive.
func loadOf(m *Measurement, unloadedTTFT float64) (rps float64, f Fate) {
	if n := m.completed(); n > 0 && m.Failed > maxFailed*(n+m.Failed) {
		return cmp.Or(m.AchievedRps, m.OfferedRps), Failing
	}
	switch {
	case m.OfferedRps == 0:
		return m.AchievedRps, Used
	case m.AchievedRps == 0:
		return m.OfferedRps, Used
	case m.AchievedRps < keptUp*m.expectedRps(unloadedTTFT):
		return m.AchievedRps, Overloaded
	case math.IsInf(m.OfferedRps, 1):
		return m.AchievedRps, Burst
	}
	return m.OfferedRps, Used
}

// expectedRps is what a run achieves that keeps up: its requests over the time of
// sending them and of the last answer.
func (m *Measurement) expectedRps(unloadedTTFT float64) float64 {
	n := m.completed()
	if n == 0 {
		return m.OfferedRps
	}
	return n / (n/m.OfferedRps + unloadedTTFT + m.TBTSeconds*max(0, m.Tokens.Output-1))
}

// markPlateau finds runs where more clients brought no more throughput: what they
// had to wait is their own number's doing.
func markPlateau(points []Point) {
	for i := range points {
		p := &points[i]
		if p.Fate != Used || p.Concurrency == 0 || p.OfferedRps != 0 {
			continue
		}
		for _, q := range points {
			if q.Fate != Failing && q.OfferedRps == 0 && q.Concurrency > 0 && q.Concurrency <= 0.8*p.Concurrency && q.LoadRps*sameLoad >= p.LoadRps {
				p.Fate = Overloaded
			}
		}
	}
}

// saturation is the throughput that rises no more, in RPS; 0: none was overloaded.
func saturation(points []Point) float64 {
	var rps, weights []float64
	for _, p := range points {
		if p.Fate == Overloaded {
			rps, weights = append(rps, p.LoadRps), append(weights, p.weight())
		}
	}
	if len(rps) == 0 {
		return 0
	}
	return median(rps, weights)
}

// weight is how much a run's means say: of many requests much, but no more than
// runs agree with one another; of an unknown number as those of a hundred.
func (p *Point) weight() float64 {
	n := cmp.Or(p.completed(), unknownRequests)
	return n / (n + usualRequests)
}

// level is runs at one load.
type level struct {
	load      float64 // RPS
	ttft, tbt float64 // seconds, medians; tbt 0: not known
	weight    float64
	points    []int // whose medians these are
}

// levelsOf gathers the used points, which come by rising load, into levels. Where
// there are many loads, levels are wider.
func levelsOf(points []Point) []level {
	for near := sameLoad; ; near *= sameLoad {
		if levels := gather(points, near); len(levels) <= maxLevels {
			return levels
		}
	}
}

func gather(points []Point, near float64) []level {
	var levels []level
	start := math.Inf(-1)
	for i := range points {
		if points[i].Fate != Used {
			continue
		}
		if len(levels) == 0 || points[i].LoadRps > start*near {
			start = points[i].LoadRps
			levels = append(levels, level{})
		}
		l := &levels[len(levels)-1]
		l.points = append(l.points, i)
	}
	for i := range levels {
		levels[i].summarise(points)
	}
	return levels
}

func (l *level) summarise(points []Point) {
	var loads, ttfts, weights, tbts, tbtWeights []float64
	for _, i := range l.points {
		p := &points[i]
		w := p.weight()
		l.weight += w
		loads, ttfts, weights = append(loads, p.LoadRps), append(ttfts, p.TTFTSeconds), append(weights, w)
		if p.TBTSeconds > 0 {
			tbts, tbtWeights = append(tbts, p.TBTSeconds), append(tbtWeights, w)
		}
	}
	l.load, l.ttft = median(loads, weights), median(ttfts, weights)
	if len(tbts) > 0 {
		l.tbt = median(tbts, tbtWeights)
	}
}

// median is the weighted one; between two halves of the same weight, their middle.
func median(values, weights []float64) float64 {
	order := make([]int, len(values))
	total := 0.0
	for i := range order {
		order[i] = i
		total += weights[i]
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(values[a], values[b]), cmp.Compare(weights[a], weights[b]))
	})
	sum := 0.0
	for k, i := range order {
		sum += weights[i]
		switch {
		case sum > total/2*(1+1e-12) || k == len(order)-1:
			return values[i]
		case sum >= total/2*(1-1e-12):
			return (values[i] + values[order[k+1]]) / 2
		}
	}
	return math.NaN()
}

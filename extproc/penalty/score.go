package penalty

import (
	"math"
	"time"

	"weir/fleet"
)

const (
	// leastRate of bad marks is taken for granted, of anybody.
	leastRate = 0.01
	// mostRate is beyond what is told apart from certainty by a few marks.
	mostRate = 0.9
	// lately is what the rate is over that an engine is judged by, longer what is usual.
	lately, longer = 5 * time.Second, 20 * time.Second
)

// thresholds are the scores from which on an engine is suspect, where nearly nothing is
// bad at its peers. A first token depends on the length of its prompt, and several of one
// engine on one another: it takes more of them.
var thresholds = [signals]float64{failures: 5, firstTokens: 9, tokens: 9}

// contrasts are how many more requests go wrong at an engine that is sick: it makes no
// odds whether one of ten fails or all do, but where times are concerned nearly all are
// bad or it is chance.
var contrasts = [signals]float64{failures: 0.2, firstTokens: 0.5, tokens: 0.5}

// test is how an engine stands in a signal.
type test struct {
	score          float64
	threshold      float64   // from which on it is suspect
	bad, good      float64   // what a mark adds, and takes away
	began          time.Time // of the first bad request since the score was low
	late           bool      // it is when that was known
	first, last    time.Time // when it was known, and the last one
	lately, longer rate
	window         window
	standsOut      bool
	fault          fleet.Fault // of the last bad request
}

// rate is of bad marks, time-decayed.
type rate struct{ all, bad float64 }

func (r *rate) add(bad float64) {
	r.all++
	r.bad += bad
}

func (r *rate) fade(elapsed, tau time.Duration) {
	keep := math.Exp(-float64(elapsed) / float64(tau))
	r.all *= keep
	r.bad *= keep
}

// with is the rate where one more mark is taken into account that is bad to that part.
func (r *rate) with(prior float64) float64 { return (r.bad + prior) / (r.all + 1) }

// weigh sets what marks say, given the rate of bad ones that is usual among peers: the
// logarithms of how much likelier each is of a sick engine. How sick this one is, is
// estimated from what was seen of it lately.
func (t *test) weigh(s signal, usual float64) {
	usual = min(max(usual, leastRate), 0.5)
	// Where much is bad anyhow, chance takes scores higher in the long run.
	t.threshold = thresholds[s] * (1 + 2*(usual-leastRate))
	sick := usual + contrasts[s]*(1-usual)
	sick = min(max(sick, t.lately.with(sick)), mostRate)
	t.bad, t.good = math.Log(sick/usual), math.Log((1-usual)/(1-sick))
}

// lasting is how long things must go wrong: an engine that stands still for a moment, as
// for a very long prompt, is late with all that it works on, and well again.
var lasting = [signals]time.Duration{firstTokens: 1250 * time.Millisecond, tokens: 1250 * time.Millisecond}

// mark takes one request's; without a fault it is a good one.
func (e *engine) mark(now time.Time, s signal, began time.Time, fault fleet.Fault) {
	t := &e.tests[s]
	began, late := filed(began, now)
	if fault == "" {
		t.lately.add(0)
		t.longer.add(0)
		good := t.good
		if e.value < 1 { // relapsed engines are believed less
			good /= float64(int(1) << e.relapses)
		}
		t.score = max(0, t.score-good)
		t.window.add(began, false)
		return
	}
	t.lately.add(1)
	t.longer.add(1)
	if t.score < t.threshold/2 {
		t.began, t.late, t.first = began, late, now
	}
	t.last = now
	t.score = min(t.threshold+reserve, t.score+t.bad)
	t.window.add(began, true)
	t.fault = fault
}

// setBack forgets what is of a time yet to come, if the clock was set back: it would hide
// what happens until then. Scores stay.
func (e *engine) setBack(now time.Time) {
	for s := range e.tests {
		if t := &e.tests[s]; t.window.ahead(now) {
			t.window, t.began, t.first, t.last = window{}, now, now, now
		}
	}
	if e.strain.After(now.Add(strainLasts)) {
		e.strain = wall(now)
	}
}

// fade forgets a part of everything.
func (e *engine) fade(elapsed time.Duration) {
	for s := range e.tests {
		t := &e.tests[s]
		t.score *= math.Exp(-float64(elapsed) / float64(e.memory()))
		t.lately.fade(elapsed, lately)
		t.longer.fade(elapsed, longer)
	}
	e.begun *= math.Exp(-float64(elapsed) / float64(pulse))
}

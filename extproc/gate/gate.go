// Package gate decides who may enter while more is asked for than can be served.
//
// The plan knows of demand that has lasted for some seconds; a gate guards what lies
// between. It runs a virtual queue (Kunniyur and Srikant, "Analysis and design of an
// adaptive virtual queue algorithm", SIGCOMM 2001): what was let in, less what the plan
// says can be served, and never more than what is open: engines that are faster than
// their profile prove it wrong. While that stays short everybody enters. When it has
// grown, or the plan itself refuses a part, as much is let in as can be served, less what
// classes ahead take beside what is planned for them. Conversations that are
// under way come first; new ones get what is left, less what drains the queue, and those
// that were refused a moment ago what is left of that, from a shorter queue on. Among
// tenants each gets no more than its fair part (max-min, as in Demers, Keshav and
// Shenker, "Analysis and simulation of a fair queueing algorithm", SIGCOMM 1989). They
// are told apart by a hash (McKenney, "Stochastic fairness queueing", INFOCOM 1990), so
// that a gate's size does not depend on them.
//
// A fraction of a bucket is let in by conversation: each has a draw of its own, the same
// each time, and enters while that lies below the bucket's level. Who asks raises the level
// by the fraction, and who passes lowers it by one request, as errors are diffused in
// halftoning (Floyd and Steinberg, "An adaptive algorithm for spatial greyscale", 1976). So
// it comes to lie where as much enters as is meant to, however draws are spread: those who
// are refused and ask again have high ones, and a tenant with one conversation has one,
// which then enters a part of the time. Fractions fall at once and rise slowly.
package gate

import (
	"math"
	"sync/atomic"
	"time"
)

// Buckets is how many tenants are told apart at best.
const Buckets = 64

const (
	// The time constant of the measured rates: shorter, and chance decides; longer, and a
	// burst is over. It takes in some requests at the ceiling, if that is not too long.
	leastWindow, mostWindow = 0.25, 4 // seconds
	windowRequests          = 16
	// leastRate, in RPS, is nothing: it decays, and would never be.
	leastRate = 1e-6
	// depth is the virtual queue's length that is no matter of concern, as time at the
	// ceiling, and leastDepth in requests: at few requests a second chance makes bunches.
	depth      = 0.25 // seconds
	leastDepth = 20
	// idleDepth is the same where little else is open: engines that have nothing to do
	// take many requests at once.
	idleDepth = 64
	// spared is how much longer the virtual queue must be, as time at the ceiling, before
	// conversations that are under way are cut for its sake.
	spared = 10 // seconds
	// drain is the time in which what is above depth shall drain, or fill what is below.
	drain = 2 // seconds
	// backDepth is the part of the depth from which on those who come back are held up: the
	// rest is for bunches of those who ask for the first time.
	backDepth = 0.5
	// shutDepth is the part of the depth that may stand while the plan refuses a part. Of what
	// a burst brought in the rest is drained; were it all, what chance leaves free could not be
	// made up for.
	shutDepth = 0.5
	// leastServed is the part of what may enter that does however long the queue is.
	leastServed = 0.2
	// rise is how much of a bucket's fraction comes back each second: it may lie so much
	// above what it was over riseSeconds. Were each step bounded, fractions that waver with
	// what is asked for would lie below what is meant.
	rise        = 0.25
	riseSeconds = 1
	// A level of 1 is so many requests, or those that are granted in so many seconds: fewer,
	// and chance decides whose draw lies below it; more, and a conversation that comes alone
	// waits long for its first turn.
	levelRequests, levelSeconds = 8, 2
	// mostMore is by how much a level may rise at once: far beyond 1 it is as good as 1, and
	// beyond 2^31 a purse overflows.
	mostMore = 1000
	// Of an operator's limit what it allows in limitSeconds may enter at once, and leastLimit
	// requests.
	limitSeconds, leastLimit = 1, 4
	// free is how far below the ceiling demand must be for the gate to open: between
	// open and closed there must be a gap.
	free = 0.95
)

// Limit is what the plan allows a class at one Envoy.
type Limit struct {
	Planned    float64 // fraction of demand that the plan admits, 0–1
	CeilingRps float64 // that can be served; below 0: not known
	Open       float64 // requests that were let in and have not ended
	Strict     bool    // it is an operator's limit: nothing more may enter for a moment either

	AheadRps  float64 // of the ceiling, that classes ahead take beside what is planned for them
	OpenAhead float64 // requests of theirs that are open, as far as they count here
}

// Unknown is a ceiling that is not known.
const Unknown = -1

// Cause says why somebody is refused.
type Cause int

// The causes.
const (
	Open    Cause = iota // nobody is
	Plan                 // the plan refuses a part
	Limited              // an operator has limited the class
	Burst                // more came than the plan knows of
)

// Kind says how far a request comes before others.
type Kind int

// The kinds, the first of which come first. Who was refused comes back when it was told
// to, and so do all others: let in before those who ask for the first time, they would
// keep up the overload that refused them.
const (
	Ongoing Kind = iota // of a conversation that was let in before
	Fresh
	Back // of one that was refused a moment ago
	kinds
)

// Gate is that of one class. The zero Gate lets everybody in. Any goroutine may call
// Admit; one at a time calls Step.
type Gate struct {
	asked   [kinds][Buckets]atomic.Uint32 // since the last step
	entered atomic.Uint64                 // likewise
	levels  [kinds][Buckets]purse         // below which a draw enters, of buckets of which a part may
	limit   purse                         // requests that an operator's limit leaves
	_       [64]byte                      // so far all write, what follows is read by all
	verdict atomic.Pointer[verdict]       // nil: there is none
	_       [64]byte

	// The rest belongs to who steps.
	rates   [kinds][Buckets]float64 // RPS asked for
	slow    [kinds][Buckets]float64 // what parts of verdicts were over riseSeconds
	backlog float64                 // of the virtual queue, requests
	came    float64                 // RPS that entered
	shown   shown
}

// verdict is what part of each bucket may enter.
type verdict struct {
	part   [kinds][Buckets]float64
	weight [kinds][Buckets]float64 // of a request in its level; 0: the part alone decides
	limit  Limit
	cause  Cause
	// told is why those are refused who are: the cause, and of a gate that opens the last
	// one, until all may enter.
	told Cause
}

// shown is what a gate tells of itself, as bits of floats.
type shown struct{ backlog, refused, ahead atomic.Uint64 }

// Admit says whether a request may enter, and if not, why. Its tenant is any hash, its
// draw uniform in 0–1 and its conversation's own. Without a verdict the plan's fraction
// alone decides.
func (g *Gate) Admit(tenant uint64, kind Kind, draw, planned float64) (bool, Cause) {
	bucket := tenant % Buckets
	g.asked[kind][bucket].Add(1)
	v := g.verdict.Load()
	switch {
	case v == nil && draw >= planned:
		return false, Plan
	case v != nil && !g.pays(v, kind, bucket, draw):
		return false, v.told
	}
	g.entered.Add(1)
	return true, Open
}

// pays says whether a verdict lets a request in, and charges for it.
func (g *Gate) pays(v *verdict, kind Kind, bucket uint64, draw float64) bool {
	part, weight := v.part[kind][bucket], v.weight[kind][bucket]
	if part <= 0 {
		return false
	}
	if weight > 0 {
		level := &g.levels[kind][bucket]
		level.add(part * weight)
		if level.amount() <= draw || v.limit.Strict && !g.limit.spend() {
			return false
		}
		level.add(-weight)
		return true
	}
	return draw < part && (!v.limit.Strict || g.limit.spend())
}

// Step brings the gate up to date, a time after it was last.
func (g *Gate) Step(passed time.Duration, l Limit) {
	seconds := passed.Seconds()
	if seconds <= 0 {
		return
	}
	keep := math.Exp(-seconds / windowOf(l.CeilingRps))
	total := g.measure(seconds, keep)
	g.queue(l, seconds, keep)
	last := g.verdict.Load()
	cause := g.cause(l, total, last)
	if cause == Open && last == nil && !l.Strict {
		return
	}
	targets := everything
	if cause != Open {
		targets = g.targets(l, total)
	}
	g.judge(&verdict{limit: l, cause: cause, told: told(l, cause, last)}, targets, seconds, last)
}

// queue brings the virtual queue up to date. That of an operator's limit is what lacks in its
// purse, which is full when the limit begins.
func (g *Gate) queue(l Limit, seconds, keep float64) {
	entered := float64(g.entered.Swap(0))
	averaged(&g.came, entered/seconds, keep)
	if l.Strict {
		g.limit.fill(l.left()*seconds, l.atOnce())
		g.backlog = l.atOnce() - g.limit.amount()
	} else {
		g.limit.set(l.atOnce())
		g.backlog = max(0, min(g.backlog+entered-l.left()*seconds, l.Open))
	}
	if l.CeilingRps < 0 {
		g.backlog = 0
	}
	g.shown.backlog.Store(math.Float64bits(g.backlog))
	g.shown.ahead.Store(math.Float64bits(l.AheadRps))
}

// left is what others leave of the ceiling, RPS.
func (l *Limit) left() float64 { return max(0, l.CeilingRps-l.AheadRps) }

// of is what can be served of a kind and those before it, RPS; below 0: not known. What
// others take is not taken from conversations under way.
func (l *Limit) of(kind Kind) float64 {
	switch {
	case l.CeilingRps < 0:
		return Unknown
	case kind == Ongoing:
		return l.CeilingRps
	}
	return l.left()
}

// depth is the length of the virtual queue that chance alone makes, requests.
func (l *Limit) depth() float64 { return max(leastDepth, depth*l.CeilingRps) }

// atOnce is how many requests may enter at once of an operator's limit.
func (l *Limit) atOnce() float64 { return max(leastLimit, limitSeconds*l.CeilingRps) }

// told is what those are told who are refused.
func told(l Limit, cause Cause, last *verdict) Cause {
	switch {
	case l.Strict:
		return Limited
	case cause == Open && last != nil:
		return last.told
	}
	return cause
}

// windowOf is the time constant where so much can be served. Where that is not known, there
// is nothing to be quick for.
func windowOf(ceilingRps float64) float64 {
	if ceilingRps < 0 {
		return mostWindow
	}
	return min(mostWindow, max(leastWindow, windowRequests/ceilingRps))
}

// measure takes the counts in, of the rates before so much being kept, and returns the sum
// of the rates.
func (g *Gate) measure(seconds, keep float64) (total float64) {
	for kind := range kinds {
		for b := range Buckets {
			averaged(&g.rates[kind][b], taken(&g.asked[kind][b])/seconds, keep)
			total += g.rates[kind][b]
		}
	}
	return total
}

// averaged has a rate follow another.
func averaged(rate *float64, now, keep float64) {
	*rate = keep**rate + (1-keep)*now
	if *rate < leastRate {
		*rate = 0
	}
}

// taken takes a count away. Most are nothing, and then it is not written.
func taken(count *atomic.Uint32) float64 {
	n := count.Load()
	if n != 0 {
		count.Add(-n)
	}
	return float64(n)
}

// allowed is the length of the virtual queue that is no matter of concern.
func (g *Gate) allowed(l Limit) float64 {
	if l.Strict {
		return l.atOnce() / 2 // before its purse is empty, which knows no order among who asks
	}
	return max(l.depth(), idleDepth-(l.OpenAhead+l.Open-g.backlog))
}

// cause says why a part is refused from here on; Open: none is.
func (g *Gate) cause(l Limit, total float64, last *verdict) Cause {
	concern := g.allowed(l)
	closed := last != nil && last.cause != Open && (l.Strict || l.Open > concern/2)
	cause := Open
	switch {
	case l.Planned < 1:
		cause = Plan
	case l.CeilingRps < 0:
		return Open
	case l.CeilingRps == 0, g.backlog > concern, closed && (total > free*l.left() || g.backlog > concern/2):
		cause = Burst
	}
	if l.Strict && cause != Open {
		return Limited
	}
	return cause
}

// everything is what may be let in while the gate is open.
var everything = [kinds]float64{math.Inf(1), math.Inf(1), math.Inf(1)}

// targets are how many requests a second are to be let in of each kind, those that come
// before it included. Who comes back is held up sooner than who asks for the first time.
func (g *Gate) targets(l Limit, total float64) [kinds]float64 {
	if l.CeilingRps < 0 {
		rps := l.Planned * total
		return [kinds]float64{rps, rps, rps}
	}
	concern := g.allowed(l)
	from, to := 0.0, concern
	switch {
	case l.Strict: // its purse sees to it
	case l.Planned < 1:
		to = shutDepth * l.depth()
	default: // the plan has room for all who ask for the first time, in bunches too
		from = concern
	}
	return [kinds]float64{
		Ongoing: g.steered(l.of(Ongoing), 0, concern+spared*l.CeilingRps),
		Fresh:   g.steered(l.of(Fresh), from, to),
		Back:    g.steered(l.of(Back), 0, min(to, backDepth*concern)),
	}
}

// steered is what may enter of a rate so that the virtual queue comes to lie between two
// lengths, as far as what is asked for can do that.
func (g *Gate) steered(rps, from, to float64) float64 {
	if rps <= 0 {
		return 0
	}
	over := max(0, g.backlog-to) - max(0, from-g.backlog)
	return max(leastServed*rps, rps-over/drain)
}

// unasked is the part of who has asked for nothing yet that may enter: all, until it is
// known what they ask for, where anything can be served.
func (l *Limit) unasked(target float64) float64 {
	switch {
	case l.CeilingRps < 0:
		return l.Planned
	case target <= 0:
		return 0
	}
	return 1
}

// judge settles which part of each bucket may enter from here on.
func (g *Gate) judge(v *verdict, targets [kinds]float64, seconds float64, last *verdict) {
	none := [Buckets]float64{}
	first := fill(&g.rates[Ongoing], &none, targets[Ongoing])
	second := fill(&g.rates[Fresh], &first, targets[Fresh])
	third := fill(&g.rates[Back], &second, targets[Back])
	keep, least := math.Exp(-seconds/riseSeconds), 1.0
	more := [kinds]float64{v.more(last, Ongoing), v.more(last, Fresh), v.more(last, Back)}
	for b := range Buckets {
		granted := [kinds]float64{first[b], second[b] - first[b], third[b] - second[b]}
		for kind := range kinds {
			asked := g.rates[kind][b]
			p := risen(&g.slow[kind][b], part(granted[kind], asked, v.limit.unasked(targets[kind])), keep, last == nil)
			v.part[kind][b] = p
			v.weight[kind][b] = weight(p, asked)
			g.levels[kind][b].scale(more[kind])
			if last == nil || asked <= 0 || p >= 1 || g.levels[kind][b].amount() >= 1 { // nothing is refused of it
				g.levels[kind][b].set(p)
			}
			least = min(least, p)
		}
	}
	g.shown.refused.Store(math.Float64bits(1 - least))
	if v.cause == Open && least >= 1 && !v.limit.Strict {
		g.verdict.Store(nil)
		return
	}
	g.verdict.Store(v)
}

// more is how many times as much of a kind may enter as by the last verdict. Levels go with
// it at once: left to themselves they take seconds, for which as much would enter as before.
func (v *verdict) more(last *verdict, kind Kind) float64 {
	if last == nil {
		return 1
	}
	now, before := v.limit.of(kind), last.limit.of(kind)
	if v.limit.CeilingRps < 0 && last.limit.CeilingRps < 0 {
		now, before = v.limit.Planned, last.limit.Planned
	}
	if now < 0 || before <= 0 {
		return 1
	}
	return min(now/before, mostMore)
}

// weight is that of a request in a bucket's level. Where all may enter, or none has asked
// yet, there is nothing to correct.
func weight(part, asked float64) float64 {
	if part >= 1 || asked <= 0 {
		return 0
	}
	return 1 / max(levelRequests, levelSeconds*part*asked)
}

// risen is a part that rises no faster than it may; slow is what it was lately, of which so
// much is kept.
func risen(slow *float64, part, keep float64, anew bool) float64 {
	if anew {
		*slow = part
	}
	part = min(part, *slow+rise*riseSeconds)
	*slow = keep**slow + (1-keep)*part
	return part
}

// EnteredRps is how much enters, measured as what is asked for is. Who steps may call it.
func (g *Gate) EnteredRps() float64 { return g.came }

// Backlog is the length of the virtual queue, in requests.
func (g *Gate) Backlog() float64 { return math.Float64frombits(g.shown.backlog.Load()) }

// AheadRps is what classes ahead take of the ceiling beside their plan.
func (g *Gate) AheadRps() float64 { return math.Float64frombits(g.shown.ahead.Load()) }

// Refused is the largest part that anybody is refused, 0–1.
func (g *Gate) Refused() float64 { return math.Float64frombits(g.shown.refused.Load()) }

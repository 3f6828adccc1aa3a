package signals

import (
	"fmt"
	"math"

	"weir/fleet"
)

// The capacity factor: a profile is never believed against the evidence.
//
// A profile says how long the first token takes at a utilisation. Read the other
// way round, the TTFT that is measured tells how utilised a replica is, and the
// load that it carries meanwhile tells what it can carry: measured load / implied
// utilisation is the capacity as the engines show it, in parts of what the profile
// promises. A queue that is longer than the profile itself tells of means that the
// utilisation is at least 1, whatever the TTFT; and where engines tell that nothing waits
// in them, a first token is late for another reason: its prompt was in no cache.
//
// What a step changes shows late: the plan must be made, sent and felt, and a queue
// must drain. So each step rests on first tokens since the one before, and while a
// queue drains there is none: else a pool would be left almost empty for what lies
// behind it.
//
// Down goes fast, since a pool that is believed too large is an overload; up goes
// slowly, since the evidence of a lightly loaded pool is weak, and above 1 only
// where load is high enough to show it. The step is bounded both ways, so that one
// odd reading moves little traffic.
const (
	minFactor, maxFactor = 0.3, 1.1
	stepDown             = 0.10 // of the factor, at most, in a round
	stepUp               = 0.01
	// Within that part of the profile's TTFT nothing is concluded: noise, and the
	// difference between the mean request and the reference.
	ttftTolerance = 0.25
	// Below that load the TTFT says nothing of the capacity: the curve is level.
	tellingLoad = 0.4
	// Below that load a request that waits is an oddity, not a shortage.
	queueLoad = 0.1
	// queuedPerEngine is a standing queue, more than a request passing through, unless the
	// profile itself tells of a longer one.
	queuedPerEngine = 1
	minTTFTSamples  = 20 // in the evidence of a round
	// A queue that has lost so much of itself since the last round drains.
	drained = 0.1
)

// evidence is what a pool showed lately, all of it per ready replica.
type evidence struct {
	load        float64 // engine-seconds of work per second, by the profile
	ttftSeconds float64 // mean; meaningful with enough samples
	ttftSamples float64
	queue       queue // at each engine
}

// factor is the capacity factor of one pool.
type factor struct {
	value  float64 // 0: 1, nothing was concluded yet
	reason string  // why it is not 1; empty: it is
	queue  queue   // in the last round's evidence
}

// observe concludes from a round's evidence, and says whether it is used up: what is
// concluded next must rest on new one.
func (f *factor) observe(p *fleet.Profile, e evidence) (usedUp bool) {
	if f.value == 0 {
		f.value = 1
	}
	before := f.queue
	f.queue = e.queue
	if e.queue.seen && before.newest >= queuedPerEngine && e.queue.newest <= before.newest*(1-drained) {
		return true
	}
	target, reason := e.implied(p, f.value)
	switch {
	case target < f.value:
		usedUp = true
		f.value = max(minFactor, target, f.value*(1-stepDown))
		f.reason = reason
	case target > f.value:
		f.value = min(maxFactor, target, f.value+stepUp)
		if f.value > 1 {
			f.reason = reason
		}
	}
	if f.value == 1 {
		f.reason = ""
	}
	return usedUp
}

// rest has the factor speak of another profile: what the one has been found to promise
// too much, the other may not promise. Where nothing was found, nothing is.
func (f *factor) rest(from, to *fleet.Profile) {
	if f.value == 0 || f.value == 1 || from.CapacityRps == to.CapacityRps || !(to.CapacityRps > 0) {
		return
	}
	const nothing = 0.005 // is not worth a factor
	can := f.value * from.CapacityRps / to.CapacityRps
	if can > 1 == (f.value > 1) && math.Abs(can-1) > nothing {
		f.value = min(maxFactor, max(minFactor, can))
		return
	}
	f.value, f.reason = 1, ""
}

// implied is the factor that the evidence speaks for, given the one in force.
func (e *evidence) implied(p *fleet.Profile, now float64) (float64, string) {
	telling := e.ttftSamples >= minTTFTSamples && e.load >= tellingLoad
	expected := p.TTFT.At(e.load / now)
	switch {
	case telling && e.ttftSeconds > expected*(1+ttftTolerance) && !e.passes():
		return min(now, e.load/utilisationAt(p.TTFT, e.ttftSeconds)),
			fmt.Sprintf("TTFT is %.0f ms where the profile says %.0f ms at a load of %.0f %%", 1000*e.ttftSeconds, 1000*expected, 100*e.load)
	case e.queue.seen && e.queue.standing >= max(queuedPerEngine, expectedQueue(p, e.load, now)) && e.load >= queueLoad:
		return min(now, e.load) * (1 - stepDown), // less than what makes a queue; how much less shows when it settles
			fmt.Sprintf("%.1f requests wait at most engines at a load of %.0f %%", e.queue.standing, 100*e.load)
	case now < 1 && (e.queue.seen || telling):
		return 1, "" // nothing speaks against the profile any more
	case telling && e.load/now > 1-stepUp:
		return maxFactor, fmt.Sprintf("TTFT is %.0f ms, within the profile, at a load of %.0f %%", 1000*e.ttftSeconds, 100*e.load)
	}
	return now, ""
}

// passes says that whatever comes is worked on at once, as engines tell: then a first
// token that is late is none for want of capacity, but of something in a cache.
func (e *evidence) passes() bool { return e.queue.seen && e.queue.standing < queuedPerEngine }

// expectedQueue is how many requests wait at each engine where the profile holds: what a
// first token takes longer than on an idle engine is spent waiting, at most (Little, "A
// proof for the queuing formula L = λW", Operations Research 9, 1961).
func expectedQueue(p *fleet.Profile, load, now float64) float64 {
	wait := p.TTFT.At(min(1, load/now)) - p.TTFT.At(0)
	return max(0, p.CapacityRps*load*wait)
}

// utilisationAt inverts a curve beyond the point where it was measured, too; on a
// level piece, the highest utilisation of it. The result is at least 1 % and at
// most far beyond any load.
func utilisationAt(c fleet.Curve, seconds float64) float64 {
	const most = 10
	low, high := 0.0, float64(most)
	for range 50 { // halvings, far below a digit that matters
		if middle := (low + high) / 2; c.At(middle) <= seconds {
			low = middle
		} else {
			high = middle
		}
	}
	return math.Max(low, 0.01)
}

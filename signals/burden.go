package signals

import (
	"math"
	"time"

	"weir/fleet"
)

const (
	// loadTau smooths what a pool is sent and how long it takes to answer: a few
	// ticks, so that the factor follows a pool that breaks and not each burst.
	loadTau = 8 * time.Second
	// factorEvery is how often evidence is judged: once a tick of the usual length,
	// which may come early by a little.
	factorEvery = 1900 * time.Millisecond
)

// burden is what a pool was sent and how it answered, as front-ends saw it.
type burden struct {
	issued map[fleet.ClassID]*decayed
	ttft   times
	// unused are the times since the factor last moved by them. Those before tell of
	// the pool as it was: in their mean a queue would last long after it has gone.
	unused times
	used   time.Time
	factor factor
	judged time.Time
}

// times are first tokens lately, without the network.
type times struct{ number, seconds decayed }

func (t *times) add(now time.Time, number, seconds float64) {
	t.number.add(now, loadTau, number)
	t.seconds.add(now, loadTau, seconds)
}

// mean is unknown where there are too few.
func (t *times) mean(now time.Time) fleet.Reading {
	n := t.number.read(now, loadTau)
	if n < 1 {
		return fleet.Reading{}
	}
	return fleet.Reading{Value: t.seconds.read(now, loadTau) / n, At: t.number.at}
}

func newBurden() *burden { return &burden{issued: map[fleet.ClassID]*decayed{}} }

// observeIssued counts what an Envoy sent over an interval that ends now. It was sent
// half of that ago on average, and will be read half of that after; so its age is
// right as it is.
func (b *burden) observeIssued(now time.Time, interval time.Duration, class fleet.ClassID, n uint64) {
	if b.issued[class] == nil {
		b.issued[class] = &decayed{since: now.Add(-interval)}
	}
	b.issued[class].add(now, loadTau, float64(n))
}

// observeTTFT takes first tokens that were network seconds away, all of them after
// that time.
func (b *burden) observeTTFT(now, after time.Time, t *fleet.Buckets, network float64) {
	n := float64(t.Count())
	if n == 0 {
		return
	}
	seconds := max(0, t.Sum-n*network)
	b.ttft.add(now, n, seconds)
	if !after.Before(b.used) {
		b.unused.add(now, n, seconds)
	}
}

// load is the work that each of a pool's ready replicas is sent, in engine-seconds
// per second by the profile.
func (b *burden) load(now time.Time, s *fleet.State, p *fleet.Pool) fleet.Reading {
	ready := s.ReadyEngines(p)
	if ready == 0 || len(b.issued) == 0 {
		return fleet.Reading{}
	}
	work := 0.0
	for id, issued := range b.issued {
		if c := s.Fleet.Class(id); c != nil {
			work += issued.rate(now, loadTau) * p.Profile.Work(s.TokensOf(c))
		}
	}
	if math.IsNaN(work) || math.IsInf(work, 0) {
		return fleet.Reading{} // a pool without a capacity
	}
	return fleet.Reading{Value: work / float64(ready), At: now}
}

// judge lets the evidence move the capacity factor, once a tick.
func (b *burden) judge(now time.Time, p *fleet.Profile, st *fleet.PoolState, q queue) {
	if now.Sub(b.judged) >= factorEvery && st.Signals.Load.Known() {
		b.judged = now
		e := evidence{load: st.Signals.Load.Value, queue: q}
		if ttft := b.unused.mean(now); ttft.Known() {
			e.ttftSeconds, e.ttftSamples = ttft.Value, b.unused.number.read(now, loadTau)
		}
		if b.factor.observe(p, e) {
			b.unused, b.used = times{}, now
		}
	}
	st.CapacityFactor = b.factor.value
	st.Signals.FactorReason = b.factor.reason
}

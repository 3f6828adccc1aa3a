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
	seen   seen
	// unused are first tokens since the factor last moved by them. Those before tell of
	// the pool as it was: in their mean a queue would last long after it has gone.
	unused average
	used   time.Time
	factor factor
	judged time.Time
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

// observe takes what a report says of an engine that is network seconds away, all of
// it after that time.
func (b *burden) observe(now, after time.Time, e *fleet.EngineLoad, network float64) {
	b.seen.observe(now, loadTau, e, network)
	if !after.Before(b.used) {
		n, seconds := firstTokens(e, network)
		b.unused.add(now, loadTau, n, seconds)
	}
}

// load is the work that each of a pool's ready replicas is sent, as far as its health
// leaves it, in engine-seconds per second by the profile.
func (b *burden) load(now time.Time, s *fleet.State, p *fleet.Pool) fleet.Reading {
	ready := s.ReadyEngines(p)
	if ready == 0 || len(b.issued) == 0 {
		return fleet.Reading{}
	}
	work := 0.0
	for i := range s.Fleet.Classes { // in their order, so that the sum is the same each time
		c := &s.Fleet.Classes[i]
		if issued := b.issued[c.ID]; issued != nil {
			work += issued.rate(now, loadTau) * p.Profile.Work(s.TokensOf(c))
		}
	}
	if math.IsNaN(work) || math.IsInf(work, 0) {
		return fleet.Reading{} // a pool without a capacity
	}
	// What penalties keep away from an engine the others have: a pool that is less healthy
	// is loaded more, and no evidence against its profile.
	return fleet.Reading{Value: work / (float64(ready) * s.Health(p.ID)), At: now}
}

// sent is what the pool is sent, RPS. Where nothing has been reported for long, that is not
// known.
func (b *burden) sent(now time.Time, f *fleet.Fleet) (out fleet.Reading) {
	for i := range f.Classes { // in their order, so that the sum is the same each time
		if issued := b.issued[f.Classes[i].ID]; issued != nil && now.Sub(issued.at) < loadTau {
			out.Value += issued.rate(now, loadTau)
			out.At = now
		}
	}
	return out
}

// judge lets the evidence move the capacity factor, once a tick.
func (b *burden) judge(now time.Time, p *fleet.Profile, st *fleet.PoolState, q queue) {
	if now.Sub(b.judged) >= factorEvery && st.Signals.Load.Known() {
		b.judged = now
		e := evidence{load: st.Signals.Load.Value, queue: q}
		if ttft := b.unused.read(now, loadTau); ttft.items >= 1 {
			e.ttftSeconds, e.ttftSamples = ttft.mean, ttft.items
		}
		if b.factor.observe(p, e) {
			b.unused, b.used = average{}, now
		}
	}
	st.CapacityFactor = b.factor.value
	st.Signals.FactorReason = b.factor.reason
}

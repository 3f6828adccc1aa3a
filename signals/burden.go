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
	// factorEvery is how often evidence is judged: once a tick.
	factorEvery = 2 * time.Second
)

// burden is what a pool was sent and how it answered, as front-ends saw it.
type burden struct {
	issued      map[fleet.ClassID]*decayed
	ttfts, ttft decayed // number, and seconds in all without the network
	factor      factor
	judged      time.Time
}

func newBurden() *burden { return &burden{issued: map[fleet.ClassID]*decayed{}} }

// observeIssued counts what an Envoy sent over an interval that ends now. It was sent
// half of that ago on average, and will be read half of that after; so its age is
// right as it is.
func (b *burden) observeIssued(now time.Time, class fleet.ClassID, n uint64) {
	if b.issued[class] == nil {
		b.issued[class] = &decayed{}
	}
	b.issued[class].add(now, loadTau, float64(n))
}

// observeTTFT takes first tokens that were network seconds away.
func (b *burden) observeTTFT(now time.Time, t *fleet.Buckets, network float64) {
	n := float64(t.Count())
	if n == 0 {
		return
	}
	b.ttfts.add(now, loadTau, n)
	b.ttft.add(now, loadTau, max(0, t.Sum-n*network))
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

func (b *burden) meanTTFT(now time.Time) fleet.Reading {
	n := b.ttfts.read(now, loadTau)
	if n < 1 {
		return fleet.Reading{}
	}
	return fleet.Reading{Value: b.ttft.read(now, loadTau) / n, At: b.ttfts.at}
}

// judge lets the evidence move the capacity factor, once a tick.
func (b *burden) judge(now time.Time, p *fleet.Profile, st *fleet.PoolState) {
	if now.Sub(b.judged) >= factorEvery && st.Signals.Load.Known() {
		b.judged = now
		e := evidence{load: st.Signals.Load.Value, ttftSeconds: st.Signals.TTFTSeconds.Value}
		if st.Signals.TTFTSeconds.Known() {
			e.ttftSamples = b.ttfts.read(now, loadTau)
		}
		e.waiting, e.waitingSeen = waiting(st)
		b.factor.observe(p, e)
	}
	st.CapacityFactor = b.factor.value
	st.Signals.FactorReason = b.factor.reason
}

// waiting is the mean queue of the ready engines that tell; false means that none
// does.
func waiting(st *fleet.PoolState) (float64, bool) {
	sum, n := 0.0, 0.0
	for id, e := range st.Signals.Engines {
		if st.Engines[id] != fleet.Unready && e.Waiting.Fresh() {
			sum += e.Waiting.Value
			n++
		}
	}
	return sum / max(n, 1), n > 0
}

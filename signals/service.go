package signals

import (
	"slices"
	"time"

	"weir/fleet"
	"weir/signals/scrape"
)

// ObserveSample takes what a scrape of an engine's metrics page says.
func (t *Tracker) ObserveSample(s scrape.Sample) {
	p := t.pools[s.Pool]
	if p == nil || p.engines[s.Engine] == nil {
		t.Counters.SamplesUnknown.Add(1)
		return
	}
	p.engines[s.Engine].told.observe(s)
}

// observeService takes from a load report how requests were served: what pools were
// sent, how long they took, how large requests are, how far pools are.
func (t *Tracker) observeService(now time.Time, r *fleet.LoadReport) {
	for i := range r.Classes {
		c := &r.Classes[i]
		if t.classes[c.Class] == nil {
			continue
		}
		if c.Tokens.Requests > 0 {
			if t.sizes[c.Class] == nil {
				t.sizes[c.Class] = &sizes{}
			}
			t.sizes[c.Class].observe(now, c.Tokens)
		}
		for j := range c.Pools {
			t.observePool(now, r, c.Class, &c.Pools[j])
		}
	}
	for _, trip := range r.RoundTrips {
		l := fleet.Link{FrontEnd: r.FrontEnd, Pool: trip.Pool}
		if t.pools[trip.Pool] == nil {
			continue
		}
		if t.distances[l] == nil {
			t.distances[l] = &distance{}
		}
		t.distances[l].observe(now, trip)
	}
}

func (t *Tracker) observePool(now time.Time, r *fleet.LoadReport, class fleet.ClassID, l *fleet.PoolLoad) {
	p := t.pools[l.Pool]
	if p == nil {
		return
	}
	if l.Issued > 0 || p.burden.issued[class] != nil {
		p.burden.observeIssued(now, r.Interval, class, l.Issued)
	}
	network := t.roundTrip(now, fleet.Link{FrontEnd: r.FrontEnd, Pool: l.Pool})
	after := now.Add(-r.Interval - reportLag)
	p.record.observe(now, fleet.Stream{FrontEnd: r.FrontEnd, Class: class}, l, network)
	for i := range l.Engines {
		e := &l.Engines[i]
		if !r.Penalises(e.Engine) { // what is priced as health is no evidence against the profile
			p.burden.observe(now, after, e, network)
		}
		known := p.engines[e.Engine]
		if known == nil {
			continue
		}
		known.seen.observe(now, seenTau, e, network)
		if e.Outcomes[fleet.Answered] > 0 {
			known.told.answered(after)
		}
	}
}

// roundTrip is what is between a front-end's clock and a pool's: measured if it was,
// whichever of the two plans go by.
func (t *Tracker) roundTrip(now time.Time, l fleet.Link) float64 {
	if d := t.distances[l]; d != nil {
		if r := d.seconds(now); r.Known() {
			return r.Value
		}
	}
	return t.fleet.Network.RoundTripSeconds[l]
}

// measured adds to a state what was measured of requests and of the network.
func (t *Tracker) measured(now time.Time, s *fleet.State) {
	for id, sizes := range t.sizes {
		if t.fleet.Options.DeclaredOnly {
			break
		}
		if b, ok := sizes.belief(now, t.classes[id].Tokens); ok {
			s.Tokens[id] = b
		}
	}
	for l, d := range t.distances {
		r := d.seconds(now)
		if !r.Known() {
			continue
		}
		s.Network[l], s.NetworkAt[l] = r.Value, r.At
		if r.StdErr.Known {
			s.NetworkNoise[l] = r.StdErr.Value
		}
	}
}

// believe adds to a pool's state what its engines tell and how it serves, and lets
// the evidence move its capacity factor.
func (p *pool) believe(now time.Time, s *fleet.State, of *fleet.Pool, st fleet.PoolState) fleet.PoolState {
	st.Signals.Engines = make(map[fleet.EngineID]fleet.EngineSignals, len(p.engines))
	st.Signals.Seen = map[fleet.EngineID]fleet.EngineSeen{}
	for id, e := range p.engines {
		if !e.told.last.At.IsZero() {
			st.Signals.Engines[id] = e.told.signals(now)
		}
		if lately := e.seen.signals(now, seenTau); lately != (fleet.EngineSeen{}) {
			st.Signals.Seen[id] = lately
		}
	}
	p.compare(now, &st)
	st.Signals.Load, st.Signals.SentRps = p.burden.load(now, s, of), p.burden.sent(now, s.Fleet)
	all := p.burden.seen.signals(now, loadTau)
	st.Signals.TTFTSeconds, st.Signals.TBTSeconds = all.TTFTSeconds, all.TBTSeconds
	if !s.Fleet.Options.DeclaredOnly {
		p.burden.judge(now, &of.Profile, &st, p.queue(now))
	}
	return st
}

// queue is the mean queue of the engines that tell and are not unready, if requests wait at
// most of them, else the median, of two the shorter. One engine that hangs has a queue, and
// the pool is not short of others for it.
func (p *pool) queue(now time.Time) queue {
	var standing, newest []float64
	sum := queue{seen: true}
	for _, e := range p.engines {
		if q := e.told.queue(now); q.seen && e.verdict != fleet.Unready {
			standing, newest = append(standing, q.standing), append(newest, q.newest)
			sum.standing += q.standing
			sum.newest += q.newest
		}
	}
	n := len(standing)
	if n == 0 {
		return queue{}
	}
	slices.Sort(standing)
	slices.Sort(newest)
	median := queue{standing[(n-1)/2], newest[(n-1)/2], true}
	if median.standing < queuedPerEngine {
		return median
	}
	return queue{sum.standing / float64(n), sum.newest / float64(n), true}
}

package admin

import (
	"time"

	"weir/fleet"
)

// Beliefs are a state as programs and `weir status --signals` read it; the JSON form
// is a stable interface. Null stands for what is not known. An stdErr is what chance
// does to a mean: one standard error.
type Beliefs struct {
	At      time.Time      `json:"at"`
	Demand  []DemandBelief `json:"demand"`
	Classes []ClassBelief  `json:"classes"`
	Pools   []PoolBelief   `json:"pools"`
	Network []LinkBelief   `json:"network"`
}

// DemandBelief is what clients of a class ask for at a front-end.
type DemandBelief struct {
	FrontEnd fleet.FrontEndID `json:"frontEnd"`
	Class    fleet.ClassID    `json:"class"`
	Rps      float64          `json:"rps"`
	DoubtRps float64          `json:"doubtRps"` // by which it may be too high yet
	Source   fleet.Source     `json:"source"`

	StdErrRps  *float64 `json:"stdErrRps"`
	AgeSeconds *float64 `json:"ageSeconds"` // null: it is declared
}

// ClassBelief is the size of a class's mean request.
type ClassBelief struct {
	Class        fleet.ClassID `json:"class"`
	PromptTokens float64       `json:"promptTokens"`
	OutputTokens float64       `json:"outputTokens"`
	CachedTokens float64       `json:"cachedTokens"` // of the prompt, in caches; engines that do not tell make it less
	Requests     float64       `json:"requests"`     // that were measured lately; 0: it is the declared size
	Estimated    float64       `json:"estimated"`    // those of them whose tokens are estimated from bytes

	PromptStdErrTokens *float64 `json:"promptStdErrTokens"`
	OutputStdErrTokens *float64 `json:"outputStdErrTokens"`
	AgeSeconds         *float64 `json:"ageSeconds"` // since the last of them; null: it is declared
}

// PoolBelief is what is believed of a pool and its engines.
type PoolBelief struct {
	Pool           fleet.PoolID   `json:"pool"`
	Health         float64        `json:"health"`         // scales the capacity
	CapacityFactor float64        `json:"capacityFactor"` // scales the capacity
	FactorReason   string         `json:"factorReason"`   // why the factor is not 1
	Load           *float64       `json:"load"`           // of a ready engine: 1 is what its profile promises
	TTFTSeconds    *float64       `json:"ttftSeconds"`    // mean, as front-ends see it, without the network
	Engines        []EngineBelief `json:"engines"`

	TTFTStdErrSeconds *float64 `json:"ttftStdErrSeconds"`
	TBTSeconds        *float64 `json:"tbtSeconds"` // mean, as front-ends see it
	TBTStdErrSeconds  *float64 `json:"tbtStdErrSeconds"`
	AgeSeconds        *float64 `json:"ageSeconds"` // since front-ends last saw a first token
}

// EngineBelief is what is believed of an engine: by its own metrics, as front-ends see
// it, and beside the other engines of its pool.
type EngineBelief struct {
	Engine      fleet.EngineID `json:"engine"`
	Readiness   string         `json:"readiness"`
	Dialect     string         `json:"dialect"`
	Running     *Told          `json:"running"`
	Waiting     *Told          `json:"waiting"`
	KVUsage     *Told          `json:"kvUsage"`
	TTFTSeconds *Told          `json:"ttftSeconds"`
	TBTSeconds  *Told          `json:"tbtSeconds"`
	Why         string         `json:"why"` // why nothing newer is known; empty: it is

	SeenTTFTSeconds *Told             `json:"seenTtftSeconds"` // as front-ends see it, without the network
	SeenTBTSeconds  *Told             `json:"seenTbtSeconds"`  // as front-ends see it
	Deviations      []DeviationBelief `json:"deviations"`      // what is missing cannot be told
}

// DeviationBelief is how far an engine lies from its pool in one signal.
type DeviationBelief struct {
	Signal  fleet.Signal `json:"signal"` // ttft, tbt: seconds that front-ends see; running, waiting: its own word
	Value   float64      `json:"value"`
	Median  float64      `json:"median"`  // of the pool's engines
	Ratio   *float64     `json:"ratio"`   // value / median; null: the median is 0
	Z       float64      `json:"z"`       // robust; above 0: slower or busier
	Outlier bool         `json:"outlier"` // too far above for it to be chance
}

// Told is a value, how old it is, and whether it is still acted on.
type Told struct {
	Value      float64 `json:"value"`
	AgeSeconds float64 `json:"ageSeconds"`
	Stale      bool    `json:"stale"`

	StdErr *float64 `json:"stdErr"` // of a mean, in the unit of the value
}

// LinkBelief is the round trip that plans go by.
type LinkBelief struct {
	FrontEnd         fleet.FrontEndID `json:"frontEnd"`
	Pool             fleet.PoolID     `json:"pool"`
	RoundTripSeconds float64          `json:"roundTripSeconds"`
	Measured         bool             `json:"measured"` // false: declared

	StdErrSeconds *float64 `json:"stdErrSeconds"`
	AgeSeconds    *float64 `json:"ageSeconds"` // null: it is declared
}

func newBeliefs(at time.Time, s *fleet.State) *Beliefs {
	b := &Beliefs{At: at, Demand: []DemandBelief{}, Classes: []ClassBelief{}, Pools: []PoolBelief{}, Network: []LinkBelief{}}
	for i := range s.Fleet.FrontEnds {
		b.addFrontEnd(at, s, s.Fleet.FrontEnds[i].ID)
	}
	for i := range s.Fleet.Classes {
		c := &s.Fleet.Classes[i]
		size, known := s.TokensOf(c), s.Tokens[c.ID]
		b.Classes = append(b.Classes, ClassBelief{
			c.ID, size.Prompt, size.Output, size.Cached, known.Requests, known.Estimated,
			stdErr(known.PromptStdErr), stdErr(known.OutputStdErr), age(at, known.At),
		})
	}
	for i := range s.Fleet.Pools {
		b.Pools = append(b.Pools, newPoolBelief(at, s, &s.Fleet.Pools[i]))
	}
	return b
}

// addFrontEnd lists what is known: a link without a round trip is left out.
func (b *Beliefs) addFrontEnd(at time.Time, s *fleet.State, id fleet.FrontEndID) {
	for i := range s.Fleet.Classes {
		class := s.Fleet.Classes[i].ID
		if d, ok := s.Demand[fleet.Stream{FrontEnd: id, Class: class}]; ok {
			b.Demand = append(b.Demand, DemandBelief{id, class, d.Rps, d.DoubtRps, d.Source, stdErr(d.StdErrRps), age(at, d.At)})
		}
	}
	for i := range s.Fleet.Pools {
		l := fleet.Link{FrontEnd: id, Pool: s.Fleet.Pools[i].ID}
		_, measured := s.Network[l]
		_, declared := s.Fleet.Network.RoundTripSeconds[l]
		switch {
		case measured && s.Fleet.Network.Measured:
			noise, known := s.NetworkNoise[l]
			b.Network = append(b.Network, LinkBelief{id, l.Pool, s.RoundTrip(l), true, stdErr(fleet.StdErr{Value: noise, Known: known}), age(at, s.NetworkAt[l])})
		case declared:
			b.Network = append(b.Network, LinkBelief{id, l.Pool, s.RoundTrip(l), false, nil, nil})
		}
	}
}

func newPoolBelief(at time.Time, s *fleet.State, p *fleet.Pool) PoolBelief {
	signals := s.Pools[p.ID].Signals
	b := PoolBelief{
		Pool: p.ID, Health: s.Health(p.ID), CapacityFactor: s.CapacityFactor(p.ID), FactorReason: signals.FactorReason,
		Engines: []EngineBelief{},
	}
	if signals.Load.Known() {
		b.Load = &signals.Load.Value
	}
	if t := signals.TTFTSeconds; t.Known() {
		b.TTFTSeconds, b.TTFTStdErrSeconds, b.AgeSeconds = &t.Value, stdErr(t.StdErr), age(at, t.At)
	}
	if t := signals.TBTSeconds; t.Known() {
		b.TBTSeconds, b.TBTStdErrSeconds = &t.Value, stdErr(t.StdErr)
	}
	for _, id := range p.Engines {
		e, seen := signals.Engines[id], signals.Seen[id]
		b.Engines = append(b.Engines, EngineBelief{
			Engine: id, Readiness: s.Readiness(p.ID, id).String(), Dialect: e.Dialect, Why: e.Why,
			Running: told(at, e.Running), Waiting: told(at, e.Waiting), KVUsage: told(at, e.KVUsage),
			TTFTSeconds: told(at, e.TTFTSeconds), TBTSeconds: told(at, e.TBTSeconds),
			SeenTTFTSeconds: told(at, seen.TTFTSeconds), SeenTBTSeconds: told(at, seen.TBTSeconds),
			Deviations: deviations(signals.Deviations[id]),
		})
	}
	return b
}

func deviations(all []fleet.Deviation) []DeviationBelief {
	out := make([]DeviationBelief, len(all))
	for i, d := range all {
		out[i] = DeviationBelief{Signal: d.Signal, Value: d.Value, Median: d.Median, Z: d.Z, Outlier: d.Outlier()}
		if d.Median > 0 {
			ratio := d.Value / d.Median
			out[i].Ratio = &ratio
		}
	}
	return out
}

func told(at time.Time, r fleet.Reading) *Told {
	if !r.Known() {
		return nil
	}
	return &Told{r.Value, *age(at, r.At), r.Stale, stdErr(r.StdErr)}
}

func age(at, told time.Time) *float64 {
	if told.IsZero() {
		return nil
	}
	age := max(0, at.Sub(told).Seconds())
	return &age
}

func stdErr(e fleet.StdErr) *float64 {
	if !e.Known {
		return nil
	}
	return &e.Value
}

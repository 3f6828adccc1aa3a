package admin

import (
	"time"

	"weir/fleet"
)

// Beliefs are a state as programs and `weir status --signals` read it; the JSON form
// is a stable interface. Null stands for what is not known.
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
}

// ClassBelief is the size of a class's mean request.
type ClassBelief struct {
	Class        fleet.ClassID `json:"class"`
	PromptTokens float64       `json:"promptTokens"`
	OutputTokens float64       `json:"outputTokens"`
	Requests     float64       `json:"requests"`  // that were measured lately; 0: it is the declared size
	Estimated    float64       `json:"estimated"` // those of them whose tokens are estimated from bytes
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
}

// EngineBelief is what is believed of an engine, mostly by its own metrics.
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
}

// Told is a value, how old it is, and whether it is still acted on.
type Told struct {
	Value      float64 `json:"value"`
	AgeSeconds float64 `json:"ageSeconds"`
	Stale      bool    `json:"stale"`
}

// LinkBelief is the round trip that plans go by.
type LinkBelief struct {
	FrontEnd         fleet.FrontEndID `json:"frontEnd"`
	Pool             fleet.PoolID     `json:"pool"`
	RoundTripSeconds float64          `json:"roundTripSeconds"`
	Measured         bool             `json:"measured"` // false: declared
}

func newBeliefs(at time.Time, s *fleet.State) *Beliefs {
	b := &Beliefs{At: at, Demand: []DemandBelief{}, Classes: []ClassBelief{}, Pools: []PoolBelief{}, Network: []LinkBelief{}}
	for i := range s.Fleet.FrontEnds {
		b.addFrontEnd(s, s.Fleet.FrontEnds[i].ID)
	}
	for i := range s.Fleet.Classes {
		c := &s.Fleet.Classes[i]
		size, known := s.TokensOf(c), s.Tokens[c.ID]
		b.Classes = append(b.Classes, ClassBelief{c.ID, size.Prompt, size.Output, known.Requests, known.Estimated})
	}
	for i := range s.Fleet.Pools {
		b.Pools = append(b.Pools, newPoolBelief(at, s, &s.Fleet.Pools[i]))
	}
	return b
}

// addFrontEnd lists what is known: a link without a round trip is left out.
func (b *Beliefs) addFrontEnd(s *fleet.State, id fleet.FrontEndID) {
	for i := range s.Fleet.Classes {
		class := s.Fleet.Classes[i].ID
		if d, ok := s.Demand[fleet.Stream{FrontEnd: id, Class: class}]; ok {
			b.Demand = append(b.Demand, DemandBelief{id, class, d.Rps, d.DoubtRps, d.Source})
		}
	}
	for i := range s.Fleet.Pools {
		l := fleet.Link{FrontEnd: id, Pool: s.Fleet.Pools[i].ID}
		_, measured := s.Network[l]
		measured = measured && s.Fleet.Network.Measured
		if _, declared := s.Fleet.Network.RoundTripSeconds[l]; measured || declared {
			b.Network = append(b.Network, LinkBelief{id, l.Pool, s.RoundTrip(l), measured})
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
	if signals.TTFTSeconds.Known() {
		b.TTFTSeconds = &signals.TTFTSeconds.Value
	}
	for _, id := range p.Engines {
		e := signals.Engines[id]
		b.Engines = append(b.Engines, EngineBelief{
			Engine: id, Readiness: s.Readiness(p.ID, id).String(), Dialect: e.Dialect, Why: e.Why,
			Running: told(at, e.Running), Waiting: told(at, e.Waiting), KVUsage: told(at, e.KVUsage),
			TTFTSeconds: told(at, e.TTFTSeconds), TBTSeconds: told(at, e.TBTSeconds),
		})
	}
	return b
}

func told(at time.Time, r fleet.Reading) *Told {
	if !r.Known() {
		return nil
	}
	return &Told{r.Value, max(0, at.Sub(r.At).Seconds()), r.Stale}
}

package admin

import (
	"time"

	"weir/fleet"
)

// beliefs are a state as programs read it; the JSON form is a stable interface.
type beliefs struct {
	At      time.Time      `json:"at"`
	Demand  []demandBelief `json:"demand"`
	Pools   []poolBelief   `json:"pools"`
	Network []linkBelief   `json:"network"`
}

type demandBelief struct {
	FrontEnd fleet.FrontEndID `json:"frontEnd"`
	Class    fleet.ClassID    `json:"class"`
	Rps      float64          `json:"rps"`
	Source   fleet.Source     `json:"source"`
}

type poolBelief struct {
	Pool           fleet.PoolID   `json:"pool"`
	Health         float64        `json:"health"`         // scales the capacity
	CapacityFactor float64        `json:"capacityFactor"` // scales the capacity
	Engines        []engineBelief `json:"engines"`
}

type engineBelief struct {
	Engine    fleet.EngineID `json:"engine"`
	Readiness string         `json:"readiness"`
}

type linkBelief struct {
	FrontEnd         fleet.FrontEndID `json:"frontEnd"`
	Pool             fleet.PoolID     `json:"pool"`
	RoundTripSeconds float64          `json:"roundTripSeconds"`
	Measured         bool             `json:"measured"` // false: declared
}

func newBeliefs(at time.Time, s *fleet.State) *beliefs {
	b := &beliefs{At: at, Demand: []demandBelief{}, Pools: []poolBelief{}, Network: []linkBelief{}}
	for i := range s.Fleet.FrontEnds {
		b.addFrontEnd(s, s.Fleet.FrontEnds[i].ID)
	}
	for i := range s.Fleet.Pools {
		b.Pools = append(b.Pools, newPoolBelief(s, &s.Fleet.Pools[i]))
	}
	return b
}

// addFrontEnd lists what is known: a link without a round trip is left out.
func (b *beliefs) addFrontEnd(s *fleet.State, id fleet.FrontEndID) {
	for i := range s.Fleet.Classes {
		class := s.Fleet.Classes[i].ID
		if d, ok := s.Demand[fleet.Stream{FrontEnd: id, Class: class}]; ok {
			b.Demand = append(b.Demand, demandBelief{id, class, d.Rps, d.Source})
		}
	}
	for i := range s.Fleet.Pools {
		l := fleet.Link{FrontEnd: id, Pool: s.Fleet.Pools[i].ID}
		_, measured := s.Network[l]
		measured = measured && s.Fleet.Network.Measured
		if _, declared := s.Fleet.Network.RoundTripSeconds[l]; measured || declared {
			b.Network = append(b.Network, linkBelief{id, l.Pool, s.RoundTrip(l), measured})
		}
	}
}

func newPoolBelief(s *fleet.State, p *fleet.Pool) poolBelief {
	b := poolBelief{Pool: p.ID, Health: s.Health(p.ID), CapacityFactor: s.CapacityFactor(p.ID), Engines: []engineBelief{}}
	for _, e := range p.Engines {
		b.Engines = append(b.Engines, engineBelief{e, s.Readiness(p.ID, e).String()})
	}
	return b
}

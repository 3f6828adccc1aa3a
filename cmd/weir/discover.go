package main

import (
	"maps"
	"time"

	"weir/fleet"
	"weir/signals/discover"
)

// takeAnswer hands what a source says to the loop. Front-ends are told at once of engines
// that come or leave.
func (p *plane) takeAnswer(a discover.Answer) bool {
	return p.loop.Post(func(now time.Time) {
		p.book.Observe(now, &a)
		if p.useFound() {
			p.loop.Hurry()
		}
	})
}

// useFound has everybody work with the engines that are known, and says whether these are
// others. It is called on the loop's goroutine.
func (p *plane) useFound() bool {
	f := p.book.Fleet()
	if f == p.found && !p.adoptedAnew {
		return false
	}
	p.found, p.adoptedAnew = f, false
	// One that is not asked for any more does not come back when it is again: it rests on
	// traffic of long ago.
	maps.DeleteFunc(p.adopted, func(id fleet.PoolID, a fleet.Adoption) bool { return !f.Asks(id, &a) })
	f = f.Adopt(p.adopted)
	p.tracker.SetFleet(f)
	p.prober.SetFleet(f)
	p.scraper.SetFleet(f)
	return true
}

// state is what is believed, of the engines that are there now.
func (p *plane) state(now time.Time, previous *fleet.Plan) *fleet.State {
	p.book.Settle(now, ending(p.loop.Latest().State))
	p.useFound()
	s := p.tracker.State(now, previous)
	s.Sources = p.book.Sources()
	p.keepHistories(now, s)
	return s
}

// adopt has a profile stand in for a pool's, from the next round on.
func (p *plane) adopt(id fleet.PoolID, a fleet.Adoption) bool {
	return p.loop.Post(func(time.Time) {
		p.adopted[id], p.adoptedAnew = a, true
	})
}

// ending tells by the state of the last round what engines that leave have to end. One
// that serves, since no other can yet, has not begun to end.
func ending(s *fleet.State) func(fleet.PoolID, fleet.EngineID) discover.Ending {
	return func(id fleet.PoolID, e fleet.EngineID) discover.Ending {
		if s == nil {
			return discover.Busy
		}
		open := s.Pools[id].Signals.Open
		switch r := s.Readiness(id, e); {
		case r == fleet.Unready:
			return discover.Unready
		case r == fleet.Draining && open != nil && open[e] == 0:
			return discover.Idle
		}
		return discover.Busy
	}
}

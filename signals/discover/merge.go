package discover

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/fleet"
)

// rebuild decides anew whose each engine is, and what of it is new, stays or leaves.
func (b *Book) rebuild(now time.Time) {
	owners := b.owners()
	for id, e := range b.pools {
		e.settle(now, id, owners)
	}
	for i := range b.file.Pools {
		if p := &b.file.Pools[i]; p.Discovery != nil {
			b.explain(p.ID, b.pools[p.ID], owners)
		}
	}
	b.assemble()
}

// owners gives each engine to one pool: that whose list in the file has it, else that
// which has had it, else the first by name.
func (b *Book) owners() map[fleet.EngineID]fleet.PoolID {
	owners := map[fleet.EngineID]fleet.PoolID{}
	claim := func(id fleet.PoolID, engines []fleet.EngineID, may func(fleet.EngineID) bool) {
		for _, engine := range engines {
			if _, taken := owners[engine]; !taken && len(owners) < MaxEngines && may(engine) {
				owners[engine] = id
			}
		}
	}
	anyone := func(fleet.EngineID) bool { return true }
	for i := range b.file.Pools {
		if p := &b.file.Pools[i]; p.Discovery == nil {
			claim(p.ID, p.Engines, anyone)
		}
	}
	ids := slices.Sorted(maps.Keys(b.pools))
	for _, id := range ids {
		e := b.pools[id]
		claim(id, e.told, func(engine fleet.EngineID) bool { return e.engines[engine] })
	}
	for _, id := range ids {
		claim(id, b.pools[id].told, anyone)
	}
	return owners
}

// settle brings a pool's engines to what it is given.
func (e *entry) settle(now time.Time, id fleet.PoolID, owners map[fleet.EngineID]fleet.PoolID) {
	engines := make(map[fleet.EngineID]bool, len(e.told))
	for _, engine := range e.told {
		if owners[engine] == id {
			engines[engine] = true
			delete(e.leaving, engine)
		}
	}
	for engine := range e.engines {
		if !engines[engine] {
			e.leaving[engine] = now
		}
	}
	for engine := range e.leaving {
		if _, elsewhere := owners[engine]; elsewhere {
			delete(e.leaving, engine)
		}
	}
	e.engines = engines
	e.boundLeaving()
}

// boundLeaving leaves out those that left first where there are too many.
func (e *entry) boundLeaving() {
	if len(e.leaving) <= maxLeaving {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(e.leaving), func(a, b fleet.EngineID) int {
		return cmp.Or(e.leaving[a].Compare(e.leaving[b]), cmp.Compare(a, b))
	})
	e.leaveOut(oldest[:len(oldest)-maxLeaving])
}

// leaveOut has engines that leave be gone, and says whether any was there.
func (e *entry) leaveOut(engines []fleet.EngineID) bool {
	before := len(e.leaving)
	for _, engine := range engines {
		delete(e.leaving, engine)
	}
	return len(e.leaving) < before
}

// explain notes which engines a pool does not get, and why.
func (b *Book) explain(id fleet.PoolID, e *entry, owners map[fleet.EngineID]fleet.PoolID) {
	var named []string
	refused := 0
	for _, engine := range e.told {
		owner, taken := owners[engine]
		if owner == id {
			continue
		}
		if refused++; refused > maxRefused {
			continue
		}
		if !taken {
			named = append(named, fmt.Sprintf("engine %s is beyond the %d that a fleet may have", engine, MaxEngines))
			continue
		}
		named = append(named, fmt.Sprintf("engine %s is in pool %q already (%s)", engine, owner, b.file.Pool(owner).Discovery))
	}
	if refused > maxRefused {
		named = append(named, fmt.Sprintf("and %d more", refused-maxRefused))
	}
	b.Counters.Refused.Add(uint64(max(0, refused-e.refused)))
	e.refused, e.why = refused, strings.Join(named, "; ")
}

// assemble makes the fleet anew if it differs from the one before.
func (b *Book) assemble() {
	next := *b.file
	next.Pools = slices.Clone(b.file.Pools)
	for i := range next.Pools {
		p := &next.Pools[i]
		if e := b.pools[p.ID]; e != nil {
			p.Engines = slices.Sorted(maps.Keys(e.engines))
			p.Leaving = slices.Sorted(maps.Keys(e.leaving))
			p.Engines = append(p.Engines, p.Leaving...)
			slices.Sort(p.Engines)
			p.Awaited = e.heard.IsZero() && !e.kept
		}
	}
	if b.fleet == nil || b.from != b.file || !sameEngines(b.fleet, &next) {
		b.fleet, b.from = &next, b.file
	}
}

// sameEngines says whether two fleets of one file have the same engines.
func sameEngines(x, y *fleet.Fleet) bool {
	return slices.EqualFunc(x.Pools, y.Pools, func(p, q fleet.Pool) bool {
		return p.Awaited == q.Awaited && slices.Equal(p.Engines, q.Engines) && slices.Equal(p.Leaving, q.Leaving)
	})
}

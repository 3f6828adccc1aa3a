package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/fleet"
)

// network reads the round trips. Each pair of a front-end and a pool that some
// class may use needs one, measured or not: until a link is measured the declared
// value stands in, and a link without either would look like one of no length.
func (r *reader) network(n node) {
	before := r.doc.faults()
	m := n.mapping("source", "default", "roundTrip")
	r.fleet.Network = fleet.Network{
		Measured:         m.at("source").oneOf("declared", "declared", "measured") == "measured",
		RoundTripSeconds: map[fleet.Link]float64{},
	}
	rows := r.roundTrips(m.at("roundTrip"))
	otherwise := m.at("default")
	if r.tooManyLinks(n) || r.doc.faults() > before {
		return
	}
	if otherwise.present() {
		r.fill(otherwise.seconds(maxLatency))
		return
	}
	r.needRoundTrips(m.at("roundTrip"), rows)
}

// roundTrips reads the declared table and returns the place of each row.
func (r *reader) roundTrips(n node) map[fleet.FrontEndID]node {
	rows := map[fleet.FrontEndID]node{}
	pools := r.poolNames()
	for _, row := range n.entries(maxFrontEnds) {
		from := fleet.FrontEndID(row.name)
		rows[from] = row.key
		if len(r.fleet.FrontEnds) > 0 && r.fleet.FrontEnd(from) == nil {
			row.key.wrong("name a front-end of this file", "there is no front-end %q", from)
		}
		for _, e := range row.value.entries(maxPools) {
			to := fleet.PoolID(e.name)
			if len(pools) > 0 && !pools[to] {
				e.key.wrong("name a pool of this file", "there is no pool %q", to)
			}
			r.fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: from, Pool: to}] = e.value.seconds(maxLatency)
		}
	}
	return rows
}

func (r *reader) poolNames() map[fleet.PoolID]bool {
	names := map[fleet.PoolID]bool{}
	for i := range r.fleet.Pools {
		names[r.fleet.Pools[i].ID] = true
	}
	return names
}

func (r *reader) tooManyLinks(n node) bool {
	links := len(r.fleet.FrontEnds) * len(r.fleet.Pools)
	if links <= maxLinks {
		return false
	}
	n.wrong("split the fleet", "there are %d pairs of a front-end and a pool, more than %d", links, maxLinks)
	return true
}

func (r *reader) fill(seconds float64) {
	declared := r.fleet.Network.RoundTripSeconds
	for i := range r.fleet.FrontEnds {
		for j := range r.fleet.Pools {
			link := fleet.Link{FrontEnd: r.fleet.FrontEnds[i].ID, Pool: r.fleet.Pools[j].ID}
			if _, ok := declared[link]; !ok {
				declared[link] = seconds
			}
		}
	}
}

// needRoundTrips reports, once a front-end, the pools to which no round trip is
// declared.
func (r *reader) needRoundTrips(table node, rows map[fleet.FrontEndID]node) {
	used := r.usedPools()
	for i := range r.fleet.FrontEnds {
		from := r.fleet.FrontEnds[i].ID
		if from == "" {
			continue // reported
		}
		var missing []string
		for _, to := range used {
			if _, ok := r.fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: from, Pool: to}]; !ok {
				missing = append(missing, fmt.Sprintf("%q", to))
			}
		}
		if len(missing) == 0 {
			continue
		}
		at, ok := rows[from]
		if !ok {
			at = table
		}
		at.wrong("add them, or a network.default for all that are not listed",
			"front-end %q has no round trip to pool %s", from, strings.Join(missing, ", "))
	}
}

// usedPools lists the pools that some class may use, by name.
func (r *reader) usedPools() []fleet.PoolID {
	used := map[fleet.PoolID]bool{}
	for i := range r.fleet.Classes {
		for _, p := range r.eligible(&r.fleet.Classes[i]) {
			used[p.ID] = true
		}
	}
	delete(used, "") // reported
	return slices.Sorted(maps.Keys(used))
}

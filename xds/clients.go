package xds

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"weir/fleet"
)

// Clients lists the connected clients by front-end, node and role. Two entries of
// one name are a client that reconnects, or two that share a node id.
func (s *Server) Clients() []fleet.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	clients := make([]fleet.Client, 0, len(s.streams))
	for _, st := range s.streams {
		id := st.node.id
		clients = append(clients, fleet.Client{
			FrontEnd:  id.frontEnd,
			Known:     s.frontEnds[id.frontEnd],
			Node:      id.node,
			Role:      id.role,
			Connected: st.connected,
			Held:      !st.node.heldSince.IsZero() || st.node.heldBy != "",
			HeldBy:    st.node.heldBy,
			Types:     st.report(now),
		})
	}
	slices.SortFunc(clients, func(a, b fleet.Client) int {
		return cmp.Or(cmp.Compare(a.FrontEnd, b.FrontEnd), cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.Role, b.Role), a.Connected.Compare(b.Connected))
	})
	return clients
}

func (st *stream) report(now time.Time) []fleet.Delivery {
	var out []fleet.Delivery
	for _, t := range slices.Sorted(maps.Keys(st.deliveries)) {
		out = append(out, st.deliveries[t].report(shortName(t), now))
	}
	return out
}

func (d *delivery) report(name string, now time.Time) fleet.Delivery {
	r := fleet.Delivery{
		Type:   name,
		Sent:   d.sentVersion,
		Acked:  d.ackedVersion,
		Nonce:  d.ackedBy,
		Behind: d.behind(),
		Nacks:  d.nacks,
		Error:  d.refusal,
	}
	if r.Behind > 0 {
		r.LagSeconds = now.Sub(d.since).Seconds()
	}
	return r
}

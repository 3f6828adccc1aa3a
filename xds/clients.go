package xds

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"weir/fleet"
)

// ClientStatus is one connected xDS client and what it took.
type ClientStatus struct {
	FrontEnd  fleet.FrontEndID `json:"frontEnd"`
	Known     bool             `json:"known"` // false: there is no such front-end, and it gets nothing
	Node      string           `json:"node"`
	Role      fleet.Role       `json:"role"`
	Connected time.Time        `json:"connected"`
	Held      bool             `json:"held"`  // its routes wait for their clusters to be taken
	Types     []Delivery       `json:"types"` // what it asked for, by name
}

// Delivery is how far one resource type has come at one client. Versions are
// those of the whole type; they are empty where this stream has carried nothing,
// as after a reconnect that found all as before.
type Delivery struct {
	Type       string  `json:"type"`
	Sent       string  `json:"sent"`
	Acked      string  `json:"acked"`
	Nonce      string  `json:"nonce"`      // of the last ACK
	Behind     int     `json:"behind"`     // resources that were sent and are not taken
	LagSeconds float64 `json:"lagSeconds"` // for how long it has been behind
	Nacks      uint64  `json:"nacks"`
	Error      string  `json:"error"` // reason of the last NACK, until all is taken
}

// UpToDate says whether the client took all that it was sent.
func (c *ClientStatus) UpToDate() bool {
	return c.Known && !c.Held && !slices.ContainsFunc(c.Types, func(d Delivery) bool { return d.Behind > 0 })
}

// Clients lists the connected clients by front-end, node and role. Two entries of
// one name are a client that reconnects, or two that share a node id.
func (s *Server) Clients() []ClientStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	clients := make([]ClientStatus, 0, len(s.streams))
	for _, st := range s.streams {
		id := st.node.id
		clients = append(clients, ClientStatus{
			FrontEnd:  id.frontEnd,
			Known:     s.frontEnds[id.frontEnd],
			Node:      id.node,
			Role:      id.role,
			Connected: st.connected,
			Held:      !st.node.heldSince.IsZero(),
			Types:     st.report(now),
		})
	}
	slices.SortFunc(clients, func(a, b ClientStatus) int {
		return cmp.Or(cmp.Compare(a.FrontEnd, b.FrontEnd), cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.Role, b.Role), a.Connected.Compare(b.Connected))
	})
	return clients
}

func (st *stream) report(now time.Time) []Delivery {
	var out []Delivery
	for _, t := range slices.Sorted(maps.Keys(st.deliveries)) {
		out = append(out, st.deliveries[t].report(shortName(t), now))
	}
	return out
}

func (d *delivery) report(name string, now time.Time) Delivery {
	r := Delivery{
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

package fleet

import (
	"slices"
	"time"
)

// Client is one connected xDS client, an Envoy or a weir-extproc, and what it
// took of what it was sent. Its JSON form is a stable interface.
type Client struct {
	FrontEnd  FrontEndID `json:"frontEnd"`
	Known     bool       `json:"known"` // false: there is no such front-end, and it gets nothing
	Node      string     `json:"node"`
	Role      Role       `json:"role"`
	Connected time.Time  `json:"connected"`
	Held      bool       `json:"held"`   // routes wait for their clusters to be taken
	HeldBy    string     `json:"heldBy"` // the NACK that holds them; empty: an answer is awaited, if they are held
	Types     []Delivery `json:"types"`  // what it asked for, by name
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
func (c *Client) UpToDate() bool {
	return c.Known && !c.Held && !slices.ContainsFunc(c.Types, func(d Delivery) bool { return d.Behind > 0 })
}

// LagSeconds is for how long the client has been behind; 0: it is not.
func (c *Client) LagSeconds() float64 {
	lag := 0.0
	for _, d := range c.Types {
		lag = max(lag, d.LagSeconds)
	}
	return lag
}

// Refusing says whether the client refused something and has not taken its
// successor yet.
func (c *Client) Refusing() bool {
	return slices.ContainsFunc(c.Types, func(d Delivery) bool { return d.Error != "" })
}

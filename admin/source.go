package admin

import (
	"weir/fleet"
)

// Source is where a pool's engines come from that do not stand in the fleet file.
type Source struct {
	From         string   `json:"from"`
	HeardSeconds *float64 `json:"heardSeconds"` // since the source last answered; null: this process has not heard it
	Found        int      `json:"found"`        // engines that it names and the pool has
	Leaving      int      `json:"leaving"`      // that it names no more, and that end what they have
	Refused      int      `json:"refused"`      // that it names and the pool does not get
	Problem      string   `json:"problem"`      // why the engines may not be those that it has; empty: they are
}

func newSource(r fleet.Round, p *fleet.Pool) *Source {
	if p.Discovery == nil {
		return nil
	}
	known := r.State.Sources[p.ID]
	return &Source{p.Discovery.String(), since(r.At, known.Heard), known.Engines, known.Leaving, known.Refused, known.Problem}
}

package signals

import (
	"time"

	"weir/fleet"
)

// maxOpen is more than front-ends can have open at an engine.
const maxOpen = 1e6

// open sums what every weir-extproc that is heard of says of its open requests; nil
// where none is. Unlike demand, which lasts, it is worth nothing when it is old.
func (t *Tracker) open(now time.Time) map[fleet.PoolID]map[fleet.EngineID]float64 {
	heard := false
	sum := make(map[fleet.PoolID]map[fleet.EngineID]float64, len(t.pools))
	for id := range t.pools {
		sum[id] = map[fleet.EngineID]float64{}
	}
	for _, f := range t.frontEnds {
		for _, n := range f.nodes {
			if n.extProc.heard.IsZero() || now.Sub(n.extProc.heard) > clientSilent {
				continue
			}
			heard = true
			for _, o := range n.open {
				if engines := sum[o.Pool]; engines != nil && t.pools[o.Pool].engines[o.Engine] != nil {
					engines[o.Engine] += min(float64(o.Open), maxOpen)
				}
			}
		}
	}
	if !heard {
		return nil
	}
	return sum
}

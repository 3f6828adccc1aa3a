package solver

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"weir/fleet"
)

// sized is a fleet of that many front-ends and pools, all of one class, asked for
// 65 % of what it can do.
func sized(frontEnds, pools int) *fleet.State {
	random := rand.New(rand.NewPCG(7, 7))
	s := talk()
	f := s.Fleet
	f.FrontEnds, f.Pools, s.Demand = nil, nil, map[fleet.Stream]fleet.Demand{}
	f.Options = fleet.Options{Headroom: 0.05, ChurnSeconds: 0.005, MinShare: 0.001}
	capacity := 0.0
	for i := range pools {
		id := fleet.PoolID(fmt.Sprintf("pool%04d", i))
		p := fleet.Pool{ID: id, Models: []string{"llama"}, Engines: engines(id, 2), Profile: shallow(20 + 60*random.Float64())}
		capacity += 2 * p.Profile.CapacityRps
		f.Pools = append(f.Pools, p)
	}
	for i := range frontEnds {
		id := fleet.FrontEndID(fmt.Sprintf("front%04d", i))
		f.FrontEnds = append(f.FrontEnds, fleet.FrontEnd{ID: id})
		ask(s, id, "chat", capacity*0.65/float64(frontEnds)*(0.5+random.Float64()))
		for _, p := range f.Pools {
			f.Network.RoundTripSeconds[fleet.Link{FrontEnd: id, Pool: p.ID}] = 0.002 + 0.15*random.Float64()
		}
	}
	return s
}

func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ frontEnds, pools int }{{10, 20}, {50, 200}} {
		b.Run(fmt.Sprintf("%dx%dx1", size.frontEnds, size.pools), func(b *testing.B) {
			s := sized(size.frontEnds, size.pools)
			s.Previous = mustPlan(b, s)
			b.ReportAllocs()
			for b.Loop() {
				mustPlan(b, s)
			}
		})
	}
}

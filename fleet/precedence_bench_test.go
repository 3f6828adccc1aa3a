package fleet

import (
	"fmt"
	"testing"
)

// What each round tells fifty front-ends of classes that are all of different priority and
// share all pools, which is the most that there can be of it.
func BenchmarkNewAdmissions(b *testing.B) {
	for _, classes := range []int{5, 50} {
		b.Run(fmt.Sprint(classes, " classes"), func(b *testing.B) {
			const pools, frontEnds = 20, 50
			s, plan := &State{Fleet: &Fleet{}}, &Plan{}
			for i := range pools {
				id := PoolID(fmt.Sprintf("p%02d", i))
				s.Fleet.Pools = append(s.Fleet.Pools, Pool{ID: id, Profile: Profile{CapacityRps: 10}})
				plan.Pools = append(plan.Pools, PoolPlan{Pool: id, CapacityRps: 1e4, Rps: 5e3})
			}
			for i := range classes {
				s.Fleet.Classes = append(s.Fleet.Classes, Class{ID: ClassID(fmt.Sprintf("c%02d", i)), Priority: i})
			}
			for i := range frontEnds {
				id := FrontEndID(fmt.Sprintf("f%02d", i))
				s.Fleet.FrontEnds = append(s.Fleet.FrontEnds, FrontEnd{ID: id})
				for k := range classes {
					r := Route{FrontEnd: id, Class: s.Fleet.Classes[k].ID, DemandRps: 100}
					for j := range pools {
						r.Shares = append(r.Shares, Share{Pool: s.Fleet.Pools[j].ID, Share: 1.0 / pools, Rps: 100.0 / pools})
					}
					plan.Routes = append(plan.Routes, r)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				NewAdmissions(s, plan)
			}
		})
	}
}

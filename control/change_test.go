package control

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/fleet"
)

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fleet.Plan)
		want   change
	}{
		{"nothing", func(*fleet.Plan) {}, change{}},
		{"demand alone", func(p *fleet.Plan) { p.Routes[0].DemandRps = 45 }, change{}},
		{"less than a step of a weight", func(p *fleet.Plan) {
			p.Routes[0].Shares[0].Share, p.Routes[0].Shares[1].Share = 0.5+1e-9, 0.5-1e-9
		}, change{}},
		{"shares", func(p *fleet.Plan) {
			p.Routes[0].Shares[0].Share, p.Routes[0].Shares[1].Share = 0.25, 0.75
		}, change{moved: 0.25 * 40 / 50}},
		{"another pool", func(p *fleet.Plan) { p.Routes[1].Shares[0].Pool = "far" }, change{moved: 10.0 / 50}},
		{"shedding", func(p *fleet.Plan) {
			p.Status, p.Routes[1].ShedRps = fleet.Shedding, 4
		}, change{status: true, shed: 4}},
		{"more shedding", func(p *fleet.Plan) { p.Routes[1].ShedRps = 4 }, change{shed: 4}},
		{"a new stream", func(p *fleet.Plan) {
			p.Routes = append(p.Routes, fleet.Route{
				FrontEnd: "C", Class: "resident", DemandRps: 10,
				Shares: []fleet.Share{{Pool: "near", Share: 1}},
			})
		}, change{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := guardPlan()
			c.change(after)
			got := compare(guardPlan(), after)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(change{}), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompareWithTheFirst(t *testing.T) {
	if got := compare(nil, guardPlan()); !got.status {
		t.Errorf("a first plan is no change: %+v", got)
	}
}

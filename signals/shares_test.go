package signals

import (
	"math"
	"testing"
	"time"

	"weir/fleet"
)

func TestSharesOfNodes(t *testing.T) {
	now := time.Unix(1000, 0)
	classes := []fleet.Class{{ID: "chat"}}
	for name, c := range map[string]struct {
		counts []uint64
		want   []float64
	}{
		"nobody":           {nil, nil},
		"one":              {[]uint64{7}, []float64{1}},
		"idle":             {[]uint64{0, 0}, []float64{0.5, 0.5}},
		"alike but chance": {[]uint64{105, 95}, []float64{0.5, 0.5}},
		"not alike":        {[]uint64{300, 100}, []float64{0.76, 0.26}},
		"one alone":        {[]uint64{1000, 0, 0, 0}, []float64{1, 0.0625, 0.0625, 0.0625}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFrontEnd()
			f.heard = now
			for i, n := range c.counts {
				report := fleet.LoadReport{Role: fleet.RoleExtProc, Interval: time.Second, Classes: []fleet.ClassLoad{{Class: "chat", Arrivals: n}}}
				f.node(string(rune('a'+i))).extProc.observe(now, classes, report)
			}
			got := f.shares()
			if len(got) != len(c.want) {
				t.Fatalf("shares %v, want %v", got, c.want)
			}
			for i := range got {
				if d := got[i].Share - c.want[i]; d > 1e-9 || d < -1e-9 {
					t.Errorf("shares %v, want %v", got, c.want)
				}
			}
		})
	}
}

// Nodes that have reported for unlike times, or in other steps, are compared by the time
// that all of them tell of.
func TestSharesOfUnequalWindows(t *testing.T) {
	type node struct {
		step    time.Duration // between reports
		reports int
		rps     []float64 // of the last reports; the first of them is that of all before, too
	}
	old := func(rps ...float64) node { return node{time.Second, 10, rps} }
	for name, c := range map[string]struct {
		nodes []node
		want  []float64
	}{
		"one has joined":                {[]node{old(20), old(20), {time.Second, 2, []float64{20}}}, []float64{1. / 3, 1. / 3, 1. / 3}},
		"and took from the others":      {[]node{old(60, 30, 30), old(60, 30, 30), {time.Second, 2, []float64{60}}}, []float64{0.26, 0.26, 0.5}},
		"one has joined and gets less":  {[]node{old(400), old(400), {time.Second, 2, []float64{50}}}, []float64{0.48, 0.48, 0.25 / 3}},
		"one reports in long steps":     {[]node{old(20), {2 * time.Second, 5, []float64{20}}}, []float64{0.5, 0.5}},
		"and gets less":                 {[]node{old(300), {2 * time.Second, 5, []float64{100}}}, []float64{0.76, 0.26}},
		"a long report, and a new node": {[]node{{4 * time.Second, 2, []float64{30}}, {time.Second, 1, []float64{30}}}, []float64{0.5, 0.5}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFrontEnd()
			f.heard = time.Unix(1000, 0)
			for i, n := range c.nodes {
				for k := range n.reports {
					ago := n.reports - 1 - k
					rps := n.rps[max(0, len(n.rps)-1-ago)]
					report := fleet.LoadReport{Role: fleet.RoleExtProc, Interval: n.step, Classes: []fleet.ClassLoad{{Class: "chat", Arrivals: uint64(rps * n.step.Seconds())}}}
					f.node(string(rune('a'+i))).extProc.observe(f.heard.Add(-time.Duration(ago)*n.step), []fleet.Class{{ID: "chat"}, {ID: "idle"}}, report)
				}
			}
			for i, got := range f.shares() {
				if math.Abs(got.Share-c.want[i]) > 1e-9 {
					t.Errorf("shares %v, want %v", f.shares(), c.want)
				}
			}
		})
	}
}

// A node that is silent takes in nothing.
func TestSharesOfSilentNodes(t *testing.T) {
	now := time.Unix(1000, 0)
	f := newFrontEnd()
	f.node("old").extProc.observe(now.Add(-time.Minute), nil, fleet.LoadReport{Role: fleet.RoleExtProc})
	f.node("new").extProc.observe(now, nil, fleet.LoadReport{Role: fleet.RoleExtProc})
	f.heard = now
	if got := f.shares(); len(got) != 1 || got[0] != (fleet.NodeShare{Node: "new", Share: 1}) {
		t.Errorf("shares %v, want those of the new one alone", got)
	}
}

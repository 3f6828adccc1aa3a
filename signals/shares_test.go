package signals

import (
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

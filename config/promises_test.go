package config

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weir/fleet"
)

// checkPromises holds a fleet to what fleet.Fleet and docs/FLEET.md promise,
// without the code that read it.
func checkPromises(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	if len(f.FrontEnds) == 0 || len(f.Pools) == 0 || len(f.Classes) == 0 {
		t.Error("an empty section")
	}
	if !slices.IsSortedFunc(f.FrontEnds, func(a, b fleet.FrontEnd) int { return strings.Compare(string(a.ID), string(b.ID)) }) {
		t.Error("front-ends are not sorted")
	}
	if !slices.IsSortedFunc(f.Pools, func(a, b fleet.Pool) int { return strings.Compare(string(a.ID), string(b.ID)) }) {
		t.Error("pools are not sorted")
	}
	checkPools(t, f)
	checkClasses(t, f)
	checkFrontEnds(t, f)
	checkOptions(t, f)
}

func checkPools(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	engines := map[fleet.EngineID]bool{}
	for i := range f.Pools {
		p := &f.Pools[i]
		if f.Pool(p.ID) != p || len(p.Models) == 0 || (len(p.Engines) == 0) != (p.Discovery != nil) || !slices.IsSorted(p.Engines) {
			t.Errorf("pool %q: a second of its name, no model, no engine, or engines not sorted", p.ID)
		}
		for _, e := range p.Engines {
			a, err := netip.ParseAddrPort(string(e))
			if err != nil || a.Port() == 0 || a.String() != string(e) || engines[e] {
				t.Errorf("pool %q: engine %q", p.ID, e)
			}
			engines[e] = true
		}
		if !positive(p.Profile.CapacityRps) || !positive(p.Profile.Reference.Prompt) || len(p.Profile.TTFT) == 0 {
			t.Errorf("pool %q: profile %+v", p.ID, p.Profile)
		}
		checkCurve(t, p.Profile.TTFT)
		checkCurve(t, p.Profile.TBT)
	}
}

func checkCurve(t *testing.T, c fleet.Curve) {
	t.Helper()
	for i, p := range c {
		if !finite(p.Utilisation) || !finite(p.Seconds) ||
			i > 0 && (p.Utilisation <= c[i-1].Utilisation || p.Seconds < c[i-1].Seconds) {
			t.Errorf("curve %v", c)
		}
	}
}

func checkClasses(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	for i := range f.Classes {
		c := &f.Classes[i]
		if f.Class(c.ID) != c || len(c.Match) == 0 || len(c.Models()) == 0 {
			t.Errorf("class %q: a second of its name, no rule, or no model", c.ID)
		}
		served := false
		for j := range f.Pools {
			p := &f.Pools[j]
			if !c.Eligible(p) {
				continue
			}
			served = true
			for _, fe := range f.FrontEnds {
				if s, ok := f.Network.RoundTripSeconds[fleet.Link{FrontEnd: fe.ID, Pool: p.ID}]; !ok || !finite(s) {
					t.Errorf("no round trip from %q to %q", fe.ID, p.ID)
				}
			}
		}
		if !served {
			t.Errorf("no pool can serve class %q", c.ID)
		}
	}
}

func checkFrontEnds(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	for i := range f.FrontEnds {
		fe := &f.FrontEnds[i]
		if _, err := netip.ParseAddrPort(fe.Listen); err != nil || f.FrontEnd(fe.ID) != fe {
			t.Errorf("front-end %+v", fe)
		}
		for class, rps := range fe.Demand {
			if f.Class(class) == nil || !finite(rps) {
				t.Errorf("front-end %q: demand %v for %q", fe.ID, rps, class)
			}
		}
	}
}

func checkOptions(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	o := f.Options
	if fleet.CheckPolicy(o.Policy) != nil || o.Shadow != "" && fleet.CheckPolicy(o.Shadow) != nil || o.Tick < minTick || o.Tick > maxTick ||
		!finite(o.Headroom) || o.Headroom >= 1 || !finite(o.MinShare) || o.MinShare >= 0.5 ||
		o.BodyLimit < 1<<10 || o.BodyLimit > math.MaxUint32 || o.HealthPath[0] != '/' || !finite(o.RetryPercent) {
		t.Errorf("options %+v", o)
	}
	if o.Unreadable != "" && f.Class(o.Unreadable) == nil {
		t.Errorf("unreadable is %q", o.Unreadable)
	}
}

func finite(x float64) bool   { return x >= 0 && !math.IsInf(x, 0) }
func positive(x float64) bool { return x > 0 && finite(x) }

// Whatever the text, the answer is a fleet that keeps its promises or problems
// that name a place and a remedy.
func FuzzParse(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fleet, err := Parse("fleet.yaml", data)
		if err == nil {
			checkPromises(t, fleet)
			return
		}
		var problems Problems
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("not problems: %v", err)
		}
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines || p.Column < 1 || p.What == "" || p.Remedy == "" {
				t.Errorf("of %d lines: %+v", lines, p)
			}
		}
	})
}

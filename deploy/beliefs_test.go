package deploy

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/admin"
	"weir/deploy/stage"
	"weir/fleet"
)

// beliefs asks a control plane, as an operator would, what it believes.
func beliefs(t *testing.T, s *stage.Stage) *admin.Beliefs {
	t.Helper()
	b := &admin.Beliefs{}
	check(t, json.Unmarshal(weir(t, "status", "--signals", "--admin", s.AdminAddress("weir"), "-o", "json"), b))
	return b
}

// adminPage asks it as a program would.
func adminPage(t *testing.T, s *stage.Stage, path string, into any) {
	t.Helper()
	check(t, json.Unmarshal([]byte(page(t, s.AdminAddress("weir"), path)), into))
}

func text(x *float64) string {
	if x == nil {
		return "an unknown value"
	}
	return fmt.Sprint(*x)
}

// The control plane believes what engines, clients and the network really do.
func TestBeliefsAreTrue(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet, EngineFlags: func(fleet.PoolID) []string { return []string{"--tbt", "20ms"} }})
	l := startSteady(t, s, "beliefs")
	l.flow(700)
	b := beliefs(t, s)
	l.endWhole()
	for _, p := range b.Pools {
		if p.CapacityFactor != 1 {
			t.Errorf("pool %s has a factor of %v because %s, though its profile is right", p.Pool, p.CapacityFactor, p.FactorReason)
		}
		if p.TTFTSeconds == nil || math.Abs(*p.TTFTSeconds-0.115) > 0.05 {
			t.Errorf("pool %s is believed to answer after %s, want about 0.115 s", p.Pool, text(p.TTFTSeconds))
		}
		if e := p.TTFTStdErrSeconds; e == nil || !(*e > 0 && *e < 0.05) {
			t.Errorf("pool %s is believed to answer as fast ± %s, want an error of some milliseconds", p.Pool, text(e))
		}
		// 30 RPS over three engines of 40.
		if p.Load == nil || math.Abs(*p.Load-0.25) > 0.08 {
			t.Errorf("pool %s is believed to carry %s, want about 0.25", p.Pool, text(p.Load))
		}
		for _, e := range p.Engines {
			if e.Dialect != "vllm" || e.Running == nil || e.Running.Stale || e.Running.AgeSeconds > 5 {
				t.Errorf("engine %s: dialect %q, running %+v, want a fresh number in vLLM's words", e.Engine, e.Dialect, e.Running)
			}
		}
	}
}

// An engine that is slower than the others of its pool is named, it alone, and no more
// once it is as fast as they are.
func TestASlowEngineIsNamed(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet})
	slow := s.Fleet.Pool("east").Engines[1]
	setFaults(t, slow, `{"slow":4}`)
	l := startSteady(t, s, "odd")
	odd := func() (all []fleet.EngineID) {
		for _, p := range beliefs(t, s).Pools {
			for _, e := range p.Engines {
				if slices.ContainsFunc(e.Deviations, func(d admin.DeviationBelief) bool { return d.Outlier && d.Signal == fleet.SignalTTFT }) {
					all = append(all, e.Engine)
				}
			}
		}
		return all
	}
	note := fmt.Sprintf("- pool east, engine %s: TTFT is ", slow)
	eventually(t, "the slow engine is named", 60*time.Second, func() bool {
		table := string(weir(t, "status", "--signals", "--admin", s.AdminAddress("weir")))
		return slices.Equal(odd(), []fleet.EngineID{slow}) && strings.Contains(table, note)
	})
	setFaults(t, slow, `{}`)
	eventually(t, "nobody is named", 90*time.Second, func() bool { return len(odd()) == 0 })
	l.endWhole()
}

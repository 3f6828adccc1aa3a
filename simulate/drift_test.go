package simulate

import (
	"math"
	"testing"
	"time"

	"weir/fit"
	"weir/fleet"
)

// What becomes of the engines in TestDriftUnderConversations, in seconds.
const (
	driftAt, driftEnds = 2 * 3600.0, 3.5 * 3600
	driftBy            = 1.2
)

// driftWatch asks each minute whether a profile is still true.
type driftWatch struct {
	t       *testing.T
	profile *fleet.Profile
	history []fleet.Span
	drifts  []fleet.Drift
	asked   int
	found   float64 // seconds after the engines became slower; 0: not yet
}

// plan looks at what the control plane has kept, and plans.
func (d *driftWatch) plan(s *fleet.State) (*fleet.Plan, error) {
	if h := s.Pools["p"].History; len(h) > 0 && (len(d.history) == 0 || h[len(h)-1].To.After(d.history[len(d.history)-1].To)) {
		d.history = h
		d.asked++
		now := h[len(h)-1].To
		d.judge(now.Sub(epoch).Seconds(), fit.Compare(d.profile, h, now, time.Minute).Drifts)
	}
	return allToOne(s)
}

func (d *driftWatch) judge(at float64, drifts []fleet.Drift) {
	switch {
	case len(drifts) == 0:
		return
	case at < driftAt:
		d.t.Errorf("after %.0f s: %+v, though the profile is true", at, drifts)
	case d.found == 0:
		d.found = at - driftAt
	}
	d.drifts = drifts
}

// A pool whose profile was measured has hours of conversations, whose rate swings, and
// then becomes slower by a fifth. What the tracker keeps of that names no drift before,
// and soon after; and of it a profile is fitted that tells of the slower engines.
func TestDriftUnderConversations(t *testing.T) {
	const engines = 2
	m, err := sessions.fitted(h100, 100)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(2) {
		w, err := sessions.of(Mix{Day: 3600, Sources: []Source{{Rps: 0.5 * engines * m.profile.CapacityRps, Swing: 0.6}}}, 0, seed)
		if err != nil {
			t.Fatal(err)
		}
		d := &driftWatch{t: t, profile: &m.profile}
		_, err = Run(Config{
			Fleet: &fleet.Fleet{
				FrontEnds: []fleet.FrontEnd{{ID: "f"}}, Classes: []fleet.Class{{ID: "c"}}, Options: fleet.Options{Tick: 2 * time.Second},
				Pools: []fleet.Pool{{ID: "p", Profile: m.profile, Engines: []fleet.EngineID{"a", "b"}}},
			},
			Engines: map[fleet.PoolID]Engine{"p": m.Engine}, Workload: w, Policy: d.plan, Seed: seed,
			Faults: []Fault{{driftAt, "p", driftBy}}, Seconds: driftEnds, DrainSeconds: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: asked %d times, found after %.0f minutes: %+v", seed, d.asked, d.found/60, d.drifts)
		if d.found == 0 || d.found > 30*60 {
			t.Fatalf("seed %d: found after %v s, want it within half an hour", seed, d.found)
		}
		d.fits()
	}
}

// fits holds the profile that is fitted to the history against the truth.
func (d *driftWatch) fits() {
	d.t.Helper()
	r, err := fit.FitHistory(d.history, (&fleet.ProfileNews{Drifts: d.drifts}).Began(), d.profile, fit.Options{Resamples: 10})
	if err != nil {
		d.t.Fatal(err)
	}
	worst := 0.0
	for u := 0.3; u <= 0.75; u += 0.05 {
		worst = max(worst, math.Abs(r.Profile.TTFT.At(u*d.profile.CapacityRps/r.Profile.CapacityRps)/(driftBy*d.profile.TTFT.At(u))-1))
	}
	d.t.Logf("a capacity of %.2f rps, where the profile says %.2f; TTFT beside the truth by %.3f at most; %q", r.Profile.CapacityRps, d.profile.CapacityRps, worst, r.Notes)
	if worst > 0.1 {
		d.t.Errorf("TTFT is fitted %.3f beside the truth", worst)
	}
}

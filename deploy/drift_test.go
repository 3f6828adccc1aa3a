package deploy

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/admin"
	"weir/config"
	"weir/deploy/stage"
	"weir/fleet"
)

// driftedBy is how much longer the engines take for a first token than the profile says;
// so its target is broken at driftedRps, of each of the two.
const (
	driftedBy      = 1.3
	driftedEngines = 2
	driftedRps     = 40 * (200/driftedBy - 40) / (200 - 40)
)

// askAt has clients ask for streams, of so many requests a second in all, for a while.
func askAt(t *testing.T, s *stage.Stage, name string, rps float64, lasting time.Duration) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), lasting)
	defer stop()
	client := stage.NewClient()
	var mu sync.Mutex
	var failed []string
	stage.Arrive(ctx, rps, uint64(rps), func(i int) {
		r := stage.Do(context.WithoutCancel(ctx), client, stage.Call{URL: s.URL("home"), Body: stage.Chat("llama-3.3-70b", fmt.Sprint(name, rps, "-", i), true, 0)})
		if !r.OK() {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, r.String())
		}
	})
	if len(failed) > 0 {
		t.Errorf("%d requests failed: %s", len(failed), failed[0])
	}
}

// profileOf is what is told of a pool's profile; nil: there is nothing to tell.
func profileOf(t *testing.T, s *stage.Stage, pool fleet.PoolID) *admin.Profile {
	t.Helper()
	var st admin.Status
	adminPage(t, s, "/status", &st)
	for i := range st.Profiles {
		if st.Profiles[i].Pool == pool {
			return &st.Profiles[i]
		}
	}
	return nil
}

// fitted has a profile fitted to traffic by the command line, and read as a fleet file is.
func fitted(t *testing.T, s *stage.Stage) (*fleet.Profile, string) {
	t.Helper()
	out := string(weir(t, "fit", "--from", s.AdminAddress("weir"), "--pool", "only"))
	own, err := os.ReadFile("testdata/drifted.yaml")
	check(t, err)
	before, rest, _ := strings.Cut(string(own), "    profile:\n")
	_, after, _ := strings.Cut(rest, "\n\n")
	f, err := config.Parse("fitted.yaml", []byte(before+"    "+strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n    ")+"\n\n"+after))
	check(t, err)
	return &f.Pools[0].Profile, out
}

// A profile that is not true is named, with how far it is off; of the traffic a profile
// is fitted that is nearer to the truth. It is put in force where the fleet file says so,
// and only there, and only for so long.
func TestAProfileThatDrifts(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/drifted.yaml", EngineFlags: func(fleet.PoolID) []string {
		slow := func(ms float64) string { return fmt.Sprintf("%.0fms", ms*driftedBy) }
		return []string{"--ttft", slow(40), "--ttft-full", slow(200), "--window", "1s"}
	}})
	if out, err := exec.Command(filepath.Join(bin, "weir"), "fit", "--from", s.AdminAddress("weir")).CombinedOutput(); err == nil || !strings.Contains(string(out), "history") {
		t.Errorf("without traffic weir fit says %s, %v: want that there is no history", out, err)
	}
	var told *admin.Profile
	var asked time.Time
	eventually(t, "the drift is named, and a profile fitted", 3*time.Minute, func() bool {
		if told = profileOf(t, s, "only"); told != nil && len(told.Drifts) > 0 && told.Fitted != nil {
			return true
		}
		if time.Since(asked) > 10*time.Second { // a busy machine spoils spans: ask again
			for _, u := range []float64{0.5, 0.16, 0.7, 0.34, 0.6} {
				askAt(t, s, fmt.Sprint("drift", asked.Unix()), u*40*driftedEngines, 9*time.Second)
			}
			asked = time.Now()
		}
		return false
	})
	t.Logf("%d of %d spans compared: %v", told.Compared, told.Spans, told.Words)
	for _, d := range told.Drifts {
		if d.Signal != fleet.SignalTTFT || math.Abs(d.Ratio/driftedBy-1) > 3*d.StdErr/driftedBy+0.1 {
			t.Errorf("%v, want TTFT to be %.2f times what the profile says", d, driftedBy)
		}
	}
	got, text := fitted(t, s)
	t.Log("\n" + text)
	if !strings.Contains(text, "fitted to traffic") {
		t.Error("the profile does not say that it is fitted to traffic")
	}
	nearerToTheTruth(t, s.Fleet.Pool("only").Profile, *got)
	if told.Adopted || told.CapacityRps != told.FileRps {
		t.Errorf("%+v: nothing was to be adopted", told)
	}
	adoptedWhileAsked(t, s)
}

// nearerToTheTruth holds a fitted profile and the file's against the engines.
func nearerToTheTruth(t *testing.T, file, got fleet.Profile) {
	t.Helper()
	if off := math.Abs(got.CapacityRps/driftedRps - 1); off > 0.2 || off > math.Abs(file.CapacityRps/driftedRps-1)/2 {
		t.Errorf("the fitted capacity is %.1f rps, true are %.1f, in the file stand %v", got.CapacityRps, driftedRps, file.CapacityRps)
	}
	off, was := 0.0, 0.0
	for _, u := range []float64{0.2, 0.4, 0.6} { // of the file's
		rps := u * file.CapacityRps
		said, shown := file.TTFT.At(u), got.TTFT.At(rps/got.CapacityRps)
		truth := driftedBy * said
		t.Logf("TTFT at %.0f rps: %.0f ms, truly %.0f ms, in the file %.0f ms", rps, 1e3*shown, 1e3*truth, 1e3*said)
		off, was = off+math.Abs(shown/truth-1), was+math.Abs(said/truth-1)
	}
	if off > 0.75*was { // of less than a minute, and engines on a busy machine
		t.Errorf("fitted TTFT is off by %.0f %% in the mean, that in the file by %.0f %%", 100*off/3, 100*was/3)
	}
}

// adoptedWhileAsked has the fleet file ask for the fitted profile, and take that back.
func adoptedWhileAsked(t *testing.T, s *stage.Stage) {
	t.Helper()
	const asks = "\n      adopt: true"
	capacity := func() float64 { return planOf(t, s).Pool("only").CapacityRps }
	before := capacity()
	rewrite(t, s, func(text string) string { return strings.Replace(text, "capacity: 40 rps", "capacity: 40 rps"+asks, 1) })
	var told *admin.Profile
	// News come with traffic, and a fit that is too uncertain is not adopted.
	for _, u := range []float64{0.5, 0.68, 0.3, 0.65, 0.2, 0.7, 0.4} {
		askAt(t, s, "adopt", u*40*driftedEngines, 5*time.Second)
		if told = profileOf(t, s, "only"); told != nil && told.Adopted {
			break
		}
	}
	if told == nil || !told.Adopted {
		t.Fatalf("%+v, want the fitted profile to be adopted", told)
	}
	if n := number(t, page(t, s.AdminAddress("weir"), "/metrics"), `weir_profile_adopted{pool="only"}`); n != 1 {
		t.Errorf("weir_profile_adopted is %v", n)
	}
	if part := told.CapacityRps / told.FileRps; part > 0.99 || part < 0.899 {
		t.Errorf("the first step is to %.3f of the file's capacity, want one step down, of a tenth at most", part)
	}
	eventually(t, "the plan is made of it", 5*time.Second, func() bool { return math.Abs(capacity()/before-told.CapacityRps/told.FileRps) < 0.05 })
	rewrite(t, s, func(text string) string { return strings.Replace(text, asks, "", 1) })
	eventually(t, "the file's profile is back", 10*time.Second, func() bool {
		now := profileOf(t, s, "only")
		return (now == nil || !now.Adopted) && math.Abs(capacity()/before-1) < 0.05
	})
}

func planOf(t *testing.T, s *stage.Stage) *fleet.Plan {
	t.Helper()
	var p fleet.Plan
	adminPage(t, s, "/plan", &p)
	return &p
}

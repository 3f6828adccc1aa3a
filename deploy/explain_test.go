package deploy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
	"weir/solver"
)

// why is what `weir explain plan -o json` says of the last change.
type why struct {
	fleet.Explanation
	Turn *struct {
		MovedShare float64
		Causes     []solver.Cause
	}
}

// An operator asks the running control plane why traffic goes where it goes, what would
// be if, and, after an engine has died, what moved it.
func TestExplainAndWhatIf(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: talk, Edit: declaredOnly})
	ask := func(into any, args ...string) {
		t.Helper()
		text := weir(t, append(args, "--admin", s.AdminAddress("weir"), "-o", "json")...)
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	var before struct{ Before, After *fleet.Plan }
	ask(&before, "whatif", "--replicas", "B=-1")
	if b, a := before.Before.Pool("B"), before.After.Pool("B"); b.CapacityRps <= a.CapacityRps {
		t.Errorf("without a replica B has %v RPS of %v", a.CapacityRps, b.CapacityRps)
	}
	var e why
	ask(&e, "explain", "plan")
	if len(e.Streams) != 3 || len(e.Pools) != 3 {
		t.Errorf("%d streams and %d pools are explained, want 3 and 3", len(e.Streams), len(e.Pools))
	}

	check(t, s.Process("engine-"+string(s.Fleet.Pool("B").Engines[0])).Kill())
	eventually(t, "the change is put down to capacity", 15*time.Second, func() bool {
		ask(&e, "explain", "plan")
		return e.Turn != nil && mainCause(e.Turn.Causes) == solver.InputCapacity
	})
	if e.Turn.MovedShare <= 0 {
		t.Errorf("the change moved %v of the traffic", e.Turn.MovedShare)
	}
	t.Logf("%+v", e.Turn)
}

// declaredOnly lets the declared demand rule: nobody asks for anything here.
func declaredOnly(text string) string {
	return strings.Replace(text, "\noptions:\n", "\noptions:\n  demand: declared\n", 1)
}

func mainCause(causes []solver.Cause) string {
	main := solver.Cause{}
	for _, c := range causes {
		if c.Moved > main.Moved {
			main = c
		}
	}
	return main.Input
}

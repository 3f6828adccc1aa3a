package deploy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/admin"
	"weir/deploy/stage"
	"weir/fleet"
)

// A class that no Envoy can take, for want of a file, comes in one change with a
// class that is sound. The sound one serves at once, as does one that comes later,
// what served before goes on, and the bad one serves once the fleet file is
// corrected.
func TestOneRefusedClassHoldsNoOther(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet, EngineFlags: func(fleet.PoolID) []string {
		return []string{"--models", "llama-3.3-70b,late-model,later-model,bad-model"}
	}})
	good := withClassLate(read(t, s))
	engine := s.Fleet.Pool("west").Engines[2]
	edit := func(text, tls string) {
		rewrite(t, s, func(string) string { return withClassBad(text, engine, tls) })
	}
	l := startSteady(t, s, "refused")

	const missing = "tls: {ca: /nowhere/authority.pem}"
	edit(good, missing)
	awaitAnswers(t, s, "late-model", 200)
	awaitHolds(t, s, "a NACK of cluster bad")
	awaitAnswers(t, s, "bad-model", 404)

	later := strings.NewReplacer("late-model]", "late-model, later-model]", "  - name: late\n", "  - name: later\n    match:\n      - model: later-model\n  - name: late\n").Replace(good)
	edit(later, missing)
	awaitAnswers(t, s, "later-model", 200)

	edit(later, "")
	awaitAnswers(t, s, "bad-model", 200)
	awaitStatus(t, s, 0, "all is well")
	l.flow(60)
	l.endWhole()
}

// withClassBad moves an engine to a pool and class of its own.
func withClassBad(text string, engine fleet.EngineID, tls string) string {
	pool := fmt.Sprintf("  - name: bad\n    region: west\n    models: [bad-model]\n    engineType: vllm\n    engines: [%q]\n    profile: *profile\n", engine)
	if tls != "" {
		pool += "    " + tls + "\n"
	}
	return strings.NewReplacer(
		fmt.Sprintf(", %q", engine), "", fmt.Sprintf("%q, ", engine), "",
		"west: 40ms}", "west: 40ms, bad: 40ms}", "west: 2ms}", "west: 2ms, bad: 2ms}",
		"\nnetwork:\n", pool+"\nnetwork:\n",
		"\nclasses:\n", "\nclasses:\n  - name: bad\n    match:\n      - model: bad-model\n",
	).Replace(text)
}

// awaitAnswers waits until requests for a model are answered so at every front-end.
func awaitAnswers(t *testing.T, s *stage.Stage, model string, want int) {
	t.Helper()
	since := time.Now()
	for _, fe := range s.Fleet.FrontEnds {
		call := chatCall(s.URL(fe.ID), "nack-"+model)
		call.Body = stage.Chat(model, "hello", false, 0)
		eventually(t, fmt.Sprintf("%s is answered with %d at %s", model, want, fe.ID), 5*time.Second, func() bool {
			r := stage.Do(t.Context(), stage.NewClient(), call)
			return r.Status == want
		})
	}
	t.Logf("%s: %d after %v", model, want, time.Since(since).Round(time.Millisecond))
}

// awaitHolds waits until routes of every client are held by that.
func awaitHolds(t *testing.T, s *stage.Stage, by string) {
	t.Helper()
	eventually(t, "every client is held by "+by, 5*time.Second, func() bool {
		status, err := admin.FetchStatus(t.Context(), s.AdminAddress("weir"))
		check(t, err)
		held := 0
		for _, f := range status.FrontEnds {
			for _, h := range f.Holds {
				if h.By == by {
					held++
				}
			}
		}
		return held == 2*len(s.Fleet.FrontEnds) // an Envoy and a weir-extproc each
	})
}

package deploy

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"weir/admin"
	"weir/deploy/stage"
	"weir/fleet"
)

// retriesInForce are the retries of the only class, as the control plane shows them.
func retriesInForce(t *testing.T, s *stage.Stage) admin.Retries {
	t.Helper()
	got, err := admin.FetchStatus(t.Context(), s.AdminAddress("weir"))
	check(t, err)
	return got.FrontEnds[0].Streams[0].Retries
}

// Half of the engines refuse everything, and go on being taken for ready. Then the
// front-end tries as much again as the others have room for, and no more: by the
// engines' own accounts.
func TestRetriesKeepToTheBudget(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/budgets.yaml"})
	const rps = 90
	l := startLoad(t, s, "budget", rps)
	eventually(t, "the budget is of what is measured", 15*time.Second, func() bool { return retriesInForce(t, s).RoomRps != nil })
	calm := retriesInForce(t, s)
	t.Logf("while all is well: %+v, room %.1f rps", calm, *calm.RoomRps)
	if calm.Short || calm.Percent <= 0 || calm.Floor < 4 {
		t.Errorf("while all is well the budget is %+v", calm)
	}
	sick := map[fleet.EngineID]bool{}
	for _, p := range s.Fleet.Pools {
		setFaults(t, p.Engines[0], `{"errorRate": 1, "errorStatus": 503}`)
		sick[p.Engines[0]] = true
	}
	eventually(t, "there is not room for all that fails", 15*time.Second, func() bool { return retriesInForce(t, s).Short })
	t.Logf("short: %+v", retriesInForce(t, s))
	l.flow(4 * rps) // what it is reckoned from changes with it
	room := 0.0     // RPS: the most there was in the time that is looked at, for it is reckoned anew each tick
	look := func() (now admin.Retries) {
		now = retriesInForce(t, s)
		if now.RoomRps != nil {
			room = max(room, *now.RoomRps)
		}
		return now
	}
	budget := look()
	from, sent := time.Now(), l.sent.Load()
	overflow, err := s.Stat(t.Context(), "main", "cluster.chat.upstream_rq_retry_overflow")
	check(t, err)
	for range 12 {
		l.flow(rps / 2)
		look()
	}
	seconds, requests := time.Since(from).Seconds(), float64(l.sent.Load()-sent)
	until := time.Now()
	after, err := s.Stat(t.Context(), "main", "cluster.chat.upstream_rq_retry_overflow")
	check(t, err)
	failed := l.end()
	attempts, atWell := 0.0, 0.0
	for _, a := range arrivals(t, s) {
		if a.Time.After(from) && a.Time.Before(until) {
			attempts++
			if !sick[a.Engine] {
				atWell++
			}
		}
	}
	retries := attempts - requests
	capacity := 2 * s.Fleet.Pools[0].Profile.CapacityRps
	t.Logf("short: %.2f %%, %d at first, room %.1f rps at most; %.1f rps asked, %.1f retried, %d not; the well engines had %.1f rps of %.0f; %d of %d requests failed",
		budget.Percent, budget.Floor, room, requests/seconds, retries/seconds, after-overflow, atWell/seconds, capacity, len(failed), l.sent.Load())
	if most := room * seconds; retries > most+4*math.Sqrt(most) {
		t.Errorf("%.0f retries, there was room for %.0f", retries, most)
	}
	if most := capacity * seconds; atWell > most+4*math.Sqrt(most) {
		t.Errorf("the well engines had %.0f requests, they can do %.0f", atWell, most)
	}
	if retries < 10 || after == overflow {
		t.Errorf("%.0f retries and %d for which there was no budget: the test shows nothing", retries, after-overflow)
	}
	for _, r := range failed {
		if r.Status != 503 || !strings.Contains(string(r.Body), "injected") {
			t.Fatalf("a client got %v, want the engine's own refusal", &r)
		}
	}
}

// A retry goes to another pool first, and never to the engine that has just failed.
func TestRetriesGoToAnotherPoolFirst(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/budgets.yaml"})
	bad := s.Fleet.Pool("near").Engines[0]
	setFaults(t, bad, `{"errorRate": 1, "errorStatus": 503}`)
	client := stage.NewClient()
	marks := map[string]bool{}
	for i := range 60 {
		mark := fmt.Sprint("first ", i)
		marks[mark] = true
		call := stage.Call{URL: s.URL("main"), Body: stage.Chat("llama-3.3-70b", mark, false, 0), Headers: map[string]string{"x-test-id": mark}}
		if r := stage.Do(t.Context(), client, call); !r.OK() {
			t.Errorf("%s: %v", mark, &r)
		}
	}
	again := 0
	for mark, seen := range byTest(arrivals(t, s)) {
		if !marks[mark] || len(seen) == 1 && seen[0].Engine != bad {
			continue
		}
		again++
		if len(seen) != 2 || seen[0].Engine != bad || seen[1].Pool != "far" {
			t.Errorf("%s came to %v, want the sick engine and then the other pool", mark, seen)
		}
	}
	t.Logf("%d of 60 requests were tried again", again)
	if again < 3 {
		t.Errorf("%d of 60 requests were tried again: the test shows nothing", again)
	}
}

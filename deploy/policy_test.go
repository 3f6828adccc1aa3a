package deploy

import (
	"net/http"
	"strings"
	"testing"

	"weir/deploy/stage"
	"weir/fleet"
)

// An operator has the running control plane plan by another policy and back: live
// traffic follows, `weir status` reminds of it, and a shadow says each time what a
// third policy would do.
func TestAPolicyIsSwitchedLive(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: talk, Edit: func(text string) string {
		return strings.Replace(declared(text), "\noptions:\n", "\noptions:\n  shadow: waterfall\n", 1)
	}})
	const overflow = 20.0 / 120
	follows(t, s, overflow)
	awaitStatus(t, s, 0, "Optimal: mean latency 251.84ms", "shadow waterfall: mean latency +0s, fullest pool 100.0%, 0.0% of the traffic elsewhere, refused +0.00 RPS", "all is well")

	admin := s.AdminAddress("weir")
	said := string(weir(t, "policy", "nearest", "--admin", admin))
	if !strings.Contains(said, "FROM THE NEXT ROUND ON") || !strings.Contains(said, "nearest") {
		t.Errorf("weir policy nearest says:\n%s", said)
	}
	follows(t, s, 0)
	awaitStatus(t, s, 3, "Routed, policy nearest: mean latency 251ms",
		"shadow waterfall: mean latency +840µs, fullest pool 100.0%, 8.0% of the traffic elsewhere",
		`policy "nearest" is in force by command, and not "optimal" as the fleet file says`, `policy "nearest" heeds no capacity: planned above capacity, requests wait ever longer: B (120 %)`)

	weir(t, "policy", "optimal", "--shadow", "none", "--admin", admin)
	follows(t, s, overflow)
	awaitStatus(t, s, 3, "Optimal: mean latency 251.84ms", `the shadow is "none" by command, and not "waterfall" as the fleet file says`)

	// The fleet file has the last word, once it is changed.
	weir(t, "policy", "even", "--admin", admin)
	rewrite(t, s, func(text string) string {
		return strings.Replace(text, "  shadow: waterfall\n", "  policy: nearest\n  shadow: optimal\n", 1)
	})
	follows(t, s, 0)
	awaitStatus(t, s, 3, "shadow optimal: mean latency +840µs", "heeds no capacity")
	if got := string(weir(t, "policy", "--admin", admin)); strings.Contains(got, "command") {
		t.Errorf("the fleet file was changed, and still:\n%s", got)
	}
	noPageSwitchesPolicies(t, admin)
}

// follows waits until B sends C that share of its traffic by plan, and counts that it
// does: conversations at engines.
func follows(t *testing.T, s *stage.Stage, share float64) {
	t.Helper()
	link := fleet.Link{FrontEnd: "B", Pool: "C"}
	eventually(t, "the plan is served", 4*s.Fleet.Options.Tick, func() bool {
		got := shares(t, s)[link]
		return got > share-1e-6 && got < share+1e-6
	})
	const conversations = 600
	c := newCaller(t, s, "B")
	c.send(conversations)
	got := c.at(t, "C")
	z := zScore(float64(got), conversations, share)
	t.Logf("planned %.2f %%, got %d of %d conversations, z = %+.2f", 100*share, got, conversations, z)
	if z < -4 || z > 4 {
		t.Errorf("C got %d of %d conversations, planned %.2f %%: z = %.1f is no chance", got, conversations, 100*share, z)
	}
}

// noPageSwitchesPolicies sends what a web page could.
func noPageSwitchesPolicies(t *testing.T, address string) {
	t.Helper()
	for name, change := range map[string]func(*http.Request){
		"a form":         func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"a page":         func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"a rebound name": func(r *http.Request) { r.Host = "evil.example" },
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/policy", strings.NewReader(`{"policy":"even"}`))
		check(t, err)
		r.Header.Set("Content-Type", "application/json")
		change(r)
		response, err := http.DefaultClient.Do(r)
		check(t, err)
		response.Body.Close()
		if response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%s: answered %s", name, response.Status)
		}
	}
	if got := string(weir(t, "policy", "--admin", address)); strings.Contains(got, "command") {
		t.Errorf("a page switched the policy:\n%s", got)
	}
}

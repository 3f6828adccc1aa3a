package admin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/fleet"
)

// testNews is of a pool that has drifted, and of one that has not.
func testNews() []fleet.ProfileNews {
	return []fleet.ProfileNews{
		{Pool: "p", Since: noon.Add(-3 * time.Hour), Spans: 40, Compared: 20, CapacityRps: 20, FileRps: 20, Fitted: &fleet.FitSummary{CapacityRps: 15, LowRps: 14, HighRps: 16}, Drifts: []fleet.Drift{
			{Signal: fleet.SignalTTFT, Low: 0.6, High: 0.8, Ratio: 1.4, StdErr: 0.1, Since: noon.Add(-20 * time.Minute), Until: noon, Spans: 9},
			{Signal: fleet.SignalTBT, Low: 0, High: 0.2, Ratio: 0.8, StdErr: 0.02, Since: noon.Add(-3 * time.Hour), Until: noon, Spans: 9},
		}},
		{Pool: "q", Spans: 3},
	}
}

// A profile that has drifted is told in words, with how a better one is got; of others
// there is nothing to tell.
func TestStatusOfProfiles(t *testing.T) {
	from := testSources()
	from.Profiles = testNews
	_, body := ask(t, Handler(ControlPlane(from)), "GET", "/status")
	var s Status
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err)
	}
	words := []string{
		"TTFT at 60–80 % of load is 1.40× (±0.10) what the profile says, for 20 minutes",
		"TBT at 0–20 % of load is 0.80× (±0.02) what the profile says, for 3 hours",
	}
	if len(s.Profiles) != 1 || s.Profiles[0].Pool != "p" || !slices.Equal(s.Profiles[0].Words, words) || s.Profiles[0].Fitted.CapacityRps != 15 ||
		s.Profiles[0].Command != "weir fit --from ADMIN --pool p" {
		t.Errorf("%+v, want pool p's alone, and %q", s.Profiles, words)
	}
	s.Attention = slices.DeleteFunc(s.Attention, func(a string) bool { return strings.Contains(a, "the loop is stuck") }) // the round is of long ago
	want := []string{`pool "p": its profile is not true any more: ` + words[0]}
	if !slices.Equal(s.Attention, want) {
		t.Errorf("attention %q, want %q", s.Attention, want)
	}
}

// Histories are those of the round, from when the first drift began, with the profile of
// the fleet file beside that in use.
func TestProfilesPage(t *testing.T) {
	r := testRound()
	span := fleet.Span{From: noon.Add(-time.Minute), To: noon, EngineSeconds: 120, Issued: 600, Tokens: fleet.Tokens{Prompt: 1000, Output: 200}, TTFT: fleet.Timing{Items: 300, Seconds: 0.2}}
	state := r.State.Pools["p"]
	state.History = []fleet.Span{span}
	r.State.Pools["p"] = state
	file := fleet.Profile{CapacityRps: 30}
	r.State.Fleet.Pools[0].FileProfile = &file
	r.State.Fleet.Pools[0].Profile.CapacityRps = 25
	from := testSources()
	from.Latest, from.Profiles = func() fleet.Round { return r }, testNews
	_, body := ask(t, Handler(ControlPlane(from)), "GET", "/profiles")
	var got []PoolHistory
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Profile.CapacityRps != 30 || got[0].InUse.CapacityRps != 25 || !got[0].Since.Equal(noon.Add(-3*time.Hour)) ||
		len(got[0].Spans) != 1 || !got[0].Spans[0].To.Equal(noon) || got[0].Spans[0].TTFT != span.TTFT || len(got[1].Spans) != 0 || !got[1].Since.IsZero() {
		t.Errorf("%+v", got)
	}
	for pool, want := range map[string]int{"p": 1, "q": 0} {
		_, body := ask(t, Handler(ControlPlane(from)), "GET", "/profiles?pool="+pool)
		if err := json.Unmarshal([]byte(body), &got); err != nil || len(got) != 2 || len(got[0].Spans) != want {
			t.Errorf("of pool %s alone (%v): %+v, want %d spans of p", pool, err, got, want)
		}
	}
	if status, body := ask(t, Handler(ControlPlane(from)), "GET", "/profiles?pol=p"); status != 400 || !strings.Contains(body, "ask by pool") {
		t.Errorf("asked by another key: %d %s", status, body)
	}
	from.Latest = func() fleet.Round { return fleet.Round{} }
	if status, body := ask(t, Handler(ControlPlane(from)), "GET", "/profiles"); status != 503 || !strings.Contains(body, "no plan yet") {
		t.Errorf("before the first round: %d %s", status, body)
	}
}

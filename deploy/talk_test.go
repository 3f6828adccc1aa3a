package deploy

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"weir/deploy/stage"
	"weir/fleet"
)

const talk = "../testdata/fleets/talk.yaml"

// declared makes the file's demand rule, so that the plan stands still whatever
// the test sends.
func declared(text string) string {
	if strings.Contains(text, "\noptions:\n") {
		return strings.Replace(text, "\noptions:\n", "\noptions:\n  demand: declared\n", 1)
	}
	return text + "\noptions:\n  demand: declared\n"
}

// The talk's example: each front-end's conversations divide over the pools as the
// plan says, counted in the engines' own journals.
func TestTheTalksShares(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: talk, Edit: declared})
	before := shares(t, s)
	want := map[fleet.Link]float64{{FrontEnd: "A", Pool: "A"}: 1, {FrontEnd: "B", Pool: "B"}: 100.0 / 120, {FrontEnd: "B", Pool: "C"}: 20.0 / 120, {FrontEnd: "C", Pool: "C"}: 1}
	for link, share := range before {
		if math.Abs(share-want[link]) > 1e-6 {
			t.Errorf("%s → %s is planned %v, want %v", link.FrontEnd, link.Pool, share, want[link])
		}
	}
	sent := converse(t, s, 10)
	if diff := differ(before, shares(t, s)); diff != "" {
		t.Fatal("the plan changed although the demand is declared:", diff)
	}
	got := firstPools(t, s, sent)
	for link, share := range before {
		n := float64(len(sent[link.FrontEnd]))
		z := zScore(float64(got[link]), n, share)
		t.Logf("%s → %s: planned %.2f %%, got %d of %.0f conversations, z = %+.2f", link.FrontEnd, link.Pool, 100*share, got[link], n, z)
		if math.Abs(z) > 4 {
			t.Errorf("%s → %s: z = %.1f is no chance", link.FrontEnd, link.Pool, z)
		}
	}
	noWeirHeaders(t, s)
	noTimeouts(t, s)
}

// converse sends the first turns of distinct conversations, ten for each RPS of
// declared demand, and returns their names.
func converse(t *testing.T, s *stage.Stage, perRps int) map[fleet.FrontEndID][]string {
	t.Helper()
	sent := map[fleet.FrontEndID][]string{}
	client := stage.NewClient()
	var clients sync.WaitGroup
	slots := make(chan struct{}, 64)
	for _, fe := range s.Fleet.FrontEnds {
		for i := range int(fe.Demand["chat"]) * perRps {
			name := fmt.Sprintf("%s-%d", fe.ID, i)
			sent[fe.ID] = append(sent[fe.ID], name)
			slots <- struct{}{}
			clients.Go(func() {
				defer func() { <-slots }()
				r := stage.Do(t.Context(), client, chatCall(s.URL(fe.ID), name))
				if !r.OK() {
					t.Errorf("conversation %s: %v", name, &r)
				}
			})
		}
	}
	clients.Wait()
	return sent
}

// chatCall is the first turn of a conversation that is named nowhere but in its
// text; the name in the header is for the journals alone.
func chatCall(url, name string) stage.Call {
	return stage.Call{URL: url, Body: stage.Chat("llama-3.3-70b", "conversation "+name, true, 0), Headers: map[string]string{"x-test-id": name}}
}

// firstPools counts the pools at which conversations began.
func firstPools(t *testing.T, s *stage.Stage, sent map[fleet.FrontEndID][]string) map[fleet.Link]int {
	t.Helper()
	where := map[string]fleet.PoolID{}
	for _, a := range arrivals(t, s) {
		if _, seen := where[a.Headers["x-test-id"]]; !seen {
			where[a.Headers["x-test-id"]] = a.Pool
		}
	}
	got := map[fleet.Link]int{}
	total := 0
	for id, names := range sent {
		total += len(names)
		for _, name := range names {
			if where[name] == "" {
				t.Errorf("conversation %s reached no engine", name)
			}
			got[fleet.Link{FrontEnd: id, Pool: where[name]}]++
		}
	}
	if total < 2000 {
		t.Fatalf("%d conversations are too few to judge by, want 2000", total)
	}
	return got
}

// zScore of a count of successes in n trials. Where nothing is left to chance, a
// difference is infinite.
func zScore(got, n, share float64) float64 {
	difference := got - n*share
	if deviation := math.Sqrt(n * share * (1 - share)); deviation > 1e-9 {
		return difference / deviation
	}
	if math.Abs(difference) < 1e-6 {
		return 0
	}
	return math.Inf(1)
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return all
}

package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir/deploy/stage"
	"weir/fleet"
)

const (
	following  = 24 // conversations
	turnsThere = 6
)

// Each turn of a conversation names nothing but the response before it, and comes as
// soon as that has ended: it finds the engine that keeps it, of six.
func TestResponsesAreFollowedToTheirEngine(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions, Edit: heedResponses})
	followAll(t, s, "before")
	groups := byTest(arrivals(t, s))
	engines := map[fleet.EngineID]bool{}
	for i := range following {
		name := fmt.Sprint("before-", i)
		engine, err := engineOf(groups[name])
		if err != nil || len(groups[name]) != turnsThere {
			t.Errorf("%s: %d turns arrived, %v", name, len(groups[name]), err)
		}
		engines[engine] = true
	}
	if len(engines) < 4 {
		t.Errorf("all conversations are on %d engines of six: the test shows little", len(engines))
	}
	hits, misses := hints(t, s)
	t.Logf("followed: %v hits, %v misses", hits, misses)
	if want := float64(following * (turnsThere - 1)); hits != want || misses != 0 {
		t.Errorf("%v hits and %v misses, want %v and none", hits, misses, want)
	}
	noTimeouts(t, s)

	// What a restart forgets is a miss, counted, and answered all the same.
	check(t, s.Process("extproc-main").Kill())
	check(t, s.Await(t.Context(), "main", false))
	check(t, s.Process("extproc-main").Start())
	check(t, s.Await(t.Context(), "main", true))
	if r := follow(t, s, "after", "resp_before", true); !r.OK() {
		t.Errorf("a response that nobody knows: %v", &r)
	}
	if hits, misses := hints(t, s); hits != 0 || misses != 1 {
		t.Errorf("after a restart %v hits and %v misses, want none and one", hits, misses)
	}
}

// heedResponses has the sessions' class follow responses.
func heedResponses(text string) string {
	return strings.Replace(declared(text), "body:prompt_cache_key, fingerprint]", "body:prompt_cache_key, previousResponse, fingerprint]", 1)
}

func followAll(t *testing.T, s *stage.Stage, prefix string) {
	t.Helper()
	var talks sync.WaitGroup
	for i := range following {
		name := fmt.Sprint(prefix, "-", i)
		talks.Go(func() {
			previous := ""
			for turn := range turnsThere {
				r := follow(t, s, name, previous, i%2 == 0)
				if !r.OK() {
					t.Errorf("%s, turn %d: %v", name, turn, &r)
					return
				}
				previous = responseID(r.Body)
			}
		})
	}
	talks.Wait()
}

// follow asks for one response, streamed or in one piece. What it says differs from
// turn to turn, so that nothing else keeps them together.
func follow(t *testing.T, s *stage.Stage, name, previous string, stream bool) stage.Reply {
	body := map[string]any{"model": "llama-3.3-70b", "input": "said after " + name + previous, "stream": stream, "max_output_tokens": 2}
	if previous != "" {
		body["previous_response_id"] = previous
	}
	text, err := json.Marshal(body)
	check(t, err)
	r := stage.Do(t.Context(), stage.NewClient(), stage.Call{
		URL: s.URL("main"), Path: "/v1/responses", Body: text, Headers: map[string]string{"x-test-id": name},
	})
	if r.Status == 200 && strings.Contains(string(r.Body), "response.incomplete") {
		r.Err = nil // this API's streams have no [DONE]
	}
	return r
}

// responseID finds the ID in the events of a response.
func responseID(events []byte) string {
	_, rest, _ := strings.Cut(string(events), `"id":"resp_`)
	id, _, _ := strings.Cut(rest, `"`)
	return "resp_" + id
}

// What is asked of a response itself finds the engine that keeps it, of six, though
// nothing but its ID says which one that is.
func TestResponsesAreFoundByID(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions, Edit: heedResponses})
	made := map[string]bool{}
	for i := range following {
		r := follow(t, s, fmt.Sprint("by-id-", i), "", i%2 == 0)
		if !r.OK() {
			t.Fatalf("%d: %v", i, &r)
		}
		made[responseID(r.Body)] = true
	}
	if hits, misses := hints(t, s); hits+misses != 0 {
		t.Errorf("%v hits and %v misses before anything was asked by its ID", hits, misses)
	}
	kinds := []struct{ method, behind, body string }{
		{"GET", "", ""},
		{"GET", "/input_items?limit=2", ""},
		{"POST", "/cancel", ""},
		{"POST", "/cancel", "{}"},
		{"DELETE", "", ""},
	}
	for id := range made {
		for _, k := range kinds {
			if got := byID(t, s, k.method, id+k.behind, k.body); got != 200 {
				t.Errorf("%s %s%s: %d, want 200", k.method, id, k.behind, got)
			}
		}
	}
	if hits, misses := hints(t, s); len(made) != following || hits != float64(following*len(kinds)) || misses != 0 {
		t.Errorf("of %d responses %v hits and %v misses, want %d and none", len(made), hits, misses, following*len(kinds))
	}
	for _, unknown := range []string{"resp_unknown", "compact"} {
		if got := byID(t, s, "GET", unknown, ""); got != 404 {
			t.Errorf("GET %s: %d, want 404", unknown, got)
		}
	}
	noTimeouts(t, s)
}

// byID asks something of a response and returns the status.
func byID(t *testing.T, s *stage.Stage, method, behind, body string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL("main")+"/v1/responses/"+behind, strings.NewReader(body))
	check(t, err)
	request.Header.Set("content-type", "application/json")
	request.Header.Set("x-session-id", "another")
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	check(t, response.Body.Close())
	return response.StatusCode
}

// hints are how often weir-extproc knew the response that was followed, and not.
func hints(t *testing.T, s *stage.Stage) (hits, misses float64) {
	t.Helper()
	text := page(t, s.AdminAddress("extproc-main"), "/metrics")
	of := func(hint string) float64 {
		_, rest, _ := strings.Cut(text, `weir_extproc_follows_total{hint="`+hint+`"} `)
		number, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseFloat(number, 64)
		check(t, err)
		return n
	}
	return of("hit"), of("miss")
}

package deploy

import (
	"fmt"
	"sync"
	"testing"

	"weir/deploy/stage"
	"weir/fleet"
)

const sessions = "../testdata/fleets/sessions.yaml"

// Ten turns of a conversation stay on one engine of six, named by a session header
// or only by how they begin. None of the engines has a queue, or it would turn
// conversations away.
func TestAConversationStaysOnItsEngine(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions, Edit: declared, EngineFlags: func(fleet.PoolID) []string {
		return []string{"--ttft", "50ms", "--ttft-full", "50ms"}
	}})
	client := stage.NewClient()
	var talks sync.WaitGroup
	for i := range 60 {
		name := fmt.Sprintf("talk-%d", i)
		headers := map[string]string{"x-test-id": name}
		if i%2 == 0 {
			headers["x-session-id"] = "session-" + name
		}
		talks.Go(func() {
			for turn := range 10 {
				body := stage.Turn("llama-3.3-70b", name, turn, i%2 == 1)
				if r := stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: body, Headers: headers}); !r.OK() {
					t.Errorf("%s, turn %d: %v", name, turn, &r)
				}
			}
		})
	}
	talks.Wait()
	engines := map[string]int{}
	groups := byTest(arrivals(t, s))
	for name, group := range groups {
		engine, err := engineOf(group)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(group) != 10 {
			t.Errorf("%s: %d turns arrived, want 10", name, len(group))
		}
		engines[string(engine)]++
	}
	if len(groups) != 60 || len(engines) < 4 {
		t.Errorf("%d conversations on %d engines: want 60, on most of six", len(groups), len(engines))
	}
	noTimeouts(t, s)
}

// A client cannot choose its engine, class or admission by sending our headers,
// weir-extproc alive or dead.
func TestClientsCannotSteer(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions, Edit: declared})
	client := stage.NewClient()
	for _, state := range []string{"alive", "dead"} {
		if state == "dead" {
			if err := s.Process("extproc-main").Kill(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 30 {
			name := fmt.Sprintf("%s-%d", state, i)
			for _, headers := range []map[string]string{{}, spoofed(s, i)} {
				headers["x-test-id"], headers["x-session-id"] = name, name
				call := stage.Call{URL: s.URL("main"), Body: stage.Turn("llama-3.3-70b", name, 0, false), Headers: headers}
				if r := stage.Do(t.Context(), client, call); !r.OK() {
					t.Errorf("%s: %v", name, &r)
				}
			}
		}
	}
	for name, group := range byTest(arrivals(t, s)) {
		if _, err := engineOf(group); err != nil || len(group) != 2 {
			t.Errorf("%s: %d requests, %v", name, len(group), err)
		}
	}
	noWeirHeaders(t, s)
}

// spoofed headers ask for another engine each time, in all the ways there are.
func spoofed(s *stage.Stage, i int) map[string]string {
	p := s.Fleet.Pools[i%2]
	engine := string(p.Engines[i%3])
	return map[string]string{
		"x-weir-pick": stage.Pick(engine), "x-weir-affinity": "another", "x-weir-admitted": "1", "X-Weir-Model": "another",
		"x-gateway-destination-endpoint": engine, "x-weir-next": engine,
	}
}

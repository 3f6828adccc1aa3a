package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"testing"

	"weir/deploy/stage"
	"weir/fleet"
)

// Two models named only in bodies, small and large, the model last: each request
// reaches engines of its model and no others, byte for byte, whether
// weir-extproc is alive, dead or frozen, and none fails.
func TestModelsNamedInBodiesOnly(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "../testdata/fleets/two-models.yaml", Edit: declared})
	for _, state := range []struct {
		name string
		make func(*stage.Process) error
	}{
		{"alive", func(*stage.Process) error { return nil }},
		{"frozen", (*stage.Process).Freeze},
		{"killed", (*stage.Process).Kill},
	} {
		t.Run(state.name, func(t *testing.T) {
			for _, fe := range s.Fleet.FrontEnds {
				if err := state.make(s.Process("extproc-" + string(fe.ID))); err != nil {
					t.Fatal(err)
				}
			}
			askForModels(t, s, state.name)
			if state.name == "alive" {
				noTimeouts(t, s)
			}
		})
	}
	noWeirHeaders(t, s)
}

// request is one of a test's, with what must be found in a journal.
type request struct {
	frontEnd    fleet.FrontEndID
	model, mark string
	body        []byte
}

func askForModels(t *testing.T, s *stage.Stage, state string) {
	requests := modelRequests(s, state)
	client := stage.NewClient()
	var clients sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, r := range requests {
		slots <- struct{}{}
		clients.Go(func() {
			defer func() { <-slots }()
			reply := stage.Do(t.Context(), client, stage.Call{URL: s.URL(r.frontEnd), Body: r.body, Headers: map[string]string{"x-test-id": r.mark}})
			if !reply.OK() {
				t.Errorf("%s, %d bytes: %v", r.mark, len(r.body), &reply)
			}
			if leak := reply.Leak(); leak != "" {
				t.Errorf("%s: the client was told %s", r.mark, leak)
			}
		})
	}
	clients.Wait()
	groups := byTest(arrivals(t, s))
	for _, r := range requests {
		if err := reached(s, groups[r.mark], r); err != nil {
			t.Errorf("%s, %d bytes: %v", r.mark, len(r.body), err)
		}
	}
}

func modelRequests(s *stage.Stage, state string) []request {
	var all []request
	for _, fe := range s.Fleet.FrontEnds {
		for _, model := range []string{"llama-3.3-70b", "qwen3-8b"} {
			for i := range 24 {
				padding := 200
				if i%6 == 0 {
					padding = 2 << 20
				}
				mark := fmt.Sprintf("%s-%s-%s-%d", state, fe.ID, model, i)
				all = append(all, request{fe.ID, model, mark, stage.Chat(model, mark, i%2 == 0, padding)})
			}
		}
	}
	return all
}

func reached(s *stage.Stage, group []stage.Arrival, r request) error {
	if len(group) == 0 {
		return errors.New("reached no engine")
	}
	sum := sha256.Sum256(r.body)
	for _, a := range group {
		if models := s.Fleet.Pool(a.Pool).Models; models[0] != r.model {
			return fmt.Errorf("reached pool %s, which serves %s", a.Pool, models[0])
		}
		if a.SHA256 != hex.EncodeToString(sum[:]) {
			return fmt.Errorf("reached pool %s with another body of %d bytes", a.Pool, a.Bytes)
		}
	}
	return nil
}

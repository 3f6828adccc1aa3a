package deploy

import (
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// The stage's network is real: a conversation of B is answered later from C than
// from home, by the round trips of the fleet file.
func TestDistancesAreReal(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: talk, Edit: declared, Distances: true})
	nearest := map[fleet.PoolID]time.Duration{}
	client := stage.NewClient()
	replies := map[string]stage.Reply{}
	for _, name := range names("distance", 24) {
		replies[name] = stage.Do(t.Context(), client, chatCall(s.URL("B"), name))
	}
	for name, group := range byTest(arrivals(t, s)) {
		r := replies[name]
		if !r.OK() {
			t.Errorf("%s: %v", name, &r)
		}
		if best, ok := nearest[group[0].Pool]; !ok || r.TTFT < best {
			nearest[group[0].Pool] = r.TTFT
		}
	}
	if near, far := nearest["B"]+50*time.Millisecond, nearest["C"]; far < near {
		t.Errorf("the quickest answers took %v from B and %v from C, 58 ms farther", nearest["B"], far)
	}
}

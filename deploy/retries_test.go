package deploy

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/deploy/stage"
)

// Clients that try twice again are counted once: demand is their first attempts.
func TestRetriesAreNotDemand(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet, Edit: func(text string) string {
		return strings.Replace(text, "  demand: declared\n", "", 1)
	}})
	const rps, lasting = 20, 14 * time.Second
	client := stage.NewClient()
	var clients sync.WaitGroup
	next := time.NewTicker(time.Second / rps)
	defer next.Stop()
	began := time.Now()
	for i := 0; time.Since(began) < lasting; i++ {
		<-next.C
		clients.Go(func() {
			for attempt := range 3 {
				call := chatCall(s.URL("east"), fmt.Sprintf("%d-%d", i, attempt))
				call.Headers["x-stainless-retry-count"] = strconv.Itoa(attempt)
				if r := stage.Do(t.Context(), client, call); !r.OK() {
					t.Errorf("attempt %d of request %d: %v", attempt, i, &r)
				}
			}
		})
	}
	for _, d := range beliefs(t, s).Demand {
		if d.FrontEnd == "east" && (d.Rps < rps*0.98 || d.Rps > rps*1.02) {
			t.Errorf("demand is believed to be %.2f RPS, want %d within 2 %%: the first attempts", d.Rps, rps)
		}
	}
	clients.Wait()
	if n := len(arrivals(t, s)); n < 2*rps*int(lasting.Seconds()) {
		t.Errorf("%d attempts arrived: the retries were not sent", n)
	}
}

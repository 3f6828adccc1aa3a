package deploy

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// Clients that try twice again are counted once: demand is their first attempts.
func TestRetriesAreNotDemand(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet, Edit: func(text string) string {
		return strings.Replace(text, "  demand: declared\n", "", 1)
	}})
	const rps = 20
	sending, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	clients.Go(func() { sendThrice(t, s, sending, rps) })
	eventually(t, "demand is believed to be the first attempts, within 2 %", 40*time.Second, func() bool {
		for _, d := range beliefs(t, s).Demand {
			if d.FrontEnd == "east" {
				return d.Source == fleet.SourceArrivals && d.DoubtRps < 0.1 && d.Rps > rps*0.98 && d.Rps < rps*1.02
			}
		}
		return false
	})
	stop()
	clients.Wait()
	retries := 0
	for _, a := range arrivals(t, s) {
		if !strings.HasSuffix(a.Headers["x-test-id"], "-0") {
			retries++
		}
	}
	if retries < rps {
		t.Errorf("%d retries arrived: the test shows nothing", retries)
	}
}

// sendThrice sends so many requests a second, each of which is tried twice again at
// once, as the SDKs mark it.
func sendThrice(t *testing.T, s *stage.Stage, ctx context.Context, rps int) {
	client := stage.NewClient()
	var clients sync.WaitGroup
	defer clients.Wait()
	next := time.NewTicker(time.Second / time.Duration(rps))
	defer next.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
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
}

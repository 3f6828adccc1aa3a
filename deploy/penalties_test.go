package deploy

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

const (
	// penalisedWithin is how soon after its first bad request an outlier has less than a
	// fifth of its part, recoveredWithin how soon after its first good one more than nine
	// tenths.
	penalisedWithin = 3 * time.Second
	recoveredWithin = 30 * time.Second
)

// Of four engines one becomes ten times slower and one fails every request. Both lose
// nearly all of their traffic within seconds, whether engines send their headers at once
// or hold them; the others lose none of theirs; and both have it back when they are well.
func TestOutliersArePenalisedAndRecover(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/penalties.yaml", EngineFlags: func(p fleet.PoolID) []string {
		if p == "held" {
			return []string{"--hold-headers"}
		}
		return nil
	}})
	sending, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for seed, pool := range []string{"early", "held"} {
		clients.Go(func() { sendChats(s, sending, pool, uint64(seed)) })
	}
	defer clients.Wait()
	defer stop()
	faults := func(slow, fails string) (from, to time.Time) {
		from = time.Now()
		for _, p := range s.Fleet.Pools {
			setFaults(t, p.Engines[0], slow)
			setFaults(t, p.Engines[1], fails)
		}
		return from, time.Now()
	}
	pass(t, 5*time.Second) // for what is usual to be known
	_, bad := faults(`{"slow":10}`, `{"errorRate":1}`)
	pass(t, penalisedWithin+12*time.Second)
	better, well := faults(`{}`, `{}`)
	pass(t, recoveredWithin+20*time.Second)
	end := time.Now()
	all := arrivals(t, s)
	for _, p := range s.Fleet.Pools {
		penalised := allAsked(t, all, p.Engines[:2], bad).Add(penalisedWithin)
		recovered := allAsked(t, all, p.Engines[:2], well).Add(recoveredWithin)
		if penalised.Add(5*time.Second).After(better) || recovered.Add(5*time.Second).After(end) {
			t.Fatalf("pool %s: the bad engines had requests only %v after they went bad, and %v after they were well", p.ID, penalised.Sub(bad)-penalisedWithin, recovered.Sub(well)-recoveredWithin)
		}
		for i, e := range p.Engines {
			during, n := partOf(all, p.ID, e, penalised, better)
			after, m := partOf(all, p.ID, e, recovered, end)
			noise := 3 * math.Sqrt(4/m) // of the part, were all alike
			t.Logf("pool %s, engine %d: %.3f of its part of %v while two are bad, %.3f of %v when they are well", p.ID, i, during, n, after, m)
			if i < 2 && during >= 0.2 {
				t.Errorf("pool %s: a bad engine has %.3f of its part", p.ID, during)
			}
			if i >= 2 && during < 1.5 {
				t.Errorf("pool %s: a good engine has %.3f of its part, want the bad ones' too", p.ID, during)
			}
			if after < 0.9-noise {
				t.Errorf("pool %s: engine %d has %.3f of its part again, want 0.9", p.ID, i, after)
			}
		}
	}
}

// sendChats sends short streams of a model, each of a conversation of its own.
func sendChats(s *stage.Stage, ctx context.Context, pool string, seed uint64) {
	client := stage.NewClient()
	stage.Arrive(ctx, 40, seed, func(i int) {
		text := fmt.Sprintf(`{"model":"model-%s","messages":[{"role":"user","content":"%d"}],"max_tokens":8,"stream":true}`, pool, i)
		stage.Do(ctx, client, stage.Call{URL: s.URL("main"), Body: []byte(text)}) // what engines that fail make of it is not the question
	})
}

// pass waits.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal("the test ended")
	case <-time.After(d):
	}
}

// allAsked is when each of some engines has had a request since a time, by the engines'
// own word: nobody can know of them what they are now before that.
func allAsked(t *testing.T, all []stage.Arrival, engines []fleet.EngineID, since time.Time) (last time.Time) {
	t.Helper()
	for _, e := range engines {
		i := slices.IndexFunc(all, func(a stage.Arrival) bool { return a.Engine == e && a.Time.After(since) })
		if i < 0 {
			t.Fatalf("engine %s had no request any more", e)
		}
		if all[i].Time.After(last) {
			last = all[i].Time
		}
	}
	return last
}

// partOf is what an engine got of its pool's requests in some time, in parts of what each
// has if all are alike; n is how many requests those were.
func partOf(all []stage.Arrival, pool fleet.PoolID, e fleet.EngineID, from, to time.Time) (part, n float64) {
	own, engines := 0.0, 4.0
	for _, a := range all {
		if a.Pool == pool && a.Time.After(from) && a.Time.Before(to) {
			n++
			if a.Engine == e {
				own++
			}
		}
	}
	return own / n * engines, n
}

package deploy

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// steadyRps is what a steady load asks of each front-end.
const steadyRps = 30

// steady is a load that goes on while something happens: short conversations at
// every front-end, half of them streams.
type steady struct {
	t      *testing.T
	stage  *stage.Stage
	prefix string
	stop   context.CancelFunc
	under  sync.WaitGroup
	sent   atomic.Int64

	mu     sync.Mutex // guards failed
	failed map[string]stage.Reply
}

// startSteady begins the load and returns when it flows.
func startSteady(t *testing.T, s *stage.Stage, name string) *steady {
	t.Helper()
	return startLoad(t, s, name, steadyRps)
}

// startLoad begins a load of so many requests a second at each front-end.
func startLoad(t *testing.T, s *stage.Stage, name string, rps float64) *steady {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &steady{t: t, stage: s, prefix: name, stop: stop, failed: map[string]stage.Reply{}}
	for i, fe := range s.Fleet.FrontEnds {
		client := stage.NewClient()
		l.under.Go(func() {
			stage.Arrive(ctx, rps, uint64(i), func(n int) { l.send(fe.ID, client, n) })
		})
	}
	l.flow(30)
	return l
}

func (l *steady) send(id fleet.FrontEndID, client *http.Client, n int) {
	name := fmt.Sprintf("%s-%s-%d", l.prefix, id, n)
	l.sent.Add(1)
	r := stage.Do(context.WithoutCancel(l.t.Context()), client, stage.Call{
		URL: l.stage.URL(id), Body: stage.Chat("llama-3.3-70b", name, n%2 == 0, 0), Headers: map[string]string{"x-test-id": name},
	})
	if !r.OK() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed[name] = r
	}
}

// flow lets so many more requests begin.
func (l *steady) flow(more int64) {
	l.t.Helper()
	from := l.sent.Load()
	eventually(l.t, fmt.Sprintf("%d more requests are sent", more), 30*time.Second, func() bool { return l.sent.Load() >= from+more })
}

// end stops the load and returns what failed.
func (l *steady) end() map[string]stage.Reply {
	l.stop()
	l.under.Wait()
	return l.failed
}

// endWhole ends a load of which nothing may have failed.
func (l *steady) endWhole() {
	l.t.Helper()
	failed := l.end()
	shown := 0
	for name, r := range failed {
		if shown++; shown <= 5 {
			l.t.Errorf("%s: %v", name, &r)
		}
	}
	l.t.Logf("%d of %d requests failed", len(failed), l.sent.Load())
}

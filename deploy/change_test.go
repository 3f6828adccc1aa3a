package deploy

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// A change of weights reaches live traffic within two ticks, and no stream breaks
// over it: not those under way, not those that begin meanwhile.
func TestAChangeOfWeightsReachesLiveTraffic(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: talk, Edit: declared, EngineFlags: func(fleet.PoolID) []string {
		return []string{"--tbt", "400ms"}
	}})
	c := newCaller(t, s, "B")
	c.send(200)
	if n := c.at(t, "C"); n == 0 {
		t.Fatal("before the change pool C got none of B's conversations")
	}
	streams := newCaller(t, s, "B")
	streams.begin(40, 20) // 20 tokens at 400 ms outlast the change
	halve(t, s)
	changed := time.Now()
	eventually(t, "B keeps its conversations at home", 2*s.Fleet.Options.Tick, func() bool {
		return shares(t, s)[fleet.Link{FrontEnd: "B", Pool: "C"}] == 0
	})
	t.Logf("served %v after the file was changed; two ticks are %v", time.Since(changed).Round(time.Millisecond), 2*s.Fleet.Options.Tick)
	after := newCaller(t, s, "B")
	after.send(200)
	if n := after.at(t, "C"); n != 0 {
		t.Errorf("after the change pool C got %d of B's conversations, want none", n)
	}
	streams.wait()
	noTimeouts(t, s)
}

// halve lowers B's declared demand to what its own pool can serve.
func halve(t *testing.T, s *stage.Stage) {
	t.Helper()
	rewrite(t, s, func(text string) string { return strings.Replace(text, "chat: 120 rps", "chat: 60 rps", 1) })
}

func breakFile(t *testing.T, s *stage.Stage) {
	t.Helper()
	rewrite(t, s, func(text string) string { return text + "\nnonsense: true\n" })
}

// rewrite changes the fleet file under a running control plane and has it read
// again.
func rewrite(t *testing.T, s *stage.Stage, edit func(string) string) {
	t.Helper()
	check(t, os.WriteFile(s.FleetFile, []byte(edit(read(t, s))), 0o644))
	check(t, s.Process("weir").Hangup())
}

func read(t *testing.T, s *stage.Stage) string {
	t.Helper()
	text, err := os.ReadFile(s.FleetFile)
	check(t, err)
	return string(text)
}

// caller sends conversations of its own to one front-end; each must be answered
// whole.
type caller struct {
	t        *testing.T
	stage    *stage.Stage
	frontEnd fleet.FrontEndID
	prefix   string
	under    sync.WaitGroup
}

func newCaller(t *testing.T, s *stage.Stage, id fleet.FrontEndID) *caller {
	return &caller{t: t, stage: s, frontEnd: id, prefix: fmt.Sprintf("%d", time.Now().UnixNano())}
}

// begin starts so many streams of so many tokens; wait waits for their ends.
func (c *caller) begin(n, tokens int) {
	client := stage.NewClient()
	for i := range n {
		name := fmt.Sprintf("%s-%d", c.prefix, i)
		call := chatCall(c.stage.URL(c.frontEnd), name)
		call.Body = []byte(strings.Replace(string(call.Body), `"max_tokens":4`, fmt.Sprintf(`"max_tokens":%d`, tokens), 1))
		c.under.Go(func() {
			if r := stage.Do(c.t.Context(), client, call); !r.OK() {
				c.t.Errorf("conversation %s: %v", name, &r)
			}
		})
	}
}

func (c *caller) wait() { c.under.Wait() }

// send starts so many short streams and waits for them.
func (c *caller) send(n int) {
	c.begin(n, 1)
	c.wait()
}

// at counts the caller's conversations in the journals of a pool.
func (c *caller) at(t *testing.T, pool fleet.PoolID) int {
	n := 0
	for _, a := range arrivals(t, c.stage) {
		if strings.HasPrefix(a.Headers["x-test-id"], c.prefix+"-") && a.Pool == pool {
			n++
		}
	}
	return n
}

// An engine dies with requests in flight. Where engines hold their headers until
// the first token, all of its requests are tried elsewhere and none fails; where
// they do not, only the streams that had begun there end.
func TestAnEngineDiesUnderWay(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]bool{"headers held": true, "headers at once": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, stage.Options{FleetFile: "testdata/four.yaml", EngineFlags: func(fleet.PoolID) []string {
				return []string{fmt.Sprintf("--hold-headers=%v", hold)}
			}})
			const requests = 48
			replies := make([]stage.Reply, requests)
			client := stage.NewClient()
			var clients sync.WaitGroup
			for i := range requests {
				clients.Go(func() {
					replies[i] = stage.Do(t.Context(), client, chatCall(s.URL("main"), fmt.Sprint(i)))
				})
			}
			eventually(t, "all requests are in flight", 5*time.Second, func() bool { return len(arrivals(t, s)) == requests })
			victim := s.Fleet.Pools[0].Engines[0]
			if err := s.Process("engine-" + string(victim)).Kill(); err != nil {
				t.Fatal(err)
			}
			clients.Wait()
			judgeDeath(t, replies, atEngine(arrivals(t, s), victim), hold)
		})
	}
}

func atEngine(all []stage.Arrival, e fleet.EngineID) map[string]bool {
	there := map[string]bool{}
	for _, a := range all {
		if a.Engine == e {
			there[a.Headers["x-test-id"]] = true
		}
	}
	return there
}

func judgeDeath(t *testing.T, replies []stage.Reply, there map[string]bool, hold bool) {
	t.Helper()
	if len(there) == 0 {
		t.Fatal("the engine that died had nothing in flight: the test shows nothing")
	}
	failed := 0
	for i := range replies {
		r := &replies[i]
		begun := r.Status == 200 && r.Err != nil
		if leak := r.Leak(); leak != "" {
			t.Errorf("request %d: the client was told %s", i, leak)
		}
		if r.OK() {
			continue
		}
		failed++
		if hold || !begun || !there[fmt.Sprint(i)] {
			t.Errorf("request %d (at the dead engine: %v): %v", i, there[fmt.Sprint(i)], r)
		}
	}
	t.Logf("%d of %d requests were on the engine that died; %d failed", len(there), len(replies), failed)
}

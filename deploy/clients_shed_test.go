package deploy

import (
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
)

// A client that is refused for want of capacity comes back by itself, no sooner
// than it was told to, and is served if there is room by then; weir-extproc alive
// or dead.
func TestClientsComeBackAfterShedding(t *testing.T) {
	t.Parallel()
	const few, many = "chat: 20 rps", "chat: 9000000 rps"
	s := start(t, stage.Options{FleetFile: clientFleet, Edit: func(text string) string { return strings.Replace(text, few, many, 1) }})
	// Weir-extproc knows how much more there is than can be served, Envoy does not.
	told := map[string][2]float64{"alive": {15, 29}, "dead": {5, 9}}
	clients := startClients(t, s)
	for _, c := range clients {
		c.await(t)
	}
	for _, state := range []string{"alive", "dead"} {
		if state == "dead" {
			check(t, s.Process("extproc-main").Kill())
			check(t, s.Await(t.Context(), "main", false))
			rewrite(t, s, func(text string) string { return strings.Replace(text, few, many, 1) })
		}
		t.Run(state, func(t *testing.T) {
			eventually(t, "requests are refused", 10*time.Second, func() bool {
				r := stage.Do(t.Context(), stage.NewClient(), chatCall(s.URL("main"), state))
				return r.Status == 429
			})
			before := refused(t, s)
			for _, c := range clients {
				c.tell(t, order{Do: "chat", Mark: c.name + "-" + state, Model: chatModel, Tokens: 3, Retries: 1})
			}
			eventually(t, "all are refused", 4*time.Second, func() bool { return refused(t, s) == before+len(clients) })
			rewrite(t, s, func(text string) string { return strings.Replace(text, many, few, 1) })
			for _, c := range clients {
				cameBack(t, s, c, state, told[state])
			}
		})
	}
}

// refused counts the requests that Envoy answered by a 4xx.
func refused(t *testing.T, s *stage.Stage) int {
	t.Helper()
	n, err := s.Stat(t.Context(), "main", "http.weir.downstream_rq_4xx")
	check(t, err)
	return n
}

// cameBack holds that a client got its answer at its second attempt, after the time
// that it was told.
func cameBack(t *testing.T, s *stage.Stage, c *client, state string, told [2]float64) {
	t.Helper()
	got := c.hear(t)
	if got.Error != "" || got.Output != 3 {
		t.Errorf("%s: %s %d %s, %d tokens; want an answer of 3", c.name, got.Error, got.Status, got.Message, got.Output)
	}
	if len(got.Sent) != 2 || got.Sent[0].Retry > 0 || got.Sent[1].Retry != 1 {
		t.Fatalf("%s: sent %+v, want a request and one retry that says so", c.name, got.Sent)
	}
	if waited := got.Sent[1].At - got.Sent[0].At; waited < told[0]-0.1 || waited > told[1]+2 {
		t.Errorf("%s: came back after %.1f s, want the %v to %v s that it was told", c.name, waited, told[0], told[1])
	}
	if n := len(byTest(arrivals(t, s))[c.name+"-"+state]); n != 1 {
		t.Errorf("%s: %d requests reached an engine, want the retry alone", c.name, n)
	}
}

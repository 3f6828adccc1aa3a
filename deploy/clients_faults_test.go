package deploy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// refusedOnce has the engine of a conversation refuse its second turn. Envoy asks
// another engine, and the client never learns of it.
func (v visit) refusedOnce() {
	v.t.Helper()
	o := order{
		Do: "talk", Mark: v.mark("refused"), Model: chatModel, Turns: 1,
		Headers: map[string]string{"x-session-id": v.mark("session")},
	}
	turn := func() []stage.Arrival {
		if got := v.do(v.t, o); got.Error != "" || len(got.Sent) != 1 {
			v.t.Errorf("%s %d %s, asked %d times, want an answer at once", got.Error, got.Status, got.Message, len(got.Sent))
		}
		return byTest(arrivals(v.t, v.stage))[o.Mark]
	}
	home, err := engineOf(turn())
	check(v.t, err)
	setFaults(v.t, home, `{"errorRate": 1, "errorStatus": 503}`)
	defer setFaults(v.t, home, `{}`)
	group := turn()
	if len(group) != 3 || group[1].Engine != home || group[2].Engine == home {
		v.t.Errorf("turns went to %v, want them at home, at home again and then elsewhere", engines(group))
	}
}

func engines(group []stage.Arrival) (all []fleet.EngineID) {
	for _, a := range group {
		all = append(all, a.Engine)
	}
	return all
}

// setFaults makes a mock engine sick, or well again.
func setFaults(t *testing.T, e fleet.EngineID, faults string) {
	t.Helper()
	check(t, putFaults(e, faults))
}

func putFaults(e fleet.EngineID, faults string) error {
	request, err := http.NewRequest(http.MethodPut, "http://"+string(e)+"/faults", strings.NewReader(faults))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("PUT /faults: %s", response.Status)
	}
	return nil
}

// An engine that answers 500, which may be the request's fault, is not asked in
// vain for long: clients that come back get their answer elsewhere.
func TestClientsLeaveABrokenEngine(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: clientFleet})
	c := startClient(t, openAIPython, s.URL("main"))
	c.await(t)
	o := order{Do: "chat", Mark: "broken", Model: chatModel, Tokens: 3}
	if got := c.do(t, o); got.Error != "" {
		t.Fatal(got.Error, got.Message)
	}
	home, err := engineOf(byTest(arrivals(t, s))[o.Mark])
	check(t, err)
	setFaults(t, home, `{"errorRate": 1}`)
	failed := 0
	eventually(t, "another engine answers", 5*time.Second, func() bool {
		got := c.do(t, o)
		if got.Error == "" {
			return true
		}
		failed++
		if got.Error != "InternalServerError" || !strings.Contains(got.Message, "an injected fault") {
			t.Errorf("%s %d %s, want the engine's own error", got.Error, got.Status, got.Message)
		}
		return false
	})
	if failed > 10 {
		t.Errorf("%d requests failed before the engine was left, want ten at most", failed)
	}
}

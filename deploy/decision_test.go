package deploy

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/deploy/stage"
)

// A client is told the class, source, engine and plan of its request, where the fleet
// file has it told and weir-extproc decided; and the truth.
func TestClientsAreToldOfDecisions(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions, Edit: func(text string) string { return declared(text) + "  decisionHeader: true\n" }})
	form := regexp.MustCompile(`^class="chat", key="(header:x-session-id|fingerprint)", engine="([^"]+)", plan="([0-9a-f]{16})"(?:, rank=[1-4])?, penalty=1\.0$`)
	client := stage.NewClient()
	plans, told := map[string]bool{}, map[string]string{}
	for i := range 12 {
		name := fmt.Sprint("told-", i)
		headers := map[string]string{"x-test-id": name, "x-weir-decision": "forged"}
		source := "fingerprint"
		if i%2 == 0 {
			headers["x-session-id"], source = name, "header:x-session-id"
		}
		r := stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: stage.Turn("llama-3.3-70b", name, 0, i%3 == 0), Headers: headers})
		parts := form.FindStringSubmatch(r.Header.Get("x-weir-decision"))
		if !r.OK() || parts == nil || parts[1] != source || len(r.Header.Values("x-weir-decision")) != 1 {
			t.Fatalf("%s: %v, told %q; want %s", name, &r, r.Header.Values("x-weir-decision"), source)
		}
		told[name], plans[parts[3]] = parts[2], true
	}
	for name, group := range byTest(arrivals(t, s)) {
		if engine, err := engineOf(group); err != nil || string(engine) != told[name] {
			t.Errorf("%s: reached %s, told %s: %v", name, engine, told[name], err)
		}
	}
	shown, err := exec.CommandContext(t.Context(), filepath.Join(bin, "weir"), "snapshot", "--front-end", "main", "--xds", s.XDS).Output()
	check(t, err)
	for plan := range plans {
		if len(plans) != 1 || !strings.Contains(string(shown), ", plan "+plan+"\n") {
			t.Errorf("told the plan %s, one of %d; weir snapshot shows\n%s", plan, len(plans), shown)
		}
	}
	noWeirHeaders(t, s)

	check(t, s.Process("extproc-main").Kill())
	check(t, s.Await(t.Context(), "main", false))
	r := stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: stage.Turn("llama-3.3-70b", "dead", 0, false)})
	if told := r.Header.Values("x-weir-decision"); !r.OK() || len(told) > 0 {
		t.Errorf("with weir-extproc dead: %v, told %q", &r, told)
	}
}

// A client whose request weir-extproc refuses is told how far it was decided, and no
// engine. What Envoy refuses by itself was not decided.
func TestClientsAreToldOfRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions, Edit: func(text string) string {
		return strings.Replace(declared(text), "chat: 20 rps", "chat: 60 rps", 1) + "  decisionHeader: true\n" // twice what there is
	}})
	client := stage.NewClient()
	const plan = `plan="[0-9a-f]{16}", `
	shed := 0
	for i := range 40 {
		name := fmt.Sprint("refused-", i)
		r := stage.Do(t.Context(), client, stage.Call{
			URL: s.URL("main"), Body: stage.Turn("llama-3.3-70b", name, 0, false), Headers: map[string]string{"x-session-id": name},
		})
		if r.Status == 429 {
			shed++
			toldLike(t, name, &r, `class="chat", key="header:x-session-id", `+plan+`reason="shed"`)
		}
	}
	if shed == 0 {
		t.Error("no request was shed: the test shows nothing")
	}
	unknown := stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: stage.Turn("other", "x", 0, false)})
	toldLike(t, "another model", &unknown, plan+`reason="unknown_model"`)
	unread := stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Body: []byte(`{"model":`)})
	toldLike(t, "a broken body", &unread, plan+`reason="unreadable"`)
	lost, err := client.Get(s.URL("main") + "/nowhere")
	check(t, err)
	check(t, lost.Body.Close())
	toldLike(t, "a path without a class", &stage.Reply{Status: lost.StatusCode, Header: lost.Header}, "")
}

// toldLike holds that an answer tells of its decision what matches a pattern; "": it
// does not tell.
func toldLike(t *testing.T, what string, r *stage.Reply, pattern string) {
	t.Helper()
	told := r.Header.Values("x-weir-decision")
	if pattern == "" && len(told) == 0 {
		return
	}
	if pattern == "" || len(told) != 1 || !regexp.MustCompile("^"+pattern+"$").MatchString(told[0]) {
		t.Errorf("%s: %v, told %q, want %q", what, r, told, pattern)
	}
}

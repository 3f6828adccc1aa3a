package admin

import (
	"strings"
	"testing"
	"time"

	"weir/fleet"
)

// One line names a pool whose engines' pages are not believed, and one line all of
// them; an engine that is known to be down needs none.
func TestStaleSignalsRaiseOneAlarm(t *testing.T) {
	f := &fleet.Fleet{Pools: []fleet.Pool{
		{ID: "p", Engines: []fleet.EngineID{"p1", "p2"}},
		{ID: "q", Engines: []fleet.EngineID{"q1"}},
	}}
	bad := fleet.EngineSignals{Dialect: "vllm", Why: "its page stands still"}
	good := fleet.EngineSignals{Dialect: "vllm"}
	state := func(p1, p2, q1 fleet.EngineSignals, q fleet.Readiness) *fleet.State {
		s := fleet.Declared(f)
		s.Pools = map[fleet.PoolID]fleet.PoolState{
			"p": {Signals: fleet.PoolSignals{Engines: map[fleet.EngineID]fleet.EngineSignals{"p1": p1, "p2": p2}}},
			"q": {Engines: map[fleet.EngineID]fleet.Readiness{"q1": q}, Signals: fleet.PoolSignals{Engines: map[fleet.EngineID]fleet.EngineSignals{"q1": q1}}},
		}
		return s
	}
	for name, c := range map[string]struct {
		state *fleet.State
		want  string // empty: no line
	}{
		"all believed":     {state(good, good, good, fleet.Ready), ""},
		"one of a pool":    {state(bad, good, good, fleet.Ready), `pool "p": the metrics of 1 of 2 engines are not believed: its page stands still`},
		"all of the fleet": {state(bad, bad, bad, fleet.Ready), "the metrics of all 3 engines are not believed"},
		"one that is down": {state(good, good, bad, fleet.Unready), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var lines list
			staleSignals(c.state, &lines)
			if got := strings.Join(lines, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) || len(lines) > 1 {
				t.Errorf("alarms %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhatIsNotKeptAndWhatIsShared(t *testing.T) {
	long := noon.Add(-time.Minute)
	clients := []fleet.Client{
		{FrontEnd: "eu", Known: true, Node: "eu-1", Role: fleet.RoleEnvoy, Connected: long},
		{FrontEnd: "eu", Known: true, Node: "eu-1", Role: fleet.RoleEnvoy, Connected: long},
		{FrontEnd: "eu", Known: true, Node: "eu-1", Role: fleet.RoleExtProc, Connected: long},
		{FrontEnd: "us", Known: true, Node: "us-1", Role: fleet.RoleEnvoy, Connected: long},
		{FrontEnd: "us", Known: true, Node: "us-1", Role: fleet.RoleEnvoy, Connected: noon}, // reconnects
	}
	s := newStatus(noon, testRound(), clients, "", "the disk is full")
	text := strings.Join(s.Attention, "\n")
	for _, want := range []string{"plans are not kept, a restart begins with an older one: the disk is full", `node id "eu-1" is used by several Envoys`} {
		if !strings.Contains(text, want) {
			t.Errorf("attention lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "us-1\" is used") {
		t.Error("a node id of one client is called shared")
	}
}

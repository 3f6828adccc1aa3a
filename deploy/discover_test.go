package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

var listedEngines = regexp.MustCompile(`engines: \[(.*)\]`)

// fromFile has the nth pool of a fleet file take its engines from a file, and returns
// where that is.
func fromFile(t *testing.T, text string, n int) (edited, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "engines")
	list := listedEngines.FindAllStringSubmatch(text, -1)[n]
	listEngines(t, path, strings.Split(strings.NewReplacer(`"`, "", " ", "").Replace(list[1]), ",")...)
	return strings.Replace(text, list[0], "engines: {file: "+path+", every: 100ms}", 1), path
}

// listEngines replaces a file of engines in one step.
func listEngines(t *testing.T, path string, engines ...string) {
	t.Helper()
	check(t, os.WriteFile(path+".new", []byte(strings.Join(engines, "\n")+"\n"), 0o644))
	check(t, os.Rename(path+".new", path))
}

// An engine leaves and comes back by a list of engines, under load: it gets nothing more
// once that is known, nothing before it is ready, and no request fails over it.
func TestEnginesComeAndLeaveByAListUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		probeInterval = time.Second
		loading       = 3 * time.Second
	)
	var list string
	s := start(t, stage.Options{FleetFile: steadyFleet, Edit: func(text string) string {
		text, list = fromFile(t, text, 0)
		return strings.Replace(text, "\noptions:\n", "\noptions:\n  tick: 200ms\n", 1)
	}})
	engines := slices.Clone(s.Fleet.Pool("east").Engines)
	victim := engines[0]
	l := startSteady(t, s, "list")
	listEngines(t, list, texts(engines[1:])...)
	left := time.Now()
	l.flow(60)
	eventually(t, "the engine is gone", 20*time.Second, func() bool { return health(s, "east", victim) == "not served" })
	t.Logf("gone after %v", time.Since(left).Round(time.Millisecond))
	check(t, s.Process("engine-"+string(victim)).Stop())
	check(t, s.Process("engine-"+string(victim)).Start("--load-time", loading.String()))
	back := time.Now()
	listEngines(t, list, texts(engines)...)
	eventually(t, "the engine is ready", 20*time.Second, func() bool { return health(s, "east", victim) == "ready" })
	l.flow(300)
	l.endWhole()
	before, last, early, after := 0, left, 0, 0
	for _, a := range arrivals(t, s) {
		switch {
		case a.Engine != victim:
		case a.Time.Before(left):
			before++
		case a.Time.Before(back):
			last = a.Time
		case a.Time.Before(back.Add(loading)):
			early++
		default:
			after++
		}
	}
	t.Logf("the engine got %d requests before it left, the last %v after that, and %d when it was back", before, last.Sub(left).Round(time.Millisecond), after)
	if last.Sub(left) > probeInterval {
		t.Errorf("the engine got a request %v after it had left", last.Sub(left))
	}
	if early > 0 {
		t.Errorf("the engine got %d requests while it was loading", early)
	}
	if before == 0 || after == 0 {
		t.Error("the engine got nothing before it left, or nothing when it was back: the test shows nothing")
	}
}

func texts(engines []fleet.EngineID) []string {
	out := make([]string, len(engines))
	for i, e := range engines {
		out[i] = string(e)
	}
	return out
}

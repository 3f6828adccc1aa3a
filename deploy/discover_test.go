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

// takeList takes the list of engines of the nth pool that has one out of a fleet file,
// and puts a source in its place.
func takeList(text string, n int, source string) (edited string, engines []fleet.EngineID) {
	list := listedEngines.FindAllStringSubmatch(text, -1)[n]
	for e := range strings.SplitSeq(strings.NewReplacer(`"`, "", " ", "").Replace(list[1]), ",") {
		engines = append(engines, fleet.EngineID(e))
	}
	return strings.Replace(text, list[0], "engines: "+source, 1), engines
}

// fromFile has the nth pool of a fleet file take its engines from a file.
func fromFile(t *testing.T, text string, n int) (edited, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "engines")
	text, engines := takeList(text, n, "{file: "+path+", every: 100ms}")
	listEngines(t, path, engines)
	return text, path
}

// listEngines replaces a file of engines in one step.
func listEngines(t *testing.T, path string, engines []fleet.EngineID) {
	t.Helper()
	check(t, os.WriteFile(path+".new", []byte(strings.Join(texts(engines), "\n")+"\n"), 0o644))
	check(t, os.Rename(path+".new", path))
}

// probeInterval is how often engines are probed.
const probeInterval = time.Second

// absence is a time in which an engine is to get nothing.
type absence struct {
	engine      fleet.EngineID
	from, until time.Time
	why         string
}

// judge holds the engines' own journals against the times in which they were to get
// nothing. Those that leave may get something for one probe interval more.
func judge(t *testing.T, s *stage.Stage, absences []absence) {
	t.Helper()
	all := arrivals(t, s)
	last := time.Duration(0) // after an engine left
	for _, a := range absences {
		before, after := 0, 0
		for _, got := range all {
			switch {
			case got.Engine != a.engine:
			case got.Time.Before(a.from):
				before++
			case !got.Time.Before(a.until):
				after++
			case a.why != leftWhy:
				t.Errorf("engine %s got a request %v after it %s", a.engine, got.Time.Sub(a.from), a.why)
			default:
				last = max(last, got.Time.Sub(a.from))
				if got.Time.Sub(a.from) > probeInterval {
					t.Errorf("engine %s got a request %v after it %s", a.engine, got.Time.Sub(a.from), a.why)
				}
			}
		}
		if a.why == leftWhy && (before == 0 || after == 0) {
			t.Errorf("engine %s got %d requests before it left and %d when it was back: the test shows nothing", a.engine, before, after)
		}
	}
	t.Logf("%d requests at engines, %d times that one was to get nothing; the last request came %v after its engine had left",
		len(all), len(absences), last.Round(time.Millisecond))
}

const (
	leftWhy    = "had left"
	loadingWhy = "was started, while it was loading"
	unreadyWhy = "was told to be unready"
)

// Engines of two pools leave and come back in turn, by a list and by a name, under load:
// each gets nothing a probe interval after it left, nothing before it is ready, and no
// request fails over it.
func TestEnginesComeAndLeaveUnderLoad(t *testing.T) {
	t.Parallel()
	const loading = 3 * time.Second
	list, names := filepath.Join(t.TempDir(), "engines"), startNameServer(t)
	found := map[fleet.PoolID][]fleet.EngineID{}
	s := start(t, stage.Options{FleetFile: steadyFleet, Found: found, Edit: func(text string) string {
		text, found["east"] = takeList(text, 0, "{file: "+list+"}")
		text, found["west"] = takeList(text, 0, "{srv: "+srvName+", resolver: "+names.address+", every: 500ms}")
		listEngines(t, list, found["east"])
		names.tell(found["west"])
		return text
	}})
	l := startSteady(t, s, "churn")
	l.flow(60)
	var absences []absence
	for i := range found["east"] {
		var gone []absence
		for _, id := range []fleet.PoolID{"east", "west"} {
			gone = append(gone, absence{engine: found[id][i], from: time.Now(), why: leftWhy})
		}
		listEngines(t, list, without(found["east"], gone[0].engine))
		names.tell(without(found["west"], gone[1].engine))
		l.flow(150)
		for j := range gone {
			gone[j].until = time.Now()
		}
		absences = append(absences, gone...)
		listEngines(t, list, found["east"])
		names.tell(found["west"])
		l.flow(120)
	}

	victim := found["east"][0]
	listEngines(t, list, without(found["east"], victim))
	out := absence{engine: victim, from: time.Now(), why: leftWhy}
	eventually(t, "the engine is gone", 20*time.Second, func() bool { return health(s, "east", victim) == "not served" })
	check(t, s.Process("engine-"+string(victim)).Stop())
	check(t, s.Process("engine-"+string(victim)).Start("--load-time", loading.String()))
	out.until = time.Now()
	listEngines(t, list, found["east"])
	eventually(t, "the engine is ready", 20*time.Second, func() bool { return health(s, "east", victim) == "ready" })
	l.flow(300)
	l.endWhole()
	judge(t, s, append(absences, out, absence{victim, out.until, out.until.Add(loading), loadingWhy}))
}

// Pods end, are unready though they answer, and come, as Kubernetes says, under load.
func TestPodsComeAndLeaveUnderLoad(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	k := startKubernetes(t)
	found := map[fleet.PoolID][]fleet.EngineID{}
	s := start(t, stage.Options{
		FleetFile: steadyFleet, Found: found, ServeFlags: []string{"--kubeconfig", k.kubeconfig(t)},
		Edit: func(text string) string {
			text, found["east"] = takeList(text, 0, "{kubernetes: {service: llama, namespace: inference, port: http}}")
			k.tell(podUnready, found["east"][0])
			k.tell(podReady, found["east"][1:]...)
			return text
		},
	})
	pods := found["east"]
	l := startSteady(t, s, "pods")
	l.flow(120)
	absences := []absence{{pods[0], begun, time.Now(), unreadyWhy}}
	k.tell(podReady, pods[0])
	eventually(t, "the pod is ready", 20*time.Second, func() bool { return health(s, "east", pods[0]) == "ready" })
	l.flow(120)
	for _, some := range [][]fleet.EngineID{{pods[1]}, {pods[2]}, {pods[0], pods[1]}} {
		k.tell(podDraining, some...)
		from := time.Now()
		l.flow(150)
		for _, pod := range some {
			absences = append(absences, absence{pod, from, time.Now(), leftWhy})
		}
		k.tell(podReady, some...)
		l.flow(150)
	}
	k.tell(podUnready, pods[1])
	from := time.Now()
	l.flow(150)
	absences = append(absences, absence{pods[1], from, time.Now(), leftWhy})
	k.tell(podReady, pods[1])
	eventually(t, "the pod is back", 20*time.Second, func() bool { return health(s, "east", pods[1]) == "ready" })
	l.flow(300)
	l.endWhole()
	judge(t, s, absences)
}

func without(engines []fleet.EngineID, gone fleet.EngineID) []fleet.EngineID {
	return slices.DeleteFunc(slices.Clone(engines), func(e fleet.EngineID) bool { return e == gone })
}

func texts(engines []fleet.EngineID) []string {
	out := make([]string, len(engines))
	for i, e := range engines {
		out[i] = string(e)
	}
	return out
}

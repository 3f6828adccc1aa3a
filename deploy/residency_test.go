package deploy

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// Requests that may be served in one region only never reach an engine outside it, by
// the engines' own journals, on any of the ways that a request may take. On each way
// others, that may go anywhere, do reach those engines.
func TestResidencyHoldsOnEveryWay(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/residency.yaml"})
	r := residency{t: t, stage: s, engines: append(s.Fleet.Pool("eu-a").Engines, s.Fleet.Pool("eu-b").Engines...)}
	original := read(t, s)

	r.way("first choice", all(200), func() {})
	r.way("an engine refuses", all(200), func() {
		setFaults(t, r.engines[0], `{"errorRate": 1, "errorStatus": 503}`)
	})
	r.retried("an engine refuses", r.engines[0])
	r.way("all engines there refuse", all(503), func() {
		for _, e := range r.engines {
			setFaults(t, e, `{"errorRate": 1, "errorStatus": 503}`)
		}
	})
	r.well()

	extproc := s.Process("extproc-main")
	r.way("ext_proc hangs", all(200), func() { check(t, extproc.Freeze()) })
	check(t, extproc.Thaw())
	check(t, s.Await(t.Context(), "main", true))
	r.way("ext_proc is dead", all(200), func() {
		check(t, extproc.Kill())
		check(t, s.Await(t.Context(), "main", false))
	})
	r.retriesAllowed()
	r.way("and an engine refuses", all(200), func() { setFaults(t, r.engines[0], `{"errorRate": 1, "errorStatus": 503}`) })
	r.retried("and an engine refuses", r.engines[0])
	r.well()
	r.way("and Envoy sheds", some(200, 429), func() {
		rewrite(t, s, func(text string) string { return strings.Replace(text, "acme: 20 rps", "acme: 400 rps", 1) })
		r.until("the plan sheds", func() bool { return r.probe() == 429 })
	})
	check(t, extproc.Start())
	check(t, s.Await(t.Context(), "main", true))
	r.way("ext_proc sheds", some(200, 429), func() { r.until("ext_proc sheds", func() bool { return r.probe() == 429 }) })
	rewrite(t, s, func(string) string { return original })
	r.until("nothing is shed", func() bool {
		return admitted(s, "acme") && strings.Contains(page(t, s.AdminAddress("extproc-main"), "/metrics"), `weir_extproc_gate_refused{class="acme"} 0`+"\n")
	})

	r.retriesAllowed()
	engine := s.Process("engine-" + string(r.engines[0]))
	r.way("an engine dies", all(200), func() { check(t, engine.Kill()) })
	check(t, engine.Start())
	r.until("it is back", func() bool { return health(s, "main", r.engines[0]) == "ready" })
	r.during("an engine and a pool leave", func() {
		rewrite(t, s, r.withoutFirstEngine)
		r.until("the engine is not served", func() bool { return health(s, "main", r.engines[0]) == "not served" })
		rewrite(t, s, withoutPoolEUB)
		r.until("the pool is not served", func() bool { return health(s, "main", r.engines[2]) == "not served" })
	})
	rewrite(t, s, func(string) string { return original })
	r.until("they are back", func() bool {
		return health(s, "main", r.engines[0]) == "ready" && health(s, "main", r.engines[2]) == "ready"
	})
	r.way("all engines there are dead", all(503), func() {
		for _, e := range r.engines {
			check(t, s.Process("engine-"+string(e)).Kill())
		}
	})
	r.judge()
}

// residency sends on each way requests that must stay in the region, every third of
// them with tools, and as many that may go anywhere.
type residency struct {
	t       *testing.T
	stage   *stage.Stage
	engines []fleet.EngineID // of the region
	ways    []string
}

const (
	onEachWay = 96 // requests of either kind: where one in thirty went astray, nineteen tests in twenty would see it
	staying   = "acme"
	roaming   = "anybody"
)

// expected says of the answers to those that must stay whether they are as they
// should be.
type expected func(statuses map[int]int) bool

func all(status int) expected {
	return func(s map[int]int) bool { return len(s) == 1 && s[status] == onEachWay }
}

func some(these ...int) expected {
	return func(s map[int]int) bool {
		n := 0
		for _, status := range these {
			if s[status] == 0 {
				return false
			}
			n += s[status]
		}
		return n == onEachWay
	}
}

// way prepares what is to go wrong, and sends.
func (r *residency) way(name string, want expected, prepare func()) {
	r.t.Helper()
	prepare()
	r.ways = append(r.ways, name)
	if got := r.send(name); !want(got) {
		r.t.Errorf("%s: those that must stay got %v", name, got)
	}
}

// during sends again and again until something has happened.
func (r *residency) during(name string, happen func()) {
	r.t.Helper()
	r.ways = append(r.ways, name)
	over := make(chan struct{})
	var sending sync.WaitGroup
	defer sending.Wait()
	defer close(over)
	sending.Go(func() {
		for {
			if got := r.send(name); got[200] != onEachWay {
				r.t.Errorf("%s: those that must stay got %v", name, got)
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	happen()
}

// send returns the statuses of those that must stay.
func (r *residency) send(way string) map[int]int {
	client := stage.NewClient()
	defer client.CloseIdleConnections()
	var mu sync.Mutex // guards statuses
	statuses := map[int]int{}
	var requests sync.WaitGroup
	for i := range onEachWay {
		for _, kind := range []string{staying, roaming} {
			requests.Go(func() {
				reply := stage.Do(r.t.Context(), client, r.call(way, kind, i))
				mu.Lock()
				defer mu.Unlock()
				if kind == staying {
					statuses[reply.Status]++
				} else if !reply.OK() {
					r.t.Errorf("%s: one that may go anywhere: %v", way, &reply)
				}
			})
		}
	}
	requests.Wait()
	return statuses
}

func (r *residency) call(way, kind string, i int) stage.Call {
	name := fmt.Sprintf("%s/%s/%d", way, kind, i)
	c := stage.Call{
		URL: r.stage.URL("main"), Body: stage.Turn("llama-3.3-70b", name, 0, i%2 == 0),
		Headers: map[string]string{"x-test-id": way + "/" + kind, "x-session-id": name, "x-tenant": kind},
	}
	if i%3 == 0 {
		c.Body = []byte(strings.Replace(string(c.Body), `"model":`, `"tools":[{"type":"function","function":{"name":"f"}}],"model":`, 1))
	}
	return c
}

// probe asks for one request that must stay, of a conversation of its own.
func (r *residency) probe() int {
	c := r.call("probe", staying, int(time.Now().UnixNano()))
	reply := stage.Do(r.t.Context(), stage.NewClient(), c)
	return reply.Status
}

func (r *residency) until(what string, holds func() bool) {
	r.t.Helper()
	eventually(r.t, what, 30*time.Second, holds)
}

// retriesAllowed waits until what one engine has of a burst may be tried again: after
// failures retries are few until the reports of them are forgotten, which takes the longer
// the more there were of them and the less comes after.
func (r *residency) retriesAllowed() {
	r.t.Helper()
	eventually(r.t, "retries are allowed again", 90*time.Second, func() bool {
		return retryFloor(r.t, r.stage, "acme") >= onEachWay/2 && retryFloor(r.t, r.stage, "acme-tools") >= onEachWay/4
	})
}

// well heals all engines.
func (r *residency) well() {
	r.t.Helper()
	for _, e := range r.engines {
		setFaults(r.t, e, `{}`)
	}
}

// retried holds that a way was one: requests went to the sick engine, and then to
// another. Without weir-extproc it is chance how many.
func (r *residency) retried(way string, sick fleet.EngineID) {
	r.t.Helper()
	there, total := 0, 0
	for _, a := range byTest(arrivals(r.t, r.stage))[way+"/"+staying] {
		total++
		if a.Engine == sick {
			there++
		}
	}
	if there == 0 || total != onEachWay+there {
		r.t.Errorf("%s: %d arrivals for %d requests, %d of them at the sick engine: want some there, each tried once more", way, total, onEachWay, there)
	}
}

// judge reads the journals: on each way those that must stay came, to no engine
// outside the region, and the others came to those.
func (r *residency) judge() {
	r.t.Helper()
	groups := byTest(arrivals(r.t, r.stage))
	stayed := 0
	for mark, group := range groups {
		if !strings.HasSuffix(mark, "/"+staying) {
			continue
		}
		for _, a := range group {
			stayed++
			if region := r.stage.Fleet.Pool(a.Pool).Region; region != "eu" {
				r.t.Errorf("%s: a request that must stay reached engine %s of pool %s in region %s", mark, a.Engine, a.Pool, region)
			}
		}
	}
	for _, way := range r.ways {
		elsewhere := 0
		for _, a := range groups[way+"/"+roaming] {
			if a.Pool == "us" {
				elsewhere++
			}
		}
		came := len(groups[way+"/"+staying])
		r.t.Logf("%-28s %4d arrivals in the region, %d of the others outside it", way, came, elsewhere)
		if came < onEachWay/10 && way != "all engines there are dead" || elsewhere < onEachWay/2 {
			r.t.Errorf("%s: %d arrivals in the region, %d of the others outside it: it shows nothing", way, came, elsewhere)
		}
	}
	r.t.Logf("%d arrivals that had to stay, all told", stayed)
}

// admitted says whether the plan lets all of a class in.
func admitted(s *stage.Stage, class fleet.ClassID) bool {
	got, err := snapshotOf(s, "main")
	for _, c := range got.Classes {
		if c.Class == class {
			return err == nil && c.Admitted == 1
		}
	}
	return false
}

// retryFloor is how many retries of a class the front-end may have at once.
func retryFloor(t *testing.T, s *stage.Stage, class string) float64 {
	t.Helper()
	for line := range strings.Lines(page(t, s.AdminAddress("weir"), "/metrics")) {
		if strings.HasPrefix(line, "weir_control_retry_floor{") && strings.Contains(line, fmt.Sprintf("class=%q", class)) {
			n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			check(t, err)
			return n
		}
	}
	return 0
}

func (r *residency) withoutFirstEngine(text string) string {
	name := fmt.Sprintf("%q", r.engines[0])
	return strings.NewReplacer(name+", ", "", ", "+name, "").Replace(text)
}

func withoutPoolEUB(text string) string {
	from, to := strings.Index(text, "  - name: eu-b\n"), strings.Index(text, "  - name: us\n")
	return strings.Replace(text[:from]+text[to:], "eu-b: 60ms, ", "", 1)
}

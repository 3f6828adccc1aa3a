package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// bench is a stage with a Weir and, beside it, Envoys that differ from Weir's in
// what they ask of each request alone.
type bench struct {
	t     *testing.T
	stage *stage.Stage
	ways  []*way
}

// way is one way for requests to take.
type way struct {
	name     string
	text     func(size int) template
	messages int // to ext_proc, of each request

	address string // of the listener
	admin   string // of its Envoy
	envoy   *stage.Process
	extproc *stage.Process // of "none": only takes the log

	lines map[int][]*line // by size of the body
}

const (
	wayNone            = "no ext_proc"
	wayTrivialHeads    = "trivial, headers only"
	wayWeirHeads       = "Weir, keys in headers"
	wayTrivialBuffered = "trivial, buffered"
	wayWeirBodies      = "Weir, keys in bodies"
)

const (
	engineCount = 100
	poolCount   = 4
)

func textOfHeads(size int) template {
	return newText("/heads/v1/chat/completions", size, "x-session-id: conversation-"+digits)
}

func textOfBodies(size int) template { return newText("/v1/chat/completions", size) }

// begin stages Weir with a hundred engines, and the Envoys to compare it with.
func begin(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t}
	b.startStage(startEngines(t, engineCount))
	eventually(t, "the plan is saved", 10*time.Second, func() bool {
		_, err := os.Stat(filepath.Join(b.stage.State(), "plan.json"))
		return err == nil
	})
	trivial, err := b.stage.Launch("trivial", os.Args[0], playExtProc, b.stage.Socket("trivial"))
	check(t, err)
	b.ways = []*way{
		b.compared(wayNone, 0, textOfHeads, trivial),
		b.compared(wayTrivialHeads, 1, textOfHeads, trivial),
		b.weir(wayWeirHeads, 1, textOfHeads),
		b.compared(wayTrivialBuffered, 2, textOfBodies, trivial),
		b.weir(wayWeirBodies, 2, textOfBodies),
	}
	for _, w := range b.ways {
		b.await(w)
	}
	return b
}

// startStage starts Weir.
func (b *bench) startStage(engines []fleet.EngineID) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	var err error
	b.stage, err = stage.Start(ctx, stage.Options{
		Bin: bin, Envoy: envoy, FleetFile: "testdata/fleet.yaml",
		Dir:      filepath.Join(os.TempDir(), fmt.Sprintf("weir-bench-%d-%s", os.Getpid(), b.t.Name())),
		External: func(fleet.PoolID) bool { return true },
		Edit:     func(text string) string { return withEngines(text, engines) },
	})
	check(b.t, err)
	b.t.Cleanup(b.end)
}

func (b *bench) end() {
	if err := b.stage.Close(); err != nil {
		b.t.Error(err)
	}
	dir := filepath.Dir(b.stage.FleetFile)
	if b.t.Failed() {
		b.t.Log("logs are kept in", dir)
		return
	}
	os.RemoveAll(dir)
}

func withEngines(text string, all []fleet.EngineID) string {
	share := len(all) / poolCount
	for i := range poolCount {
		var list []string
		for _, e := range all[i*share : (i+1)*share] {
			list = append(list, strconv.Quote(string(e)))
		}
		text = strings.Replace(text, fmt.Sprintf("[ENGINES-%d]", i+1), "["+strings.Join(list, ", ")+"]", 1)
	}
	return text
}

func (b *bench) way(name string) *way {
	return b.ways[slices.IndexFunc(b.ways, func(w *way) bool { return w.name == name })]
}

// weir is the way through the stage's own Envoy.
func (b *bench) weir(name string, messages int, text func(int) template) *way {
	return &way{
		name: name, text: text, messages: messages, lines: map[int][]*line{},
		address: strings.TrimPrefix(b.stage.URL("home"), "http://"), admin: b.stage.EnvoyAdmin("home"),
		envoy: b.stage.Process("envoy-home"), extproc: b.stage.Process("extproc-home"),
	}
}

// compared starts an Envoy of the plan's own static file, which differs in this:
// what it asks of an ext_proc; that it never reads models from bodies itself, so
// that its routes ask for none. It has all other filters and writes the same
// access log.
func (b *bench) compared(name string, messages int, text func(int) template, extproc *stage.Process) *way {
	listen, err := b.stage.Address()
	check(b.t, err)
	admin, err := b.stage.Address()
	check(b.t, err)
	file := filepath.Join(filepath.Dir(b.stage.FleetFile), fmt.Sprintf("compared-%d-%s.json", messages, listen))
	check(b.t, os.WriteFile(file, b.file(listen, admin, messages), 0o644))
	envoy, err := b.stage.Launch("envoy-"+listen, envoy, "-c", file,
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	check(b.t, err)
	return &way{
		name: name, text: text, messages: messages, lines: map[int][]*line{},
		address: listen, admin: admin, envoy: envoy, extproc: extproc,
	}
}

// object is a JSON object.
type object = map[string]any

func (b *bench) file(listen, admin string, messages int) []byte {
	b.t.Helper()
	out, err := exec.Command(filepath.Join(bin, "weir"), "bootstrap", "--static", "--state", b.stage.State(),
		"--front-end", "home", "--node-id", listen, "--extproc", b.stage.Socket("trivial"), "--admin", admin).Output()
	check(b.t, err)
	var all object
	check(b.t, json.Unmarshal(out, &all))
	listener := first(all["staticResources"].(object)["listeners"])
	host, port, err := net.SplitHostPort(listen)
	check(b.t, err)
	number, err := strconv.Atoi(port)
	check(b.t, err)
	listener["address"] = object{"socketAddress": object{"address": host, "portValue": number}}
	editManager(first(first(listener["filterChains"])["filters"])["typedConfig"].(object), messages)
	text, err := json.Marshal(all)
	check(b.t, err)
	return text
}

func first(list any) object { return list.([]any)[0].(object) }

// editManager has an Envoy send an ext_proc no message, the headers, or the body too.
func editManager(m object, messages int) {
	var kept []any
	for _, f := range m["httpFilters"].([]any) {
		f := f.(object)
		switch {
		case f["name"] == "body-model", f["name"] == "ext_proc" && messages == 0:
			continue
		case f["name"] == "ext_proc" && messages == 2:
			f["typedConfig"].(object)["processingMode"].(object)["requestBodyMode"] = "BUFFERED"
		}
		kept = append(kept, f)
	}
	m["httpFilters"] = kept
	for _, r := range first(m["routeConfig"].(object)["virtualHosts"])["routes"].([]any) {
		match := r.(object)["match"].(object)
		headers, _ := match["headers"].([]any)
		match["headers"] = slices.DeleteFunc(headers, func(h any) bool { return h.(object)["name"] == "x-weir-model" })
	}
}

// await waits until a way is open.
func (b *bench) await(w *way) {
	b.t.Helper()
	eventually(b.t, w.name+": Envoy and its ext_proc serve", 30*time.Second, func() bool {
		select {
		case <-w.envoy.Exited():
			b.t.Fatal(w.envoy.Tail())
		case <-w.extproc.Exited():
			b.t.Fatal(w.extproc.Tail())
		default:
		}
		r, err := http.Get("http://" + w.admin + "/ready")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK && b.stat(w, "cluster.weir_ext_proc.membership_healthy") == 1
	})
}

// stat reads a counter or gauge of a way's Envoy, 0 if it has none of the name.
func (b *bench) stat(w *way, name string) int {
	b.t.Helper()
	text := page(b.t, "http://"+w.admin+"/stats?filter=^"+strings.ReplaceAll(name, ".", `\.`)+"$")
	_, value, _ := strings.Cut(strings.TrimSpace(text), ": ")
	n, _ := strconv.Atoi(value)
	return n
}

// open returns connections of a way for bodies of a size, and keeps them.
func (w *way) open(t *testing.T, size, n int) []*line {
	t.Helper()
	text := w.text(size)
	for len(w.lines[size]) < n {
		l, err := newLine(w.address, text)
		check(t, err)
		t.Cleanup(func() { l.conn.Close() })
		w.lines[size] = append(w.lines[size], l)
	}
	return w.lines[size][:n]
}

// use is what the processes of a way have used, in seconds of CPU.
type use struct{ envoy, extproc float64 }

func (w *way) used(t *testing.T) use {
	t.Helper()
	return use{cpuSeconds(t, w.envoy.PID()), cpuSeconds(t, w.extproc.PID())}
}

// cpuSeconds is how long a process has run in user and kernel mode.
func cpuSeconds(t *testing.T, pid int) float64 {
	t.Helper()
	const ticks = 100 // a second, of every Linux that Go runs on
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(t, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from the third on
	user, err := strconv.ParseUint(fields[14-3], 10, 64)
	check(t, err)
	system, err := strconv.ParseUint(fields[15-3], 10, 64)
	check(t, err)
	return float64(user+system) / ticks
}

// residentMiB is the resident memory of a process.
func residentMiB(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	check(t, err)
	pages, err := strconv.ParseUint(strings.Fields(string(text))[1], 10, 64)
	check(t, err)
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
}

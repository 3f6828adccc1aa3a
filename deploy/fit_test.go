package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"weir/deploy/figures"
	"weir/deploy/stage"
	"weir/fit"
	"weir/fleet"
)

// Loads at which an engine is measured, in parts of the throughput at which it saturates
// at that time; those held out are not fitted, but predicted.
var (
	fittedLoads = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}
	heldOut     = []float64{0.25, 0.35, 0.45, 0.55, 0.65}
)

const (
	// fitRounds are those of all loads, in other orders. What a load is like is the median
	// of its runs: a machine that is shared is a third slower for minutes, and now and then
	// stands still.
	fitRounds  = 5
	fitRun     = 10 * time.Second
	fitWarmUp  = 2 * time.Second
	fitAnswer  = 24 // tokens
	fitWords   = 60 // of a prompt, some six letters each; a letter is a token
	fitClients = 16 // that ask one after the other, to saturate the engine
	heldOutBar = 0.2
	mostHeld   = 0.9 // of the capacity, up to which the bar holds
)

// bench is a load generator: clients of one engine, no two prompts of which are alike.
type bench struct {
	url    string
	client *http.Client

	mu    sync.Mutex // guards the rest
	asked int
	seen  []benched
}

// benched is one request as its client saw it.
type benched struct {
	sent       time.Time
	ttft, took float64 // seconds
	usage      benchUsage
	failed     bool
}

// benchUsage is what the engine says at the end of a stream.
type benchUsage struct {
	Prompt int `json:"prompt_tokens"`
	Output int `json:"completion_tokens"`
}

// ask sends one request and notes what came of it.
func (b *bench) ask(ctx context.Context) {
	b.mu.Lock()
	b.asked++
	rng := rand.New(rand.NewPCG(11, uint64(b.asked)))
	b.mu.Unlock()
	var text strings.Builder
	for range fitWords {
		for range 3 + rng.IntN(5) {
			text.WriteByte(byte('a' + rng.IntN(26)))
		}
		text.WriteByte(' ')
	}
	body, err := json.Marshal(map[string]any{
		"model": "tiny", "messages": []said{{"user", text.String()}}, "max_tokens": fitAnswer,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		panic("bench: " + err.Error()) // strings always marshal
	}
	r := stage.Do(ctx, b.client, stage.Call{URL: b.url, Body: body})
	one := benched{sent: r.Sent, ttft: r.TTFT.Seconds(), took: r.Took.Seconds(), failed: !r.OK()}
	for line := range strings.Lines(string(r.Body)) {
		var event struct{ Usage *benchUsage }
		if data, ok := strings.CutPrefix(line, "data: {"); ok && json.Unmarshal([]byte("{"+data), &event) == nil && event.Usage != nil {
			one.usage = *event.Usage
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, one)
}

// take returns the requests that were sent from a time on, and forgets all.
func (b *bench) take(from time.Time) (some []benched) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.seen {
		if !x.sent.Before(from) {
			some = append(some, x)
		}
	}
	b.seen = nil
	return some
}

// benchColumns are those of a run, as weir fit reads them: means, and then sums.
const (
	benchColumns = "offered_rps,rps,ttft_s,tbt_s,prompt_tokens,output_tokens,requests,failed,duration_s\n"
	benchMeans   = 6
)

// benchRun has a value for each of [benchColumns].
type benchRun []float64

func (r benchRun) String() string {
	var line []string
	for _, v := range r {
		line = append(line, fmt.Sprintf("%.6g", v))
	}
	return strings.Join(line, ",") + "\n"
}

// typical is what a load is like, of which these are the runs: the median of each mean, and
// the sums.
func typical(runs []benchRun) benchRun {
	out := make(benchRun, len(runs[0]))
	for i := range out {
		var all []float64
		for _, r := range runs {
			all = append(all, r[i])
			out[i] += r[i]
		}
		if i < benchMeans {
			slices.Sort(all)
			out[i] = quantile(all, 0.5)
		}
	}
	return out
}

// run is one at a rate.
func (b *bench) run(t *testing.T, rps float64, seed uint64) benchRun {
	t.Helper()
	from := time.Now().Add(fitWarmUp)
	ctx, stop := context.WithTimeout(t.Context(), fitWarmUp+fitRun)
	defer stop()
	stage.Arrive(ctx, rps, seed, func(int) { b.ask(t.Context()) })
	all := b.take(from)
	var n, failed, ttft, tbt, prompt, output float64
	last := from.Add(fitRun)
	for _, x := range all {
		if x.failed || x.usage.Output < 2 {
			failed++
			continue
		}
		n++
		ttft += x.ttft
		tbt += (x.took - x.ttft) / float64(x.usage.Output-1)
		prompt += float64(x.usage.Prompt)
		output += float64(x.usage.Output)
		if end := x.sent.Add(time.Duration(x.took * float64(time.Second))); end.After(last) {
			last = end
		}
	}
	took := last.Sub(from).Seconds()
	return benchRun{n / fitRun.Seconds(), n / took, ttft / n, tbt / n, prompt / n, output / n, n, failed, took}
}

// saturation is the throughput of clients that ask without a pause.
func (b *bench) saturation(t *testing.T) float64 {
	t.Helper()
	from := time.Now().Add(fitWarmUp)
	ctx, stop := context.WithTimeout(t.Context(), fitWarmUp+fitRun)
	defer stop()
	var clients sync.WaitGroup
	for range fitClients {
		clients.Go(func() {
			for ctx.Err() == nil {
				b.ask(t.Context())
			}
		})
	}
	clients.Wait()
	return float64(len(b.take(from))) / time.Since(from).Seconds()
}

// campaign measures at all loads, and returns the runs at each, and how much the engine did
// at once before each round.
func campaign(t *testing.T, b *bench) (runs map[float64][]benchRun, saturations []float64) {
	t.Helper()
	runs = map[float64][]benchRun{}
	loads := slices.Concat(fittedLoads, heldOut)
	random := rand.New(rand.NewPCG(3, 3))
	for round := range fitRounds {
		saturationRps := b.saturation(t)
		saturations = append(saturations, saturationRps)
		random.Shuffle(len(loads), func(i, j int) { loads[i], loads[j] = loads[j], loads[i] })
		for _, load := range loads {
			runs[load] = append(runs[load], b.run(t, load*saturationRps, uint64(round)*1000+uint64(1000*load)))
		}
	}
	return runs, saturations
}

// alone ends all that runs beside an engine, and gives that a core of its own: what it has
// to share with its clients is not its own.
func alone(t *testing.T, s *stage.Stage, engine fleet.EngineID) {
	t.Helper()
	for _, e := range s.Fleet.Pool("llama").Engines {
		if e != engine {
			check(t, s.Process("engine-"+string(e)).Kill())
		}
	}
	for _, name := range []string{"envoy-main", "extproc-main", "weir"} {
		check(t, s.Process(name).Kill())
	}
	last := runtime.NumCPU() - 1
	if last == 0 {
		t.Log("this machine has one core, which the engine shares with its clients")
		return
	}
	for pid, cores := range map[int]string{s.Process("engine-" + string(engine)).PID(): fmt.Sprint(last), os.Getpid(): fmt.Sprint("0-", last-1)} {
		out, err := exec.CommandContext(t.Context(), "taskset", "--all-tasks", "--cpu-list", "--pid", cores, fmt.Sprint(pid)).CombinedOutput()
		if err != nil {
			t.Fatalf("taskset: %v: %s", err, out)
		}
	}
}

// A profile that is fitted to measurements of a real engine tells what TTFT it has at
// loads that were not measured. It writes its figures to $WEIR_FIGURES, and beside
// them the measurements.
func TestFitAtLength(t *testing.T) {
	path := os.Getenv(figures.Variable)
	if path == "" {
		t.Skip("runs for minutes: use make test-fit")
	}
	// No prompt comes twice: kept, they fill gigabytes in the course of the measurement.
	l := llamaEngines(t, "--parallel", "8", "--context", "2048", "--dim", "128", "--layers", "3", "--prompt-cache", "0")
	s := start(t, stage.Options{FleetFile: "testdata/llama.yaml", Llama: l})
	alone(t, s, s.Fleet.Pool("llama").Engines[0])
	b := &bench{url: "http://" + string(s.Fleet.Pool("llama").Engines[0]), client: stage.NewClient()}
	runs, saturations := campaign(t, b)
	slices.Sort(saturations)
	fitted := benchColumns
	for _, load := range fittedLoads {
		fitted += typical(runs[load]).String()
	}
	t.Logf("what the engine does at once, before each round: %.1f rps", saturations)
	for _, load := range slices.Sorted(maps.Keys(runs)) {
		for _, r := range runs[load] {
			t.Logf("%.0f %%: %s", 100*load, strings.TrimSpace(r.String()))
		}
	}
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(strings.TrimSuffix(path, ".json")+".csv", []byte(fitted), 0o644))

	ms, err := fit.Read("measured.csv", []byte(fitted))
	check(t, err)
	r, err := fit.Fit(ms, fit.Options{})
	check(t, err)
	t.Logf("\n%s", r.YAML())
	f := figures.Report{Target: "test-fit"}
	f.Tell("throughput of clients that ask without a pause, at least", saturations[0], "rps")
	f.Tell("the same, at most", saturations[len(saturations)-1], "rps")
	f.Tell("capacity fitted", r.Profile.CapacityRps, "rps")
	f.Tell("its interval of 90 %, of it", (r.CapacityRps.High-r.CapacityRps.Low)/r.Profile.CapacityRps, "of 1")
	f.Tell("loads beside the curve, root mean square", r.TTFTResidual, "of 1")
	heldTable(t, &f, r, runs)
	check(t, figures.Write(path, &f))
	t.Log("\n" + f.String())
}

// heldTable holds what is predicted against what was measured at the loads held out.
func heldTable(t *testing.T, f *figures.Report, r *fit.Result, runs map[float64][]benchRun) {
	t.Helper()
	var out strings.Builder
	judged := 0
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HELD OUT\tLOAD\tTTFT MEASURED\tPREDICTED\tOFF\tTBT MEASURED\tPREDICTED\tOFF")
	for _, load := range heldOut {
		seen := typical(runs[load])
		rps, ttft, tbt := seen[0], seen[2], seen[3]
		u := rps / r.Profile.CapacityRps
		saidTTFT, saidTBT := r.Profile.TTFT.At(u), r.Profile.TBT.At(u)
		fmt.Fprintf(w, "%.0f %%\t%.1f rps\t%.1f ms\t%.1f ms\t%+.1f %%\t%.2f ms\t%.2f ms\t%+.1f %%\n", 100*load, rps, 1e3*ttft, 1e3*saidTTFT, 100*(saidTTFT/ttft-1), 1e3*tbt, 1e3*saidTBT, 100*(saidTBT/tbt-1))
		what := fmt.Sprintf("TTFT at %.0f %% of saturation (%.0f %% of the capacity), held out: predicted is off by", 100*load, 100*u)
		if u > mostHeld { // there queues grow as long as a run lasts: a profile promises nothing of it
			f.Tell(what, math.Abs(saidTTFT/ttft-1), "of 1")
		} else {
			f.AtMost(what, math.Abs(saidTTFT/ttft-1), "of 1", heldOutBar)
			judged++
		}
		f.Tell("TBT there, likewise", math.Abs(saidTBT/tbt-1), "of 1")
	}
	check(t, w.Flush())
	t.Log("\n" + out.String())
	f.AtLeast("loads held out that lie within nine tenths of the capacity", float64(judged), "", 3)
}

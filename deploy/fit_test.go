package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"weir/deploy/figures"
	"weir/deploy/stage"
	"weir/fit"
)

// Loads at which an engine is measured, in parts of the throughput at which it
// saturates; those held out are not fitted, but predicted.
var (
	fittedLoads = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}
	heldOut     = []float64{0.25, 0.45, 0.65, 0.75}
)

const (
	fitRounds  = 5 // of all loads, in other orders: what the machine does meanwhile hits all alike
	fitRun     = 14 * time.Second
	fitWarmUp  = 2 * time.Second
	fitAnswer  = 24 // tokens
	fitWords   = 60 // of a prompt, some six letters each; a letter is a token
	fitClients = 16 // that ask one after the other, to saturate the engine
	heldOutBar = 0.2
	// An engine whose throughput is another by so much after the measurements than it was
	// before them was not alone on its machine: they say nothing.
	fitSteady = 0.2
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

// run is one at a rate: a line of CSV.
func (b *bench) run(t *testing.T, rps float64, seed uint64) []string {
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
	var line []string
	for _, v := range []float64{n / fitRun.Seconds(), n / took, ttft / n, tbt / n, prompt / n, output / n, n, failed, took} {
		line = append(line, fmt.Sprintf("%.6g", v))
	}
	return line
}

const benchColumns = "offered_rps,rps,ttft_s,tbt_s,prompt_tokens,output_tokens,requests,failed,duration_s\n"

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

// campaign measures at all loads, and returns the CSV of those that are fitted and that
// of each that is held out.
func campaign(t *testing.T, b *bench, saturationRps float64) (fitted string, held map[float64]string) {
	t.Helper()
	fitted, held = benchColumns, map[float64]string{}
	loads := slices.Concat(fittedLoads, heldOut)
	random := rand.New(rand.NewPCG(3, 3))
	for round := range fitRounds {
		random.Shuffle(len(loads), func(i, j int) { loads[i], loads[j] = loads[j], loads[i] })
		for _, load := range loads {
			line := strings.Join(b.run(t, load*saturationRps, uint64(round)*1000+uint64(1000*load)), ",") + "\n"
			if isHeldOut(load) {
				held[load] += line
			} else {
				fitted += line
			}
		}
	}
	return fitted, held
}

func isHeldOut(load float64) bool { return slices.Contains(heldOut, load) }

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
	b := &bench{url: "http://" + string(s.Fleet.Pool("llama").Engines[0]), client: stage.NewClient()}
	saturationRps := b.saturation(t)
	fitted, held := campaign(t, b, saturationRps)
	if after := b.saturation(t); math.Abs(after/saturationRps-1) > fitSteady {
		t.Fatalf("the engine does %.1f rps now, and did %.1f before: the machine is busy with something else; measure again", after, saturationRps)
	}
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(strings.TrimSuffix(path, ".json")+".csv", []byte(fitted), 0o644))

	ms, err := fit.Read("measured.csv", []byte(fitted))
	check(t, err)
	r, err := fit.Fit(ms, fit.Options{})
	check(t, err)
	t.Logf("saturates at %.1f rps\n%s", saturationRps, r.YAML())
	f := figures.Report{Target: "test-fit"}
	f.Tell("throughput of clients that ask without a pause", saturationRps, "rps")
	f.Tell("capacity fitted", r.Profile.CapacityRps, "rps")
	f.Tell("its interval of 90 %, of it", (r.CapacityRps.High-r.CapacityRps.Low)/r.Profile.CapacityRps, "of 1")
	f.Tell("runs beside the curve, root mean square", r.TTFTResidual, "of 1")
	heldTable(t, &f, r, held)
	check(t, figures.Write(path, &f))
	t.Log("\n" + f.String())
}

// middle is the median over runs: what the machine did in one of them is no more of the
// engine here than in the fit, which leaves such runs out.
func middle(ms []fit.Measurement, of func(fit.Measurement) float64) float64 {
	var all []float64
	for _, m := range ms {
		all = append(all, of(m))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// heldTable holds what is predicted against what was measured at the loads held out.
func heldTable(t *testing.T, f *figures.Report, r *fit.Result, held map[float64]string) {
	t.Helper()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "all runs held out, of which the median at each load counts\n%s", strings.ReplaceAll(benchColumns, ",", "\t"))
	for _, load := range heldOut {
		fmt.Fprint(w, strings.ReplaceAll(held[load], ",", "\t"))
	}
	fmt.Fprintln(w, "HELD OUT\tLOAD\tTTFT MEASURED\tPREDICTED\tOFF\tTBT MEASURED\tPREDICTED\tOFF")
	for _, load := range heldOut {
		ms, err := fit.Read(fmt.Sprintf("held out %v", load), []byte(benchColumns+held[load]))
		check(t, err)
		rps := middle(ms, func(m fit.Measurement) float64 { return m.OfferedRps })
		ttft := middle(ms, func(m fit.Measurement) float64 { return m.TTFTSeconds })
		tbt := middle(ms, func(m fit.Measurement) float64 { return m.TBTSeconds })
		u := rps / r.Profile.CapacityRps
		saidTTFT, saidTBT := r.Profile.TTFT.At(u), r.Profile.TBT.At(u)
		fmt.Fprintf(w, "%.0f %%\t%.1f rps\t%.1f ms\t%.1f ms\t%+.1f %%\t%.2f ms\t%.2f ms\t%+.1f %%\n", 100*load, rps, 1e3*ttft, 1e3*saidTTFT, 100*(saidTTFT/ttft-1), 1e3*tbt, 1e3*saidTBT, 100*(saidTBT/tbt-1))
		f.AtMost(fmt.Sprintf("TTFT at %.0f %% of saturation, held out: predicted is off by", 100*load), math.Abs(saidTTFT/ttft-1), "of 1", heldOutBar)
		f.Tell("TBT there, likewise", math.Abs(saidTBT/tbt-1), "of 1")
	}
	check(t, w.Flush())
	t.Log("\n" + out.String())
}

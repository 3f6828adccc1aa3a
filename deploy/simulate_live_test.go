package deploy

import (
	"bytes"
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/admin"
	"weir/deploy/figures"
	"weir/deploy/stage"
	"weir/fleet"
	"weir/simulate"
)

// What the live fleet and its simulation have in common beside the fleet file.
const (
	trialSlots   = 7  // a fifth more than an engine of A holds at its capacity
	trialSeeds   = 30 // of the simulation
	trialBatches = 12 // of what is measured live
	trialPrompt  = 10 // tokens, the reference's
	leastOutput  = 10 // tokens; as many more as the reference has, at most
	trialOutputs = 21
	trialJitter  = 0.1  // as weir simulate has it
	worthJudging = 0.05 // of a front-end's traffic
	// mostTrialLate is how late timers may be in the mean, seconds: later ones hold an
	// engine's slots, and queues grow where none are.
	mostTrialLate = 0.003
)

// trial is the talk's fleet under Poisson arrivals, at a fifth of its rates.
type trial struct {
	policy          string
	warmUp, seconds float64 // the first not measured, of all
}

// tried is one request of a trial, as its client and its engine saw it.
type tried struct {
	at       float64 // seconds from the first one
	frontEnd fleet.FrontEndID
	output   int // tokens
	name     string
	reply    stage.Reply

	pool           fleet.PoolID // empty: refused
	prompt         int          // tokens, by the engine
	ttft, endToEnd float64      // seconds, at the engine
}

// TestSimulationIsLikeTheRealFleet holds weir simulate against real Envoys and mock
// engines: the same fleet file, the same requests at the same moments. Differences must
// lie within twice what chance explains of both, so that one run in many thousands is
// off by chance; make bench-simulate is longer and asks for once. Shares and refusals are
// held on any machine, times where it is not too busy to say them.
func TestSimulationIsLikeTheRealFleet(t *testing.T) {
	t.Parallel()
	tr := trial{policy: fleet.PolicyOptimal, warmUp: 9, seconds: 33}
	for _, c := range tr.run(t) {
		t.Log(&c)
		if c.apart() > 2*c.chance()+c.late && (c.unit != "s" || c.late <= mostTrialLate) {
			t.Errorf("%s: more than chance explains", &c)
		}
	}
}

// TestBenchSimulate does the same at length, and under more policies.
func TestBenchSimulate(t *testing.T) {
	path := os.Getenv(figures.Variable)
	if path == "" {
		t.Skip("a measurement, run by make bench-simulate")
	}
	f := figures.Report{Target: "bench-simulate"}
	for _, policy := range []string{fleet.PolicyOptimal, fleet.PolicyWaterfall, fleet.PolicyNearest} {
		t.Run(policy, func(t *testing.T) { // its parts end with it
			tr := trial{policy: policy, warmUp: 30, seconds: 150}
			for _, c := range tr.run(t) {
				t.Log(&c)
				c.tell(&f, policy)
			}
		})
	}
	t.Run("trace", func(t *testing.T) { benchTrace(t, &f) })
	check(t, figures.Write(path, &f))
	t.Log("\n" + f.String())
}

// run serves the requests of a trial live, simulates them, and compares.
func (tr *trial) run(t *testing.T) []comparison {
	t.Helper()
	late := watchTimers(t)
	s, all := tr.live(t)
	lateness := late()
	sim := tr.simulate(t, s, all)
	measured := all[:0:0]
	for _, r := range all {
		if r.at >= tr.warmUp {
			measured = append(measured, r)
		}
	}
	adds := added(s.Fleet.Network.RoundTripSeconds, measured)
	if lateness > mostTrialLate {
		t.Logf("timers are %.1f ms late in the mean: this machine is too busy to say how long requests take", 1000*lateness)
	}
	t.Logf("refused in all, by x-weir-shed-reason: %v", reasons(all))
	t.Logf("%d requests measured; Envoy, weir-extproc, client and connections add %.2f ms to the first token, %.2f ms to the end, which is taken off; timers are %.2f ms late",
		len(measured), 1000*adds.ttft, 1000*adds.endToEnd, 1000*lateness)
	return tr.compare(measured, sim, adds, lateness)
}

// live serves Poisson arrivals by real Envoys, weir-extprocs and mock engines, and
// returns the fleet file and all requests, by the time that they were sent.
func (tr *trial) live(t *testing.T) (*stage.Stage, []tried) {
	t.Helper()
	s := start(t, stage.Options{FleetFile: "testdata/talk-fifth.yaml", Distances: true, Edit: tr.edit, EngineFlags: func(fleet.PoolID) []string {
		return []string{
			"--tbt", "15ms", "--tbt-full", "25ms", "--slots", strconv.Itoa(trialSlots), "--jitter", fmt.Sprint(trialJitter),
			"--reference-prompt", strconv.Itoa(trialPrompt), "--reference-output", "20", "--output-cost", "4",
		}
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(tr.seconds*float64(time.Second)))
	defer cancel()
	client := stage.NewClient()
	var mu sync.Mutex // guards all
	var all []tried
	var frontEnds sync.WaitGroup
	for i, fe := range s.Fleet.FrontEnds {
		frontEnds.Go(func() {
			sizes := rand.New(rand.NewPCG(uint64(i), 7))
			outputs := make([]int, 2*int(fe.Demand["chat"]*tr.seconds)+100)
			for k := range outputs {
				outputs[k] = leastOutput + sizes.IntN(trialOutputs)
			}
			stage.Arrive(ctx, fe.Demand["chat"], uint64(i+1), func(k int) {
				r := tried{frontEnd: fe.ID, output: outputs[k], name: fmt.Sprintf("%s-%04d", fe.ID, k)}
				body := stage.LongTurn("llama-3.3-70b", r.name, 0, r.output)
				r.reply = stage.Do(t.Context(), client, stage.Call{URL: s.URL(fe.ID), Body: body, Headers: map[string]string{"x-test-id": r.name}, Timeout: 5 * time.Minute})
				mu.Lock()
				defer mu.Unlock()
				all = append(all, r)
			})
		})
	}
	believed := watchBeliefs(t, ctx, s)
	frontEnds.Wait()
	t.Logf("the least that was believed of pools meanwhile: %s", <-believed)
	slices.SortFunc(all, func(a, b tried) int { return a.reply.Sent.Compare(b.reply.Sent) })
	for i := range all {
		all[i].at = all[i].reply.Sent.Sub(all[0].reply.Sent).Seconds()
	}
	readNotes(t, s, all)
	return s, all
}

// edit has the file say all of the engines, so that a simulation knows it.
func (tr *trial) edit(text string) string {
	text = strings.ReplaceAll(text, "ttft: {0%: 200ms, 100%: 250ms}", "ttft: {0%: 200ms, 100%: 250ms}\n      tbt: {0%: 15ms, 100%: 25ms}")
	return strings.Replace(text, "policy: optimal", "policy: "+tr.policy, 1)
}

// readNotes adds what engines noted of each request.
func readNotes(t *testing.T, s *stage.Stage, all []tried) {
	t.Helper()
	byName := map[string]*tried{}
	for i := range all {
		byName[all[i].name] = &all[i]
	}
	for i := range s.Fleet.Pools {
		for _, e := range s.Fleet.Pools[i].Engines {
			text, err := os.ReadFile(s.Journal(e))
			check(t, err)
			names, began := map[uint64]string{}, map[uint64]time.Time{}
			for line := range bytes.Lines(text) {
				var n struct {
					Event   string
					ID      uint64
					Time    time.Time
					Prompt  int     `json:"promptTokens"`
					TTFT    float64 `json:"ttftSeconds"`
					Headers map[string]string
				}
				check(t, json.Unmarshal(line, &n))
				if n.Event == "arrival" {
					names[n.ID], began[n.ID] = n.Headers["x-test-id"], n.Time
				}
				r := byName[names[n.ID]]
				if r == nil {
					continue
				}
				if n.Event == "arrival" {
					r.pool, r.prompt = s.Fleet.Pools[i].ID, n.Prompt
				} else {
					r.ttft, r.endToEnd = n.TTFT, n.Time.Sub(began[n.ID]).Seconds()
				}
			}
		}
	}
	for i := range all {
		switch r := &all[i]; {
		case r.reply.Status == 429 && r.pool == "":
		case !r.reply.OK() || r.pool == "" || r.prompt != trialPrompt:
			t.Fatalf("request %s of pool %q with %d prompt tokens: %v", r.name, r.pool, r.prompt, &r.reply)
		}
	}
}

// simulate has weir simulate play the same requests to the same fleet file.
func (tr *trial) simulate(t *testing.T, s *stage.Stage, all []tried) *simulatedTrial {
	t.Helper()
	var csv bytes.Buffer
	csv.WriteString("seconds,front-end,prompt_tokens,output_tokens\n")
	for i := range all {
		r := &all[i]
		fmt.Fprintf(&csv, "%.6f,%s,%d,%d\n", r.at, r.frontEnd, trialPrompt, r.output)
	}
	c := exec.CommandContext(t.Context(), filepath.Join(bin, "weir"), "simulate", s.FleetFile, "--trace", "-", "--policies", tr.policy,
		"--slots", strconv.Itoa(trialSlots), "--warm-up", fmt.Sprint(tr.warmUp, "s"), "--seeds", strconv.Itoa(trialSeeds), "-o", "json")
	c.Stdin, c.Stderr = &csv, os.Stderr
	text, err := c.Output()
	check(t, err)
	var out struct{ Policies []simulatedTrial }
	check(t, json.Unmarshal(text, &out))
	if len(out.Policies) != 1 {
		t.Fatalf("weir simulate says %s", text)
	}
	return &out.Policies[0]
}

// simulatedTrial is what weir simulate says of a policy.
type simulatedTrial struct {
	Figures map[string]interval
	Links   []struct {
		FrontEnd            fleet.FrontEndID
		Pool                fleet.PoolID
		SharePercent        interval
		TTFTMeanSeconds     interval
		EndToEndMeanSeconds interval
	}
}

// interval is a value and half of its 95 % confidence interval.
type interval struct{ Value, PlusMinus float64 }

// oneSeed is half of the interval in which one seed of a mean lies, nearly.
func (i interval) oneSeed() float64 { return i.PlusMinus * math.Sqrt(trialSeeds) }

// times are those of a request, in seconds.
type times struct{ ttft, endToEnd float64 }

// added is what lies between client and engine beside the distance, in the mean: of
// that the simulation knows nothing.
func added(roundTrips map[fleet.Link]float64, all []tried) (mean times) {
	n := 0.0
	for i := range all {
		if r := &all[i]; r.pool != "" {
			trip := roundTrips[fleet.Link{FrontEnd: r.frontEnd, Pool: r.pool}]
			mean.ttft += r.reply.TTFT.Seconds() - r.ttft - trip
			mean.endToEnd += r.reply.Took.Seconds() - r.endToEnd - trip
			n++
		}
	}
	return times{mean.ttft / n, mean.endToEnd / n}
}

// comparison is one figure, live and simulated.
type comparison struct {
	what, unit      string
	live, simulated interval
	adds            float64 // that the live one has and the simulation leaves out
	late            float64 // that timers of engines are, which nobody can tell from their work
}

func (c *comparison) apart() float64 { return math.Abs(c.live.Value - c.adds - c.simulated.Value) }

// chance is both intervals together. A live run is not less uncertain than one seed.
func (c *comparison) chance() float64 {
	return max(c.live.PlusMinus, c.simulated.oneSeed()) + c.simulated.PlusMinus
}

func (c *comparison) String() string {
	return fmt.Sprintf("%s: live %.4g ± %.2g less %.2g, simulated %.4g ± %.2g (one seed ± %.2g) %s; %.2g apart, chance explains %.2g", c.what,
		c.live.Value, c.live.PlusMinus, c.adds, c.simulated.Value, c.simulated.PlusMinus, c.simulated.oneSeed(), c.unit, c.apart(), c.chance())
}

func (c *comparison) tell(f *figures.Report, policy string) {
	what := policy + ", " + c.what
	f.Tell(what+", live", c.live.Value-c.adds, c.unit)
	f.Tell(what+", simulated", c.simulated.Value, c.unit)
	f.AtMost(what+", apart", c.apart(), c.unit, c.chance()+c.late)
}

// compare makes the figures of both.
func (tr *trial) compare(all []tried, sim *simulatedTrial, adds times, late float64) (out []comparison) {
	add := func(what, unit string, simulated interval, of func([]tried) float64, adds, late float64) {
		out = append(out, comparison{what, unit, tr.interval(all, of), simulated, adds, late})
	}
	everyone := func(*tried) bool { return true }
	add("TTFT mean", "s", sim.Figures["ttftMeanSeconds"], meanOfRequests(everyone, ttft), adds.ttft, late)
	add("TTFT p95", "s", sim.Figures["ttftP95Seconds"], p95Of(ttft), adds.ttft, late)
	add("end to end mean", "s", sim.Figures["endToEndMeanSeconds"], meanOfRequests(everyone, endToEnd), adds.endToEnd, late)
	add("end to end p95", "s", sim.Figures["endToEndP95Seconds"], p95Of(endToEnd), adds.endToEnd, late)
	add("shed", "%", sim.Figures["shedPercent"], shedOf, 0, 0)
	for _, l := range sim.Links {
		over := func(r *tried) bool { return r.frontEnd == l.FrontEnd && r.pool == l.Pool }
		share := func(some []tried) float64 { return shareOf(some, l.FrontEnd, l.Pool) }
		if max(share(all), l.SharePercent.Value) < 100*worthJudging {
			continue
		}
		name := fmt.Sprintf("%s → %s: ", l.FrontEnd, l.Pool)
		add(name+"share", "%", l.SharePercent, share, 0, 0)
		add(name+"TTFT mean", "s", l.TTFTMeanSeconds, meanOfRequests(over, ttft), adds.ttft, late)
		add(name+"end to end mean", "s", l.EndToEndMeanSeconds, meanOfRequests(over, endToEnd), adds.endToEnd, late)
	}
	return out
}

// interval judges a figure by how much it differs between stretches of the run (batch
// means), so that what requests of one stretch have in common counts once.
func (tr *trial) interval(all []tried, of func([]tried) float64) interval {
	batches := make([][]tried, trialBatches)
	for _, r := range all {
		k := int((r.at - tr.warmUp) / (tr.seconds - tr.warmUp) * trialBatches)
		k = min(k, trialBatches-1)
		batches[k] = append(batches[k], r)
	}
	var values []float64
	for _, b := range batches {
		if v := of(b); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return interval{of(all), simulate.EstimateOf(values).PlusMinus}
}

func reasons(all []tried) map[string]int {
	out := map[string]int{}
	for i := range all {
		if r := &all[i]; r.pool == "" {
			out[r.reply.Header.Get("x-weir-shed-reason")]++
		}
	}
	return out
}

func ttft(r *tried) float64     { return r.reply.TTFT.Seconds() }
func endToEnd(r *tried) float64 { return r.reply.Took.Seconds() }

// meanOfRequests is the mean of those that were let in and are meant.
func meanOfRequests(meant func(*tried) bool, of func(*tried) float64) func([]tried) float64 {
	return func(some []tried) float64 {
		sum, n := 0.0, 0.0
		for i := range some {
			if r := &some[i]; r.pool != "" && meant(r) {
				sum, n = sum+of(r), n+1
			}
		}
		return sum / n
	}
}

func p95Of(of func(*tried) float64) func([]tried) float64 {
	return func(some []tried) float64 {
		var xs []float64
		for i := range some {
			if some[i].pool != "" {
				xs = append(xs, of(&some[i]))
			}
		}
		return simulate.LatencyOf(xs).P95
	}
}

func shedOf(some []tried) float64 {
	n := 0.0
	for i := range some {
		if some[i].pool == "" {
			n++
		}
	}
	return 100 * n / float64(len(some))
}

// shareOf is the part of what a front-end let in that went to a pool, %.
func shareOf(some []tried, from fleet.FrontEndID, to fleet.PoolID) float64 {
	n, all := 0.0, 0.0
	for i := range some {
		if r := &some[i]; r.frontEnd == from && r.pool != "" {
			all++
			if r.pool == to {
				n++
			}
		}
	}
	return 100 * n / all
}

// benchTrace times weir simulate: an hour of Azure's conversations, twelve regions.
func benchTrace(t *testing.T, f *figures.Report) {
	const trace, most = cases + "/traces/azure-llm-2023-conv.csv", 60
	if _, err := os.Stat(trace); err != nil {
		t.Skip("the trace is not here:", err)
	}
	for _, run := range []struct{ what, policies, rate string }{
		{"one policy", "optimal", "1x"}, {"all policies", "all", "1x"}, {"one policy at 130 RPS, where the fleet is busy", "optimal", "130rps"},
	} {
		began := time.Now()
		c := exec.CommandContext(t.Context(), filepath.Join(bin, "weir"), "simulate", "../testdata/fleets/world.yaml", "--trace", trace, "--policies", run.policies, "--rate", run.rate)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		took, cpu := time.Since(began), c.ProcessState.UserTime()+c.ProcessState.SystemTime()
		t.Logf("%s: %.1f s, %.1f s of a processor", run.what, took.Seconds(), cpu.Seconds())
		f.AtMost("Azure's conversation trace over twelve regions, "+run.what, took.Seconds(), "s", most)
		f.Tell("Azure's conversation trace over twelve regions, "+run.what+", of a processor", cpu.Seconds(), "s")
	}
}

// watchBeliefs tells, when the context ends, the least health and capacity factor of
// each pool since: what a plan that refuses rests on.
func watchBeliefs(t *testing.T, ctx context.Context, s *stage.Stage) <-chan string {
	out := make(chan string, 1)
	go func() {
		least := map[fleet.PoolID]admin.PoolBelief{}
		for {
			select {
			case <-ctx.Done():
				var b strings.Builder
				for _, id := range slices.Sorted(maps.Keys(least)) {
					p := least[id]
					fmt.Fprintf(&b, "%s: %.2f × %.2f (%s); ", id, p.Health, p.CapacityFactor, p.FactorReason)
				}
				out <- b.String()
				return
			case <-time.After(time.Second):
			}
			var now admin.Beliefs
			if err := askJSON(ctx, "http://"+s.AdminAddress("weir")+"/beliefs", &now); err != nil {
				continue // it is but told
			}
			for _, p := range now.Pools {
				if was, known := least[p.Pool]; !known || p.Health*p.CapacityFactor < was.Health*was.CapacityFactor {
					least[p.Pool] = p
				}
			}
		}
	}()
	return out
}

func askJSON(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// watchTimers measures how late timers are, seconds in the mean, until the result is
// asked for.
func watchTimers(t *testing.T) (mean func() float64) {
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan float64, 1)
	go func() {
		sum, n := 0.0, 0.0
		for {
			due := time.Now().Add(20 * time.Millisecond)
			select {
			case <-time.After(time.Until(due)):
				sum, n = sum+time.Since(due).Seconds(), n+1
			case <-ctx.Done():
				result <- sum / max(1, n)
				return
			}
		}
	}()
	return func() float64 {
		stop()
		return <-result
	}
}

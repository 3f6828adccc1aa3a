package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"weir/config"
	"weir/deploy/figures"
	"weir/deploy/stage"
	"weir/fleet"
	"weir/simulate"
	"weir/solver"
	"weir/solver/clp"
	"weir/solver/lp"
)

const (
	liveTokens  = 20   // of every answer
	liveGap     = 0.02 // seconds between two of them
	liveWarmUp  = 15   // seconds
	liveSeconds = 75   // with the warm-up
	liveBlock   = 16   // tokens
)

// liveSlots hold a tenth more than a replica needs at its capacity.
func liveSlots(p *fleet.Profile) int {
	return int(math.Ceil(1.1 * p.CapacityRps * (p.TTFT.At(1) + (liveTokens-1)*liveGap)))
}

// TestBenchPoliciesLive has the talk's three regions served by real parts, under the
// optimal policy and the nearest, and by the simulation of the same. It adds its
// figures to those of the other.
func TestBenchPoliciesLive(t *testing.T) {
	path := os.Getenv(figures.Variable)
	if path == "" {
		t.Skip("a measurement, run by make bench-policies")
	}
	var f figures.Report
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "the talk at a fifth\tTTFT mean, s\tp50\tp95\tp99\tend to end mean, s\tp50\tp95\tp99\tshed, %\tB to C, %\t")
	for _, policy := range []string{fleet.PolicyOptimal, fleet.PolicyNearest} {
		t.Run(policy, func(t *testing.T) { // its parts end with it
			for _, o := range []liveOutcome{live(t, policy), simulated(t, policy)} {
				o.print(w)
				o.tell(&f)
			}
		})
	}
	check(t, w.Flush())
	addFigures(t, path, f.Figures)
}

// addFigures adds to what another target wrote, and leaves that as it is.
func addFigures(t *testing.T, path string, more []figures.Figure) {
	t.Helper()
	var all struct {
		Target  string            `json:"target"`
		Figures []json.RawMessage `json:"figures"`
	}
	text, err := os.ReadFile(path)
	check(t, err)
	check(t, json.Unmarshal(text, &all))
	for _, f := range more {
		text, err := json.Marshal(f)
		check(t, err)
		all.Figures = append(all.Figures, text)
	}
	text, err = json.MarshalIndent(&all, "", "  ")
	check(t, err)
	check(t, os.WriteFile(path, append(text, '\n'), 0o644))
}

// liveOutcome is what clients saw.
type liveOutcome struct {
	name           string
	ttft, endToEnd simulate.Latency
	shed, moved    float64 // parts of all requests, and of B's
}

func (o *liveOutcome) print(w *tabwriter.Writer) {
	fmt.Fprintf(w, "%s", o.name)
	for _, l := range []simulate.Latency{o.ttft, o.endToEnd} {
		fmt.Fprintf(w, "\t%.3f\t%.3f\t%.3f\t%.3f", l.Mean, l.P50, l.P95, l.P99)
	}
	fmt.Fprintf(w, "\t%.2f\t%.1f\t\n", 100*o.shed, 100*o.moved)
}

func (o *liveOutcome) tell(f *figures.Report) {
	for what, l := range map[string]simulate.Latency{"TTFT": o.ttft, "end to end": o.endToEnd} {
		f.Tell(o.name+": "+what+" mean", l.Mean, "s")
		f.Tell(o.name+": "+what+" p50", l.P50, "s")
		f.Tell(o.name+": "+what+" p95", l.P95, "s")
		f.Tell(o.name+": "+what+" p99", l.P99, "s")
	}
	f.Tell(o.name+": shed", 100*o.shed, "%")
	f.Tell(o.name+": B's requests served at C", 100*o.moved, "%")
}

// live serves Poisson arrivals by real Envoys, weir-extprocs and mock engines.
func live(t *testing.T, policy string) liveOutcome {
	t.Helper()
	s := start(t, stage.Options{
		FleetFile: "testdata/talk-fifth.yaml", Distances: true,
		Edit: func(text string) string { return strings.Replace(text, "policy: optimal", "policy: "+policy, 1) },
		EngineFlags: func(id fleet.PoolID) []string {
			slots := liveSlots(&fleet.Profile{CapacityRps: map[fleet.PoolID]float64{"A": 10, "B": 10, "C": 8}[id], TTFT: fleet.Curve{{Utilisation: 0, Seconds: 0.2}, {Utilisation: 1, Seconds: 0.25}}})
			return []string{"--tbt", fmt.Sprint(liveGap, "s"), "--slots", fmt.Sprint(slots), "--answer", fmt.Sprint(liveTokens)}
		},
	})
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), liveSeconds*time.Second)
	defer cancel()
	client := stage.NewClient()
	var mu sync.Mutex // guards replies
	var replies []stage.Reply
	var frontEnds sync.WaitGroup
	for i, fe := range s.Fleet.FrontEnds {
		frontEnds.Go(func() {
			stage.Arrive(ctx, fe.Demand["chat"], uint64(i+1), func(k int) {
				name := fmt.Sprintf("%s-%d", fe.ID, k)
				call := stage.Call{URL: s.URL(fe.ID), Body: liveChat(name), Headers: map[string]string{"x-test-id": name}, Timeout: 5 * time.Minute}
				r := stage.Do(t.Context(), client, call)
				mu.Lock()
				defer mu.Unlock()
				replies = append(replies, r)
			})
		})
	}
	frontEnds.Wait()
	replies = slices.DeleteFunc(replies, func(r stage.Reply) bool { return r.Sent.Sub(began) < liveWarmUp*time.Second })
	out := outcomeOf(t, replies)
	out.name = "live, " + policy
	out.moved = servedAtC(t, s, began.Add(liveWarmUp*time.Second))
	return out
}

// liveChat is a conversation of its own, whose answer is as long as the engine makes
// it.
func liveChat(name string) []byte {
	body, err := json.Marshal(map[string]any{
		"model": "llama-3.3-70b", "stream": true, "messages": []map[string]string{{"role": "user", "content": "conversation " + name}},
	})
	if err != nil {
		panic(err) // strings always marshal
	}
	return body
}

func outcomeOf(t *testing.T, replies []stage.Reply) (o liveOutcome) {
	t.Helper()
	var ttft, endToEnd []float64
	shed := 0
	for i := range replies {
		switch r := &replies[i]; {
		case r.OK():
			ttft, endToEnd = append(ttft, r.TTFT.Seconds()), append(endToEnd, r.Took.Seconds())
		case r.Status == 429:
			shed++
		default:
			t.Errorf("a request failed: %v", r)
		}
	}
	o.ttft, o.endToEnd = simulate.LatencyOf(ttft), simulate.LatencyOf(endToEnd)
	o.shed = float64(shed) / float64(len(replies))
	return o
}

// servedAtC is the part of B's requests that C's engines noted.
func servedAtC(t *testing.T, s *stage.Stage, from time.Time) float64 {
	t.Helper()
	all, atC := 0.0, 0.0
	for _, a := range arrivals(t, s) {
		if a.Time.Before(from) || !strings.HasPrefix(a.Headers["x-test-id"], "B-") {
			continue
		}
		all++
		if a.Pool == "C" {
			atC++
		}
	}
	return atC / all
}

// simulated serves the same in a simulation, ten times as long.
func simulated(t *testing.T, policy string) liveOutcome {
	t.Helper()
	f, err := config.Load("testdata/talk-fifth.yaml")
	check(t, err)
	c := simulate.Config{
		Fleet: f, Engines: map[fleet.PoolID]simulate.Engine{}, Seed: 1,
		Seconds: liveSeconds, WarmUpSeconds: liveWarmUp, DrainSeconds: 300,
		Delays: simulate.Delays{ControlWay: 0.001, Planning: 0.01},
	}
	for i := range f.Pools {
		p := &f.Pools[i].Profile
		c.Engines[f.Pools[i].ID] = simulate.Engine{
			CapacityRps: p.CapacityRps, TTFT: simulate.Line{Idle: p.TTFT.At(0), Full: p.TTFT.At(1)}, TBT: simulate.Line{Idle: liveGap},
			Window: 5, Slots: liveSlots(p), KVTokens: 500_000, Block: liveBlock,
		}
	}
	sessions := simulate.Sessions{
		Turns: 1, ThinkSeconds: 1, Prompt: simulate.Sizes{Mean: 10}, Output: simulate.Sizes{Mean: liveTokens}, Longest: 1000, BlockTokens: liveBlock,
	}
	for i, fe := range f.FrontEnds {
		sessions.Mix.Sources = append(sessions.Mix.Sources, simulate.Source{FrontEnd: i, Rps: fe.Demand["chat"]})
	}
	solve := func(p *lp.Program) (*lp.Solution, error) { return clp.Solve(p, time.Second) }
	plan := solver.Policies(solve)[policy]
	var results []*simulate.Result
	moved, plans := 0.0, 0.0
	for seed := uint64(1); seed <= 10; seed++ {
		c.Seed = seed
		c.Workload, err = sessions.New(seed)
		check(t, err)
		c.Policy = func(s *fleet.State) (*fleet.Plan, error) {
			p, err := plan(s)
			if r := p.Route(fleet.Stream{FrontEnd: "B", Class: "chat"}); err == nil && r.DemandRps > 1 {
				moved += r.ShareOf("C")
				plans++
			}
			return p, err
		}
		r, err := simulate.Run(c)
		check(t, err)
		results = append(results, r)
	}
	return meanOutcome("simulated, "+policy, results, moved/plans)
}

// meanOutcome is the mean over runs.
func meanOutcome(name string, results []*simulate.Result, moved float64) liveOutcome {
	o := liveOutcome{name: name, moved: moved}
	part := 1 / float64(len(results))
	add := func(to *simulate.Latency, l simulate.Latency) {
		to.Mean += part * l.Mean
		to.P50 += part * l.P50
		to.P95 += part * l.P95
		to.P99 += part * l.P99
	}
	for _, r := range results {
		add(&o.ttft, r.TTFT)
		add(&o.endToEnd, r.EndToEnd)
		o.shed += part * r.ShedShare
	}
	return o
}

package simulate

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"weir/fleet"
)

// Variables of the environment by which make bench-policies speaks to the test.
const (
	figuresVariable = "WEIR_FIGURES"
	seedsVariable   = "BENCH_SEEDS"
)

const (
	benchSeeds   = 20
	benchSeconds = 240
)

// unbelieved is the optimal policy without what evidence makes of profiles. It is no
// policy that can be chosen: it shows what the capacity factor does.
const unbelieved = "optimal, no factor"

// TestBenchPolicies compares every policy on two fleets under three kinds of traffic.
func TestBenchPolicies(t *testing.T) {
	path := os.Getenv(figuresVariable)
	if path == "" {
		t.Skip("a measurement, run by make bench-policies")
	}
	seeds := benchSeeds
	if text := os.Getenv(seedsVariable); text != "" {
		var err error
		if seeds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", seedsVariable, err)
		}
	}
	policies := allPolicies()
	out := report{Target: "bench-policies"}
	began := time.Now()
	for _, fleetOf := range []func(traffic, float64) (*scenario, error){theTalk, theWorld} {
		for _, kind := range []func(*testing.T) traffic{madeUp, azure, mooncake} {
			t.Run("", func(t *testing.T) { // of its own, as it skips where a trace is missing
				bench(t, &out, fleetOf, kind(t), policies, seeds)
			})
		}
	}
	out.add("seeds", float64(seeds), math.NaN(), "", benchSeeds)
	out.add("policies", float64(len(policies)-1), math.NaN(), "", float64(len(fleet.Policies())))
	out.add("took", time.Since(began).Seconds(), math.NaN(), "s", 0)
	out.write(t, path)
}

func madeUp(*testing.T) traffic { return sessions }

func allPolicies() []Named {
	var all []Named
	for _, name := range fleet.Policies() {
		all = append(all, Named{name, policy(name)})
	}
	return append(all, Named{unbelieved, believing(optimal)})
}

func bench(t *testing.T, out *report, fleetOf func(traffic, float64) (*scenario, error), k traffic, policies []Named, seeds int) {
	t.Helper()
	s, err := fleetOf(k, benchSeconds)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c, err := Compare(s.config, policies, seeds, runtime.GOMAXPROCS(0))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s: %.0f RPS, %.0f %% of what all engines can do; %d seeds, %.0f s\n",
		s.name, s.mix.Rps(), 100*s.used(), seeds, time.Since(began).Seconds())
	if err := c.Write(os.Stdout); err != nil {
		t.Fatal(err)
	}
	against(c)
	out.add(s.name+": asked for", 100*s.used(), math.NaN(), "% of capacity", 0)
	for i, p := range policies {
		for _, m := range Measures {
			e := c.Of(i, m)
			out.add(fmt.Sprintf("%s, %s: %s", s.name, p.Name, m.Name), e.Mean, e.PlusMinus, m.Unit, 0)
		}
	}
}

// against prints by how much other policies are worse than the optimal one under the
// same seeds, of what they let in.
func against(c *Comparison) {
	best := c.Index(fleet.PolicyOptimal)
	for i, p := range c.Policies {
		if i == best {
			continue
		}
		fmt.Printf("%s against optimal:", p)
		for _, m := range Measures {
			if m.Name == "end to end mean" || m.Name == "TTFT p99" || m.Name == "shed" {
				e := c.Against(i, best, m)
				fmt.Printf(" %s %+.3g ± %.2g %s;", m.Name, e.Mean, e.PlusMinus, m.Unit)
			}
		}
		fmt.Println()
	}
	fmt.Println()
}

// report is what a program reads of the measurement.
type report struct {
	Target  string   `json:"target"`
	Figures []figure `json:"figures"`
}

type figure struct {
	What      string  `json:"what"`
	Value     float64 `json:"value"`
	PlusMinus float64 `json:"plusMinus,omitempty"` // half of the 95 % confidence interval
	Unit      string  `json:"unit"`
	Bar       string  `json:"bar,omitempty"` // empty: it is only told
	Holds     bool    `json:"holds"`
}

// add adds a figure; least above 0 is the bar.
func (r *report) add(what string, value, plusMinus float64, unit string, least float64) {
	f := figure{What: what, Value: value, Unit: unit, Holds: value >= least}
	if !math.IsNaN(plusMinus) {
		f.PlusMinus = plusMinus
	}
	if least > 0 {
		f.Bar = fmt.Sprintf("≥ %v", least)
	}
	r.Figures = append(r.Figures, f)
}

func (r *report) write(t *testing.T, path string) {
	t.Helper()
	for _, f := range r.Figures {
		if !f.Holds {
			t.Errorf("%s: %.4g %s, want %s", f.What, f.Value, f.Unit, f.Bar)
		}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

package simulate

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"weir/deploy/figures"
	"weir/fleet"
)

// Variables of the environment by which make bench-policies speaks to the test.
const (
	seedsVariable = "BENCH_SEEDS"
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
	path := os.Getenv(figures.Variable)
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
	out := figures.Report{Target: "bench-policies"}
	began := time.Now()
	for _, fleetOf := range []func(traffic, float64) (*scenario, error){theTalk, theWorld} {
		for _, kind := range []func(*testing.T) traffic{madeUp, azure, mooncake} {
			t.Run("", func(t *testing.T) { // of its own, as it skips where a trace is missing
				bench(t, &out, fleetOf, kind(t), policies, seeds)
			})
		}
	}
	out.AtLeast("seeds", float64(seeds), "", benchSeeds)
	out.AtLeast("policies", float64(len(policies)-1), "", float64(len(fleet.Policies())))
	out.Tell("took", time.Since(began).Seconds(), "s")
	if err := figures.Write(path, &out); err != nil {
		t.Fatal(err)
	}
}

func madeUp(*testing.T) traffic { return sessions }

func allPolicies() []Named {
	var all []Named
	for _, name := range fleet.Policies() {
		all = append(all, Named{name, policy(name)})
	}
	return append(all, Named{unbelieved, believing(optimal)})
}

func bench(t *testing.T, out *figures.Report, fleetOf func(traffic, float64) (*scenario, error), k traffic, policies []Named, seeds int) {
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
	out.Tell(s.name+": asked for", 100*s.used(), "% of capacity")
	for i, p := range policies {
		for _, m := range Measures {
			e := c.Of(i, m)
			out.Add(figures.Figure{What: fmt.Sprintf("%s, %s: %s", s.name, p.Name, m.Name), Value: e.Mean, PlusMinus: e.PlusMinus, Unit: m.Unit, Holds: true})
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

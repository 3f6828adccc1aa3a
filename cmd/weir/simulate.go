package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/fleet"
	"weir/simulate"
	"weir/solver"
	"weir/solver/clp"
	"weir/solver/lp"
)

// simulation is what weir simulate was asked for.
type simulation struct {
	trace    string
	sessions bool
	talks    simulate.Sessions // but for their mix
	policies string
	duration time.Duration
	warmUp   time.Duration
	seed     uint64
	seeds    int
	rate     string
	plot     string
	progress bool
	kvTokens int
	slots    int
	mapping  mappingFlags
	find     find
}

// mappingFlags are a mapping as it is written: NAME=FLEETNAME, and NAME or NAME=WEIGHT.
type mappingFlags struct {
	mapFrontEnds, mapClasses, frontEnds, classes []string
}

const simulateHelp = `Simulate a fleet under a recorded trace, or under made-up conversations, and show what
its clients would see under each policy. Nothing is asked of a running fleet.

A trace is Azure's (TIMESTAMP,ContextTokens,GeneratedTokens), Mooncake's (JSON lines)
or CSV with a head: seconds,class,front-end,prompt_tokens,output_tokens,conversation,
in any order; class, front-end and conversation may be left out, or empty in a row.
A row that names no front-end or class is drawn as the fleet file declares its demand,
all rows of a conversation alike; --front-end and --class say it otherwise.

With --find POOL it answers how many replicas of a pool are needed: so many that under
every seed the TTFT p95 is met and hardly anything is refused. It searches by bisection,
on the assumption that more replicas never do worse, and tries one more than it finds.`

func newSimulate() *cobra.Command {
	var s simulation
	c := &cobra.Command{
		Use:   "simulate FLEET|-",
		Short: "Simulate what policies do to a fleet under a trace, or how many replicas it needs",
		Long:  simulateHelp,
		Example: `  weir simulate fleet.yaml --trace azure.csv --policies optimal,nearest --plot plots
  weir simulate fleet.yaml --sessions --rate 1.5x --seeds 5
  weir simulate fleet.yaml --trace own.csv --map-front-end cdg=paris --class chat
  weir simulate fleet.yaml --trace own.csv --find eu-h100 --ttft-p95 800ms`,
		Args: args("FLEET"),
	}
	format := outputFlag(c)
	s.trafficFlags(c)
	s.runFlags(c)
	s.find.flags(c)
	c.RunE = func(c *cobra.Command, a []string) error {
		if err := s.check(c, *format); err != nil {
			return err
		}
		sc, err := s.scene(c, a[0])
		if err != nil {
			return err
		}
		if s.find.pool != "" {
			return s.search(c, sc, *format)
		}
		return s.compare(c, sc, *format)
	}
	return c
}

func (s *simulation) trafficFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.trace, "trace", "", "`FILE` of recorded requests; -: standard input")
	f.BoolVar(&s.sessions, "sessions", false, "made-up conversations in place of a trace, as often as the file declares demand")
	f.StringVar(&s.rate, "rate", "1x", "`FACTOR|RPS`: 2x, so many times as fast as recorded or declared, or 40rps")
	f.DurationVar(&s.duration, "duration", 0, "how long requests come (default: the trace once, 4m of conversations); a trace begins anew at its end")
	f.StringArrayVar(&s.mapping.mapFrontEnds, "map-front-end", nil, "`NAME=FRONTEND`: what the trace calls NAME is FRONTEND of the fleet; *=FRONTEND: any other name is")
	f.StringArrayVar(&s.mapping.mapClasses, "map-class", nil, "`NAME=CLASS`, likewise")
	f.StringArrayVar(&s.mapping.frontEnds, "front-end", nil, "`NAME[=WEIGHT]`: rows without a front-end come from here")
	f.StringArrayVar(&s.mapping.classes, "class", nil, "`NAME[=WEIGHT]`: rows without a class are of this one")
	f.Float64Var(&s.talks.Turns, "turns", 4, "of a made-up conversation, in the mean")
	f.Float64Var(&s.talks.ThinkSeconds, "think-seconds", 8, "between an answer and the next turn, in the mean")
	f.IntVar(&s.talks.System, "system-tokens", 256, "at the start of every conversation of a class, the same")
	f.Float64Var(&s.talks.Prompt.Mean, "prompt-tokens", 300, "new ones of a turn, in the mean")
	f.Float64Var(&s.talks.Output.Mean, "output-tokens", 200, "of an answer, in the mean")
}

func (s *simulation) runFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.policies, "policies", "", "by which to plan, separated by commas, or all (default: the file's)")
	f.DurationVar(&s.warmUp, "warm-up", 0, "from the start, that is not measured (default: a quarter of the time, at most 1m)")
	f.Uint64Var(&s.seed, "seed", 1, "the first; the same seed gives the same figures")
	f.IntVar(&s.seeds, "seeds", 1, "how many runs of each policy, each under the next seed (default with --find: 3)")
	f.StringVar(&s.plot, "plot", "", "write drawings of the first seed's runs over time into `DIR`, as SVG")
	f.BoolVar(&s.progress, "progress", false, "tell how far it is on standard error, though that is no terminal")
	f.IntVar(&s.kvTokens, "kv-tokens", 500_000, "size of each engine's KV cache")
	f.IntVar(&s.slots, "slots", 0, "requests that an engine runs at once (default: 15 % more than it holds at utilisation 100 % under this traffic)")
}

// check finds what can be found without reading a file.
func (s *simulation) check(c *cobra.Command, format string) error {
	if s.find.pool != "" && !c.Flags().Changed("seeds") {
		s.seeds = findSeeds
	}
	switch {
	case format != "table" && format != "json" && format != "yaml":
		return show(c.OutOrStdout(), format, nil, nil)
	case s.seed < 1 || s.seeds < 1 || s.seeds > maxSeeds:
		return usage("--seed and --seeds: want at least 1, and at most %d seeds", maxSeeds)
	case s.seed > math.MaxUint64-uint64(s.seeds-1):
		return usage("--seed %d: the last of %d seeds would be beyond %d; say a lower one, or fewer --seeds", s.seed, s.seeds, uint64(math.MaxUint64))
	case s.trace == "" && !s.sessions:
		return usage("there is no traffic: say --trace FILE, recorded requests, or --sessions, made-up ones")
	case s.trace != "" && s.sessions:
		return usage("--trace and --sessions are two kinds of traffic: say one of them")
	case s.duration < 0 || s.warmUp < 0 || s.kvTokens < 1 || s.slots < 0:
		return usage("--duration, --warm-up, --kv-tokens, --slots: want nothing negative, and a token of cache")
	}
	for _, name := range s.policyNames(fleet.PolicyOptimal) {
		if err := fleet.CheckPolicy(name); err != nil {
			return usage("--policies: %w", err)
		}
	}
	if err := s.checkTalks(); err != nil {
		return err
	}
	return s.find.check(s, c.Flags().Changed)
}

// mostTalkTokens bounds the sizes of made-up conversations: what is kept of each prompt
// grows with it.
const mostTalkTokens = 100_000

func (s *simulation) checkTalks() error {
	for _, f := range []struct {
		flag            string
		is, least, most float64
	}{
		{"--turns", s.talks.Turns, 1, 1000},
		{"--think-seconds", s.talks.ThinkSeconds, 0.001, 86_400},
		{"--system-tokens", float64(s.talks.System), 0, mostTalkTokens},
		{"--prompt-tokens", s.talks.Prompt.Mean, 1, mostTalkTokens},
		{"--output-tokens", s.talks.Output.Mean, 1, mostTalkTokens},
	} {
		if !(f.is >= f.least && f.is <= f.most) {
			return usage("%s %v: write %v to %v", f.flag, f.is, f.least, f.most)
		}
	}
	return nil
}

// policyNames are those to simulate; otherwise if nobody says.
func (s *simulation) policyNames(otherwise string) []string {
	switch s.policies {
	case "":
		return []string{otherwise}
	case "all":
		return fleet.Policies()
	}
	return strings.Split(s.policies, ",")
}

const maxSeeds = 1000

// policiesFor are the policies themselves.
func (s *simulation) policiesFor(f *fleet.Fleet) []simulate.Named {
	all := solver.Policies(func(p *lp.Program) (*lp.Solution, error) { return clp.Solve(p, solveLimit) })
	var out []simulate.Named
	for _, name := range s.policyNames(cmp.Or(f.Options.Policy, fleet.PolicyOptimal)) {
		out = append(out, simulate.Named{Name: name, Policy: simulate.Policy(all[name])})
	}
	return out
}

// runs simulates every policy under every seed.
func (s *simulation) runs(ctx context.Context, sc *scene, policies []simulate.Named, p *progress) (*simulate.Comparison, error) {
	p.begin(float64(len(policies)*s.seeds) * sc.seconds)
	defer p.end()
	out, err := simulate.Compare(func(seed uint64) (simulate.Config, error) {
		if ctx.Err() != nil {
			return simulate.Config{}, ctx.Err()
		}
		c, err := sc.config(s.seed + seed - 1)
		c.Watch = p.watch(ctx)
		return c, err
	}, policies, s.seeds, runtime.GOMAXPROCS(0))
	if ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted: %w", ctx.Err())
	}
	return out, err
}

func (s *simulation) compare(c *cobra.Command, sc *scene, format string) error {
	if s.plot != "" {
		sc.parts = plotParts(sc.seconds)
	}
	p := newProgress(c.ErrOrStderr(), s.progress)
	of, err := s.runs(c.Context(), sc, s.policiesFor(sc.fleet), p)
	if err != nil {
		return err
	}
	if s.plot != "" {
		if err := plot(s.plot, of, sc); err != nil {
			return err
		}
	}
	out := s.summary(sc, of)
	return show(c.OutOrStdout(), format, out, func(w *tabwriter.Writer) { simulatedTable(w, out) })
}

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"weir/fleet"
	"weir/simulate"
)

// findSeeds is under how many seeds each number of replicas is tried.
const findSeeds = 3

// find asks how many replicas of a pool are needed.
type find struct {
	pool    string
	ttftP95 time.Duration
	shed    float64 // % of the requests, at most
	most    int
}

// found is the answer.
type found struct {
	Pool            string      `json:"pool"`
	Policy          string      `json:"policy"`
	Has             int         `json:"has"` // in the fleet file
	TTFTP95Seconds  float64     `json:"ttftP95Seconds"`
	MostShedPercent float64     `json:"mostShedPercent"`
	Replicas        int         `json:"replicas,omitempty"` // 0: none up to the most are enough
	MonotoneSoFar   bool        `json:"monotoneSoFar"`      // no step was worse than one with fewer replicas
	Tried           []foundStep `json:"tried"`
	FirstSeed       uint64      `json:"firstSeed"`
	Seeds           int         `json:"seeds"`
	Notes           []string    `json:"notes,omitempty"`
	most            int
}

// foundStep is what came of one number: the worst of all seeds.
type foundStep struct {
	Replicas           int      `json:"replicas"`
	TTFTP95Seconds     *float64 `json:"ttftP95Seconds,omitempty"` // nil: nothing was answered
	ShedPercent        float64  `json:"shedPercent"`
	UtilisationPercent float64  `json:"utilisationPercent"` // of the pool
	Enough             bool     `json:"enough"`
}

func (q *find) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&q.pool, "find", "", "find how many replicas of `POOL` are needed")
	f.DurationVar(&q.ttftP95, "ttft-p95", 0, "with --find: within which 95 of 100 requests have their first token, under every seed")
	f.Float64Var(&q.shed, "max-shed", 1, "with --find: % of the requests that may be refused, under every seed")
	f.IntVar(&q.most, "max", 0, "with --find: the most replicas to try (default: eight times those of the file, at least 16)")
}

func (q *find) check(s *simulation, given func(string) bool) error {
	if q.pool == "" {
		if i := slices.IndexFunc(findFlags, given); i >= 0 {
			return usage("--%s goes with --find POOL, the pool whose replicas are to be found", findFlags[i])
		}
		return nil
	}
	switch {
	case !given("ttft-p95"):
		return usage("--find looks for replicas that keep to a TTFT: say which by --ttft-p95, like 800ms")
	case s.plot != "":
		return usage("--find draws nothing: say either --find or --plot")
	case q.ttftP95 <= 0 || !(q.shed >= 0) || q.most < 0 || q.most > maxFound:
		return usage("--ttft-p95, --max-shed, --max: want a time above 0, nothing negative, and at most %d replicas", maxFound)
	case len(s.policyNames("")) != 1:
		return usage("--find asks about one policy: name one with --policies")
	}
	return nil
}

const maxFound = 10_000

// findFlags mean something with --find alone.
var findFlags = []string{"ttft-p95", "max-shed", "max"}

// search answers, step by step.
func (s *simulation) search(c *cobra.Command, sc *scene, format string) error {
	at := slices.IndexFunc(sc.fleet.Pools, func(p fleet.Pool) bool { return string(p.ID) == s.find.pool })
	if at < 0 {
		return usage("--find: %s has no pool %q", sc.file, s.find.pool)
	}
	policy := s.policiesFor(sc.fleet)
	pool := &sc.fleet.Pools[at]
	out := &found{
		Pool: s.find.pool, Policy: policy[0].Name, Has: len(pool.Engines), TTFTP95Seconds: s.find.ttftP95.Seconds(),
		MostShedPercent: s.find.shed, FirstSeed: s.seed, Seeds: s.seeds, Notes: sc.notes, most: s.find.most,
	}
	if out.most == 0 {
		out.most = max(16, 8*out.Has)
	}
	steps := io.Discard
	if format == "table" {
		steps = c.OutOrStdout()
	}
	out.head(steps, s, sc)
	p := newProgress(c.ErrOrStderr(), s.progress)
	answer, err := simulate.FewestThat(out.Has, out.most, func(n int) (bool, error) {
		of, err := s.runs(c.Context(), sc.with(at, n), policy, p)
		if err != nil {
			return false, err
		}
		if err := measured(of.Results[0], s.seed); err != nil {
			return false, err
		}
		step := out.step(n, of.Results[0], pool.ID)
		out.Tried = append(out.Tried, step)
		out.remember(sc, of)
		step.print(steps)
		return step.Enough, nil
	})
	if err != nil {
		return err
	}
	out.Replicas, out.MonotoneSoFar = answer.Number, answer.Monotone
	return out.tell(c.OutOrStdout(), format)
}

// measured refuses runs in which nothing is measured: they tell of no number whether it
// is enough.
func measured(results []*simulate.Result, firstSeed uint64) error {
	for i, r := range results {
		if r.Measured == 0 {
			return usage("seed %d: no request comes after the warm-up: say a longer --duration, a shorter --warm-up or a higher --rate", firstSeed+uint64(i))
		}
	}
	return nil
}

// remember notes once what plans do not know of caches.
func (f *found) remember(sc *scene, of *simulate.Comparison) {
	if len(f.Tried) == 1 {
		f.Notes = append(f.Notes, cacheNote(sc.fleet, of.Results[0][0].CacheSaves)...)
	}
}

func (f *found) head(w io.Writer, s *simulation, sc *scene) {
	row(w, "how many replicas of %s, for a TTFT p95 of %v and at most %.3g %% refused? It has %d.", f.Pool, s.find.ttftP95, s.find.shed, f.Has)
	row(w, "%s: %.3g RPS for %s, of which the first %s are not measured; policy %s; worst of seeds %d to %d",
		sc.traffic, sc.rps, span(sc.seconds), span(sc.warmUp), f.Policy, f.FirstSeed, f.FirstSeed+uint64(f.Seeds)-1)
	row(w, "\nREPLICAS  TTFT P95, S  SHED, %%  UTILISATION, %%  ENOUGH")
}

// with is the scene with so many replicas in a pool.
func (sc *scene) with(pool, n int) *scene {
	out, f := *sc, *sc.fleet
	f.Pools = slices.Clone(f.Pools)
	p := &f.Pools[pool]
	engines := slices.Clone(p.Engines[:min(n, len(p.Engines))])
	for i := len(engines); i < n; i++ {
		engines = append(engines, fleet.EngineID(fmt.Sprintf("new-replica-%d", i+1)))
	}
	p.Engines = engines
	out.fleet = &f
	return &out
}

// step judges a number by its worst run. Where nothing was answered it is not enough.
func (f *found) step(n int, results []*simulate.Result, pool fleet.PoolID) foundStep {
	out := foundStep{Replicas: n, Enough: true}
	ttft := 0.0
	for _, r := range results {
		ttft = max(ttft, r.TTFT.P95) // not a number, if one is none
		out.ShedPercent = max(out.ShedPercent, 100*r.ShedShare)
		out.UtilisationPercent = max(out.UtilisationPercent, 100*r.Utilisations[pool])
		out.Enough = out.Enough && r.TTFT.P95 <= f.TTFTP95Seconds && 100*r.ShedShare <= f.MostShedPercent
	}
	if !math.IsNaN(ttft) {
		out.TTFTP95Seconds = &ttft
	}
	return out
}

func (s *foundStep) print(w io.Writer) {
	ttft, enough := "-", "no"
	if s.TTFTP95Seconds != nil {
		ttft = fmt.Sprintf("%.3g", *s.TTFTP95Seconds)
	}
	if s.Enough {
		enough = "yes"
	}
	row(w, "%8d  %11s  %7.3g  %14.3g  %s", s.Replicas, ttft, s.ShedPercent, s.UtilisationPercent, enough)
}

func (f *found) tell(w io.Writer, format string) error {
	if format != "table" {
		if err := show(w, format, f, nil); err != nil {
			return err
		}
	} else {
		f.say(w)
	}
	if f.Replicas == 0 {
		return fmt.Errorf("%d replicas of %s are not enough: others may be what is short, look at all pools without --find, or raise --max", f.most, f.Pool)
	}
	return nil
}

func (f *found) say(w io.Writer) {
	row(w, "")
	if f.Replicas > 0 {
		row(w, "replicas of %s that are enough: %d", f.Pool, f.Replicas)
	}
	if !f.MonotoneSoFar {
		row(w, "more replicas did worse at times: the answer is not to be relied on; try more --seeds")
	}
	for _, n := range f.Notes {
		row(w, "%s", n)
	}
}

package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"text/tabwriter"
)

// Named is a policy and what it is called.
type Named struct {
	Name   string
	Policy Policy
}

// Comparison is what came of several policies under the same seeds.
type Comparison struct {
	Policies []string
	Results  [][]*Result // by policy, by seed
}

// Compare runs every policy under the seeds 1 to seeds, so many runs at once. config
// makes the config of a seed but for its policy, anew each time; it is called by many
// goroutines, and may set another seed. All runs have ended when Compare returns.
func Compare(config func(seed uint64) (Config, error), policies []Named, seeds, atOnce int) (*Comparison, error) {
	c := &Comparison{}
	var runs sync.WaitGroup
	slots := make(chan struct{}, max(1, atOnce))
	errs := make([]error, len(policies)*seeds)
	for i, p := range policies {
		c.Policies = append(c.Policies, p.Name)
		results := make([]*Result, seeds) // c.Results grows while runs are under way
		c.Results = append(c.Results, results)
		for k := range seeds {
			slots <- struct{}{}
			runs.Go(func() {
				defer func() { <-slots }()
				var err error
				if results[k], err = runOne(config, p.Policy, uint64(k+1)); err != nil {
					errs[i*seeds+k] = fmt.Errorf("policy %s, seed %d: %w", p.Name, k+1, err)
				}
			})
		}
	}
	runs.Wait()
	return c, errors.Join(errs...)
}

func runOne(config func(seed uint64) (Config, error), p Policy, seed uint64) (*Result, error) {
	c, err := config(seed)
	if err != nil {
		return nil, err
	}
	c.Policy, c.Seed = p, cmp.Or(c.Seed, seed)
	return Run(c)
}

// Measure is one figure of a result.
type Measure struct {
	Name string
	Unit string
	Of   func(*Result) float64
}

// Measures are what policies are compared by.
var Measures = []Measure{
	{"TTFT mean", "s", func(r *Result) float64 { return r.TTFT.Mean }},
	{"TTFT p50", "s", func(r *Result) float64 { return r.TTFT.P50 }},
	{"TTFT p95", "s", func(r *Result) float64 { return r.TTFT.P95 }},
	{"TTFT p99", "s", func(r *Result) float64 { return r.TTFT.P99 }},
	{"end to end mean", "s", func(r *Result) float64 { return r.EndToEnd.Mean }},
	{"end to end p50", "s", func(r *Result) float64 { return r.EndToEnd.P50 }},
	{"end to end p95", "s", func(r *Result) float64 { return r.EndToEnd.P95 }},
	{"end to end p99", "s", func(r *Result) float64 { return r.EndToEnd.P99 }},
	{"shed", "%", func(r *Result) float64 { return 100 * r.ShedShare }},
	{"conversations moved", "%", func(r *Result) float64 { return 100 * r.MovedShare }},
	{"prompt tokens cached", "%", func(r *Result) float64 { return 100 * r.CachedShare }},
	{"share moved a tick", "%", func(r *Result) float64 { return 100 * r.MovedPerTick }},
	{"fullest pool", "%", func(r *Result) float64 { return 100 * r.FullestPoolUsage }},
}

// Estimate is a mean over seeds and how far the true one may be from it: half of its
// 95 % confidence interval.
type Estimate struct{ Mean, PlusMinus float64 }

// EstimateOf judges by Student's t. Of fewer than two values nothing is known of the
// interval, which is then NaN.
func EstimateOf(xs []float64) Estimate {
	n := float64(len(xs))
	m := mean(xs)
	squares := 0.0
	for _, x := range xs {
		squares += (x - m) * (x - m)
	}
	if n < 2 {
		return Estimate{m, math.NaN()}
	}
	return Estimate{m, student(len(xs)-1) * math.Sqrt(squares/(n-1)/n)}
}

// student is the 97.5 % quantile of Student's t, by degrees of freedom.
func student(degrees int) float64 {
	table := [...]float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
		2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}
	if degrees <= len(table) {
		return table[degrees-1]
	}
	return 1.96 + 2.5/float64(degrees) // within 0.001 of it
}

// Of estimates a measure under a policy.
func (c *Comparison) Of(policy int, m Measure) Estimate {
	return EstimateOf(c.values(policy, m))
}

// Against estimates by how much a measure is higher under one policy than under
// another with the same seed.
func (c *Comparison) Against(policy, other int, m Measure) Estimate {
	xs, ys := c.values(policy, m), c.values(other, m)
	for i := range xs {
		xs[i] -= ys[i]
	}
	return EstimateOf(xs)
}

func (c *Comparison) values(policy int, m Measure) []float64 {
	var xs []float64
	for _, r := range c.Results[policy] {
		xs = append(xs, m.Of(r))
	}
	return xs
}

// Index is the place of a policy, −1 if it has none.
func (c *Comparison) Index(policy string) int { return slices.Index(c.Policies, policy) }

// Write prints a table: a row for each measure, a column for each policy.
func (c *Comparison) Write(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, p := range c.Policies {
		fmt.Fprintf(w, "\t%s", p)
	}
	fmt.Fprintln(w, "\t")
	for _, m := range Measures {
		fmt.Fprintf(w, "%s, %s", m.Name, m.Unit)
		for i := range c.Policies {
			e := c.Of(i, m)
			fmt.Fprintf(w, "\t%.3g ± %.2g", e.Mean, e.PlusMinus)
		}
		fmt.Fprintln(w, "\t")
	}
	return w.Flush()
}

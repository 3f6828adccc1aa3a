package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/fit"
	"weir/fleet"
)

// maxResultBytes bounds a benchmark's result: those with each token's time have
// tens of megabytes.
const maxResultBytes = 256 << 20

// fitting is the verb's flags.
type fitting struct {
	fit.Options
	target       time.Duration
	tokens, plot string
	from         traffic
}

func newFit() *cobra.Command {
	var f fitting
	c := &cobra.Command{
		Use:   "fit FILE|-... | --from ADMIN",
		Short: "Make a pool's profile of what benchmarks measured at several loads, or of its traffic",
		Long: "Make a pool's profile of what benchmarks measured at several loads: results of vllm bench serve, GuideLLM or inference-perf, or CSV.\n" +
			"With --from it is made of what a running control plane has seen of a pool's traffic.\n" +
			"The profile goes to standard output, what became of each run to standard error.",
		Example: `  weir fit results/*.json > profile.yaml
  weir fit --ttft-target 500ms --plot eu-h100.svg guidellm/benchmarks.json
  weir fit --from 127.0.0.1:18001 --pool eu-h100`,
		Args: func(c *cobra.Command, a []string) error {
			if (len(a) == 0) == (f.from.address == "") {
				return usage("%s takes FILE..., the results of a benchmark, or --from, the control plane: run '%[1]s --help'", c.CommandPath())
			}
			return f.from.check(c.Flags().Changed)
		},
		RunE: f.run,
	}
	f.flags(c)
	return c
}

func (f *fitting) flags(c *cobra.Command) {
	c.Flags().DurationVar(&f.target, "ttft-target", 0, fmt.Sprintf("TTFT that the capacity keeps to (default %d times the TTFT without load)", fit.DefaultTargetMultiple))
	c.Flags().StringVar(&f.tokens, "tokens", "", "`PROMPT,OUTPUT` tokens of the mean request, where the results do not tell")
	c.Flags().BoolVar(&f.CacheStated, "uncached", false, "no prompt had been sent before: what the results do not tell to be cached was computed")
	c.Flags().StringVar(&f.from.address, "from", "", "`host:port` of the admin API of the control plane whose traffic is taken in place of files")
	c.Flags().StringVar((*string)(&f.from.pool), "pool", "", "with --from: the pool; not needed if only one has had traffic")
	timeoutFlag(c, &f.from.timeout, 5*time.Second, "the control plane, with --from")
	c.Flags().Float64Var(&f.OutputTokenCost, "output-token-cost", fit.DefaultOutputTokenCost, "work of an output token in prompt tokens")
	c.Flags().IntVar(&f.Engines, "engines", 1, "how many engines served the benchmark")
	c.Flags().IntVar(&f.MaxPoints, "points", fit.DefaultMaxPoints, "how many points a curve has at most")
	c.Flags().Uint64Var(&f.Seed, "seed", 0, "of the resampling that the confidence comes from")
	c.Flags().StringVar(&f.plot, "plot", "", "write a picture of runs and curve to `FILE.svg`")
}

func (f *fitting) run(c *cobra.Command, a []string) error {
	f.TargetSeconds = f.target.Seconds()
	if err := fitOptions(&f.Options, f.tokens); err != nil {
		return err
	}
	if f.from.address == "" {
		return fitFiles(c, a, f.Options, f.plot)
	}
	if !c.Flags().Changed("output-token-cost") {
		f.OutputTokenCost = 0 // as the pool's profile has it
	}
	return f.from.fit(c, f.Options, f.plot)
}

// fitOptions checks what flags say.
func fitOptions(o *fit.Options, tokens string) (err error) {
	if tokens != "" {
		if o.Tokens, err = parseTokens(tokens); err != nil {
			return err
		}
	}
	switch {
	case o.TargetSeconds < 0:
		return usage("--ttft-target is negative: write it like 500ms")
	case o.Engines < 1:
		return usage("--engines %d: at least one engine served", o.Engines)
	case o.MaxPoints < 3 || o.MaxPoints > 64:
		return usage("--points %d: a curve has 3 to 64", o.MaxPoints)
	case !(o.OutputTokenCost > 0 && o.OutputTokenCost <= 1e4):
		return usage("--output-token-cost %v: write it like 4", o.OutputTokenCost)
	}
	return nil
}

func parseTokens(text string) (fleet.Tokens, error) {
	prompt, output, _ := strings.Cut(text, ",")
	p, errP := strconv.ParseUint(prompt, 10, 26)
	o, errO := strconv.ParseUint(output, 10, 26)
	if errP != nil || errO != nil || p == 0 {
		return fleet.Tokens{}, usage("--tokens %q: write it like 1000,200", text)
	}
	return fleet.Tokens{Prompt: float64(p), Output: float64(o)}, nil
}

func fitFiles(c *cobra.Command, files []string, o fit.Options, plot string) error {
	var ms []fit.Measurement
	for _, f := range files {
		name, content, err := readResult(c, f)
		if err != nil {
			return err
		}
		read, err := fit.Read(name, content)
		if err != nil {
			return err
		}
		ms = append(ms, read...)
	}
	r, err := fit.Fit(ms, o)
	if err != nil {
		return err
	}
	return showFit(c, r, plot)
}

// showFit writes a fit: the picture, what became of each run, the profile.
func showFit(c *cobra.Command, r *fit.Result, plot string) error {
	if plot != "" {
		if err := os.WriteFile(plot, r.SVG(), 0o644); err != nil {
			return err
		}
	}
	if err := show(c.ErrOrStderr(), "table", r, func(w *tabwriter.Writer) { fitTable(w, r) }); err != nil {
		return err
	}
	_, err := c.OutOrStdout().Write(r.YAML())
	return err
}

func readResult(c *cobra.Command, file string) (name string, content []byte, err error) {
	from := c.InOrStdin()
	if name = "standard input"; file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return file, nil, err
		}
		defer f.Close()
		name, from = file, f
	}
	content, err = io.ReadAll(io.LimitReader(from, maxResultBytes+1))
	if err == nil && len(content) > maxResultBytes {
		err = fmt.Errorf("%s: larger than %d MiB; leave each request's times out", name, maxResultBytes>>20)
	}
	return name, content, err
}

// fitTable says what became of each run.
func fitTable(w *tabwriter.Writer, r *fit.Result) {
	row(w, "LOAD\tTTFT\tCURVE\tTBT\tCURVE\tREQUESTS\tUSE\tFROM")
	for _, p := range r.Points {
		u := p.LoadRps / r.Profile.CapacityRps
		row(w, "%.3g rps\t%s\t%s\t%s\t%s\t%s\t%s\t%s", p.LoadRps,
			ms(p.TTFTSeconds), beside(r.Profile.TTFT, u, p.TTFTResidual, p.Fate),
			orDash(p.TBTSeconds, ms), beside(r.Profile.TBT, u, p.TBTResidual, p.Fate),
			orDash(p.Requests, func(n float64) string { return fmt.Sprintf("%.0f", n) }), p.Fate, p.Source)
	}
	row(w, "\ncapacity\t%.4g rps of one engine (%.4g to %.4g), by %s", r.Profile.CapacityRps, r.CapacityRps.Low, r.CapacityRps.High, r.Bound)
	row(w, "TTFT\t%s without load, target %s", ms(r.UnloadedSeconds), ms(r.TargetSeconds))
	for _, n := range r.Notes {
		row(w, "note\t%s", n)
	}
}

// beside is the curve's value at a load, and how far the run lies beside it.
func beside(c fleet.Curve, utilisation, residual float64, f fit.Fate) string {
	if len(c) == 0 || f != fit.Used && f != fit.Outlier {
		return "-"
	}
	return fmt.Sprintf("%s %+.1f%%", ms(c.At(utilisation)), 100*residual)
}

func orDash(v float64, show func(float64) string) string {
	if v == 0 {
		return "-"
	}
	return show(v)
}

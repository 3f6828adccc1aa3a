// Package demo shows a fleet alive on this machine: real Envoys, their
// weir-extprocs, one control plane, engines at their distances, and clients who
// hold conversations. First all is well; then one part after the other fails and
// comes back. It ends by itself and says whether what was measured is what was
// planned.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/deploy/stage"
	"weir/fleet"
)

// The defaults fit two cores, and a minute with the set-up.
const (
	DefaultLength = 46 * time.Second
	mockScale     = 0.4
)

// Options say what to show.
type Options struct {
	Bin, Envoy, FleetFile string
	Length                time.Duration // of all acts together
	Scale                 float64       // factor on all rates of the fleet file; 0: what fits two cores
	Llama                 *stage.Llama  // real llama.cpp engines; nil: mock engines
	// Seed names the conversations: their names decide which pool each goes to. With the
	// same names in every run their luck would be the same in every run, too.
	Seed uint64
}

// Real engines share this machine's cores with all the rest, and a token of theirs
// is one byte.
const (
	llamaScale       = 0.04
	llamaPromptBytes = 600
	// The system prompt is as long as the reference request's, four bytes a token.
	mockPromptBytes = 4000
)

// Run stages the fleet, plays the acts and draws; it returns an error when a
// request failed that need not, or a measured share is not the planned one.
func Run(ctx context.Context, out io.Writer, o Options) (err error) {
	if o.Scale < 0 || o.Length <= 0 {
		return fmt.Errorf("the scale (%v) and the length (%v) of a demo must be above 0", o.Scale, o.Length)
	}
	if o.Scale == 0 {
		o.Scale = mockScale
		if o.Llama != nil {
			o.Scale = llamaScale
		}
	}
	fmt.Fprintln(out, "starting engines, control plane, ext_procs and Envoys ...")
	s, err := stage.Start(ctx, stage.Options{
		Bin: o.Bin, Envoy: o.Envoy, FleetFile: o.FleetFile, Llama: o.Llama, Distances: o.Llama == nil,
		Edit: o.edit, EngineFlags: o.engineFlags,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	d := newDirector(s, filepath.Base(o.FleetFile), o.Length)
	d.seed = o.Seed
	if o.Llama != nil {
		d.promptBytes = llamaPromptBytes
	}
	if err := d.run(ctx, out); err != nil {
		return err
	}
	return d.verdict(out)
}

// edit fits a fleet file's text to this machine and its engines.
func (o *Options) edit(text string) string {
	if o.Llama != nil {
		text = engineType.ReplaceAllString(text, "engineType: llamacpp")
	}
	text = outputTokens.ReplaceAllString(text, fmt.Sprintf("${1}%d", answerTokens))
	return scaleRates(text, o.Scale)
}

// outputTokens finds the lengths of answers. Those of the demo are short: a real
// length would be all that this machine does.
var outputTokens = regexp.MustCompile(`((?:output|outputTokens): )\d+`)

var engineType = regexp.MustCompile(`engineType: \w+`)

// engineFlags has a mock engine's prefill follow what is not in its KV cache, so
// that a moved conversation costs.
func (o *Options) engineFlags(fleet.PoolID) []string {
	if o.Llama != nil {
		return nil
	}
	return []string{"--reference-prompt", "1000"}
}

// run plays the acts while the plans are followed.
func (d *director) run(ctx context.Context, out io.Writer) error {
	playing, stop := context.WithCancel(ctx)
	defer stop()
	group, playing := errgroup.WithContext(playing)
	for _, fe := range d.stage.Fleet.FrontEnds {
		group.Go(func() error { return d.watch(playing, fe.ID) })
	}
	group.Go(func() error {
		defer stop()
		if err := d.awaitPlans(playing); err != nil {
			return err
		}
		return d.play(playing, out)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("stopped before its end: nothing is judged")
	}
	return nil
}

var rate = regexp.MustCompile(`([0-9.]+) rps`)

// scaleRates multiplies every rate in a fleet file's text.
func scaleRates(text string, by float64) string {
	return rate.ReplaceAllStringFunc(text, func(s string) string {
		x, err := strconv.ParseFloat(rate.FindStringSubmatch(s)[1], 64)
		if err != nil {
			return s // the fleet file's own check will name it
		}
		return strconv.FormatFloat(x*by, 'g', -1, 64) + " rps"
	})
}

// IsTerminal says whether people look at what is written.
func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

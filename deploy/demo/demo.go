// Package demo shows the talk's example alive: three front-ends with real Envoys,
// three pools of mock engines at their distances, one control plane, and clients
// who keep asking. It ends by itself and says whether what was measured is what
// was planned.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/deploy/stage"
)

// The defaults fit two cores, and a minute with the set-up.
const (
	DefaultLength = 25 * time.Second
	DefaultScale  = 0.4
	// Beyond so many standard deviations a difference is no chance: nine cells
	// stay within it in all but one of some 1,700 runs.
	zLimit = 4
)

// Options say what to show.
type Options struct {
	Bin, Envoy, FleetFile string
	Length                time.Duration
	Scale                 float64 // factor on all rates of the fleet file
}

// Run stages the fleet, sends requests and draws; it returns an error when a
// request failed or a measured share is not the planned one.
func Run(ctx context.Context, out io.Writer, o Options) (err error) {
	fmt.Fprintln(out, "starting engines, control plane, ext_procs and Envoys ...")
	s, err := stage.Start(ctx, stage.Options{
		Bin: o.Bin, Envoy: o.Envoy, FleetFile: o.FleetFile,
		Edit: func(text string) string { return scaleRates(text, o.Scale) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	d := newDirector(s, o.Length)
	if err := d.run(ctx, out); err != nil {
		return err
	}
	return d.verdict(out)
}

func (d *director) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, fe := range d.stage.Fleet.FrontEnds {
		group.Go(func() error { return d.watch(ctx, fe.ID) })
	}
	group.Go(func() error {
		defer cancel()
		if err := d.awaitPlans(ctx); err != nil {
			return err
		}
		return d.send(ctx, out)
	})
	err := group.Wait()
	if errors.Is(err, context.Canceled) && d.done {
		return nil
	}
	return err
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

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

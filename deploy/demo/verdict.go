package demo

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// verdict tells the story again, act by act, and judges it.
func (d *director) verdict(out io.Writer) error {
	all, err := d.located()
	if err != nil {
		return err
	}
	d.summary(out, all)
	cells := newCells(d.stage.Fleet)
	var errs []error
	sent := 0
	for _, a := range d.script {
		o := a.tally(all)
		sent += o.sent
		if o.failed > 0 {
			errs = append(errs, fmt.Errorf("act %q: %d of %d requests failed, the first with %v", a.title, o.failed, o.sent, &o.first.reply))
		}
		count(cells, &d.history, slices.DeleteFunc(slices.Clone(all), func(t turn) bool { return !a.judged(&t) }))
	}
	w := worst(cells)
	switch {
	case sent == 0:
		errs = append(errs, fmt.Errorf("no request was sent in %v: lengthen --for", d.length))
	case d.stage.Journals() && math.Abs(w.z()) > zLimit:
		errs = append(errs, fmt.Errorf("measured is not planned: %s %s → %s got %d conversations, the plans in force asked for %.1f (z = %.1f; --seed %d has the same conversations)",
			w.frontEnd, w.class, w.pool, w.got, w.expected, w.z(), d.seed))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !d.stage.Journals() {
		fmt.Fprintln(out, "\nNothing failed that need not. Shares are not judged: these engines do not note who asked them.")
	} else {
		fmt.Fprintf(out, "\nMeasured met planned: the worst of %d shares, judged where a plan had settled, is %.1f\nstandard deviations of chance from its plan (limit %d).\n", len(cells), math.Abs(w.z()), zLimit)
	}
	return nil
}

// summary is a line for each act.
func (d *director) summary(out io.Writer, all []turn) {
	fmt.Fprintf(out, "What happened at %s, act by act; conversations are named by a header / a body\nfield / their beginning:\n\n", d.script[0].at)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ACT\tREQUESTS\tFAILED\tCUT\tSHED\tCACHED %\tMOVED")
	for i, a := range d.script {
		o := a.tally(all)
		there := follow(all, func(t *turn) bool { return t.frontEnd == a.at && a.holds(t) })
		moved := "unknown"
		if d.stage.Journals() {
			moved = fmt.Sprintf("%d / %d / %d", there[byHeader].moved, there[byField].moved, there[byBeginning].moved)
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%s / %s / %s\t%s\n", i+1, o.sent, o.failed, o.cut, o.shed,
			share(there[byHeader].cachedShare()), share(there[byField].cachedShare()), share(there[byBeginning].cachedShare()), moved)
	}
	w.Flush()
	fmt.Fprintln(out)
	for i, a := range d.script {
		fmt.Fprintf(out, "%d  %s\n", i+1, a.title)
	}
}

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"weir/admin"
	"weir/fleet"
)

// beliefsLegend explains what does not speak for itself.
const beliefsLegend = `±            one standard error: what chance does to a mean; left out while it is not known
-, ( )       not known; known, and too old or too odd to be acted on
DOUBT        by how much demand may be too high yet
VERSUS POOL  the signal in which the engine lies highest above its pool's median: z counts in what
             is usual in the pool, and 3.5 or more makes an outlier`

// beliefsTable shows what is believed, by what error it may be off, how old it is and
// where it comes from, within a hundred columns unless names are long. What takes
// sentences stands below, in the notes.
func beliefsTable(w *tabwriter.Writer, b *admin.Beliefs) {
	row(w, "FRONT-END\tCLASS\tDEMAND\tDOUBT\tAGE\tSOURCE")
	for _, d := range b.Demand {
		row(w, "%s\t%s\t%s\t%.2f\t%s\t%s", d.FrontEnd, d.Class, mean(d.Rps, d.StdErrRps, rps), d.DoubtRps, known(d.AgeSeconds, seconds), d.Source)
	}
	row(w, "\nCLASS\tPROMPT\tOUTPUT\tAGE\tMEASURED ON")
	for _, c := range b.Classes {
		if c.PromptTokens+c.OutputTokens == 0 && c.Requests < 1 {
			row(w, "%s\t-\t-\t-\tnothing: as each pool's reference", c.Class)
			continue
		}
		row(w, "%s\t%s\t%s\t%s\t%s", c.Class, mean(c.PromptTokens, c.PromptStdErrTokens, count),
			mean(c.OutputTokens, c.OutputStdErrTokens, count), known(c.AgeSeconds, seconds), basis(&c))
	}
	row(w, "\nFRONT-END\tPOOL\tROUND TRIP\tAGE\tSOURCE")
	for _, l := range b.Network {
		source := "declared"
		if l.Measured {
			source = "measured"
		}
		row(w, "%s\t%s\t%s\t%s\t%s", l.FrontEnd, l.Pool, latency(l.RoundTripSeconds, l.StdErrSeconds), known(l.AgeSeconds, seconds), source)
	}
	poolTables(w, b.Pools)
	notes(w, b.Pools)
	row(w, "\n%s", beliefsLegend)
}

// poolTables shows how fast pools and engines are as front-ends see them, and what
// engines tell of themselves.
func poolTables(w *tabwriter.Writer, pools []admin.PoolBelief) {
	row(w, "\nas front-ends see them:\nPOOL\tLOAD\tFACTOR\tTTFT\tTBT\tAGE")
	for _, p := range pools {
		row(w, "%s\t%s\t%.2f\t%s\t%s\t%s", p.Pool, known(p.Load, rps), p.CapacityFactor,
			seen(p.TTFTSeconds, p.TTFTStdErrSeconds), seen(p.TBTSeconds, p.TBTStdErrSeconds), known(p.AgeSeconds, seconds))
	}
	row(w, "\nPOOL\tENGINE\tTTFT\tTBT\tAGE\tVERSUS POOL")
	for _, p := range pools {
		for _, e := range p.Engines {
			row(w, "%s\t%s\t%s\t%s\t%s\t%s", p.Pool, e.Engine, toldMean(e.SeenTTFTSeconds), toldMean(e.SeenTBTSeconds),
				age(e.SeenTTFTSeconds, e.SeenTBTSeconds), farthest(e.Deviations))
		}
	}
	row(w, "\nby their own word:\nPOOL\tENGINE\tREADY\tSPEAKS\tRUNNING\tWAITING\tKV\tTTFT\tTBT\tAGE")
	for _, p := range pools {
		for _, e := range p.Engines {
			row(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", p.Pool, e.Engine, e.Readiness, dash(e.Dialect),
				told(e.Running, count), told(e.Waiting, count), told(e.KVUsage, percentage),
				told(e.TTFTSeconds, brief), told(e.TBTSeconds, brief), age(e.Running, e.Waiting))
		}
	}
}

// notes says in words what is unusual.
func notes(w *tabwriter.Writer, pools []admin.PoolBelief) {
	lines := []string{"\nnotes:"}
	add := func(format string, values ...any) {
		lines = append(lines, wrap("- "+plain(fmt.Sprintf(format, values...))))
	}
	for _, p := range pools {
		if p.FactorReason != "" {
			add("pool %s: factor %.2f: %s", p.Pool, p.CapacityFactor, p.FactorReason)
		}
		for _, e := range p.Engines {
			if e.Why != "" {
				add("pool %s, engine %s: %s", p.Pool, e.Engine, e.Why)
			}
			for _, d := range e.Deviations {
				if d.Outlier {
					add("pool %s, engine %s: %s, z = %.1f", p.Pool, e.Engine, outlying(&d), d.Z)
				}
			}
		}
	}
	if len(lines) > 1 {
		row(w, "%s", strings.Join(lines, "\n"))
	}
}

func outlying(d *admin.DeviationBelief) string {
	what := strings.ToUpper(string(d.Signal)) + " is " + brief(d.Value)
	if requests(d.Signal) {
		what = count(d.Value) + " requests are " + string(d.Signal)
	}
	if d.Ratio == nil {
		return what + ", where the pool's median is 0"
	}
	return what + ", " + digits(*d.Ratio, 2) + "× the pool's median"
}

func requests(s fleet.Signal) bool { return s == fleet.SignalRunning || s == fleet.SignalWaiting }

// farthest is the signal with the largest z, if that is above what is usual.
func farthest(all []admin.DeviationBelief) string {
	if len(all) == 0 {
		return "-"
	}
	most := &admin.DeviationBelief{Z: 1}
	for i := range all {
		if all[i].Z > most.Z {
			most = &all[i]
		}
	}
	switch {
	case most.Signal == "":
		return "usual"
	case most.Ratio == nil:
		return fmt.Sprintf("%s, z %.1f", most.Signal, most.Z)
	}
	return fmt.Sprintf("%s %s×, z %.1f", most.Signal, digits(*most.Ratio, 2), most.Z)
}

func basis(c *admin.ClassBelief) string {
	if c.Requests < 1 {
		return "nothing: declared"
	}
	return fmt.Sprintf("%.0f requests, %.0f %% of them estimated", c.Requests, 100*c.Estimated/c.Requests)
}

func count(x float64) string      { return fmt.Sprintf("%.0f", x) }
func percentage(x float64) string { return fmt.Sprintf("%.0f%%", 100*x) }
func rps(x float64) string        { return fmt.Sprintf("%.2f", x) }

// latency writes seconds in three digits, in the unit in which people think of them,
// and what chance does to them in two.
func latency(x float64, stdErr *float64) string {
	if stdErr == nil {
		return briefly(x, 3)
	}
	return briefly(x, 3) + " ±" + briefly(*stdErr, 2)
}

func brief(x float64) string { return briefly(x, 3) }

func briefly(x float64, n int) string {
	if x >= 1 {
		return digits(x, n) + "s"
	}
	return digits(1000*x, n) + "ms"
}

// digits writes a number with so many digits that count, without an exponent, and not
// beyond the third place.
func digits(x float64, n int) string {
	const places = 3
	if !(math.Abs(x) >= math.Pow10(-places)) {
		return "0"
	}
	return strconv.FormatFloat(x, 'f', min(places, max(0, n-1-int(math.Floor(math.Log10(math.Abs(x)))))), 64)
}

// mean writes what is believed and, where it is known, what chance does to it.
func mean(x float64, stdErr *float64, print func(float64) string) string {
	if stdErr == nil {
		return print(x)
	}
	return print(x) + " ±" + print(*stdErr)
}

func known(x *float64, print func(float64) string) string {
	if x == nil {
		return "-"
	}
	return print(*x)
}

func seen(x, stdErr *float64) string {
	return known(x, func(x float64) string { return latency(x, stdErr) })
}

func told(t *admin.Told, print func(float64) string) string {
	if t == nil {
		return "-"
	}
	return bracket(t, print(t.Value))
}

func toldMean(t *admin.Told) string {
	if t == nil {
		return "-"
	}
	return bracket(t, latency(t.Value, t.StdErr))
}

func bracket(t *admin.Told, s string) string {
	if t.Stale {
		return "(" + s + ")"
	}
	return s
}

// age is that of the first value that is known.
func age(values ...*admin.Told) string {
	for _, t := range values {
		if t != nil {
			return seconds(t.AgeSeconds)
		}
	}
	return "-"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// wrap breaks a text between words so that its lines have no more than a hundred
// columns; all but the first are indented.
func wrap(text string) string {
	const most, indent = 100, "\n  "
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > most:
			out.WriteString(indent)
			column = len(indent) - 1
		default:
			out.WriteString(" ")
			column++
		}
		out.WriteString(word)
		column += n
	}
	return out.String()
}

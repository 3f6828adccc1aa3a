package main

import (
	"fmt"
	"text/tabwriter"

	"weir/admin"
)

// beliefsTable shows what is believed, how old it is and where it comes from. A dash
// is what is not known; a value in brackets is stale and not acted on.
func beliefsTable(w *tabwriter.Writer, b *admin.Beliefs) {
	row(w, "FRONT-END\tCLASS\tDEMAND\tDOUBT\tSOURCE")
	for _, d := range b.Demand {
		row(w, "%s\t%s\t%.2f\t%.2f\t%s", d.FrontEnd, d.Class, d.Rps, d.DoubtRps, d.Source)
	}
	row(w, "\nCLASS\tPROMPT\tOUTPUT\tMEASURED ON")
	for _, c := range b.Classes {
		row(w, "%s\t%.0f\t%.0f\t%s", c.Class, c.PromptTokens, c.OutputTokens, basis(&c))
	}
	row(w, "\nPOOL\tLOAD\tTTFT\tFACTOR\tBECAUSE")
	for _, p := range b.Pools {
		row(w, "%s\t%s\t%s\t%.2f\t%s", p.Pool, hundredths(p.Load), known(p.TTFTSeconds, ms), p.CapacityFactor, plain(p.FactorReason))
	}
	row(w, "\nPOOL\tENGINE\tREADY\tSPEAKS\tRUNNING\tWAITING\tKV\tTTFT\tTBT\tAGE\tWHY")
	for _, p := range b.Pools {
		for _, e := range p.Engines {
			row(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", p.Pool, e.Engine, e.Readiness, dash(e.Dialect),
				told(e.Running, count), told(e.Waiting, count), told(e.KVUsage, percentage),
				told(e.TTFTSeconds, ms), told(e.TBTSeconds, ms), age(e.Running, e.Waiting), plain(e.Why))
		}
	}
	row(w, "\nFRONT-END\tPOOL\tROUND TRIP\tSOURCE")
	for _, l := range b.Network {
		source := "declared"
		if l.Measured {
			source = "measured"
		}
		row(w, "%s\t%s\t%s\t%s", l.FrontEnd, l.Pool, ms(l.RoundTripSeconds), source)
	}
}

func basis(c *admin.ClassBelief) string {
	if c.Requests < 1 {
		return "nothing: declared"
	}
	return fmt.Sprintf("%.0f requests, %.0f %% of them estimated", c.Requests, 100*c.Estimated/c.Requests)
}

func count(x float64) string      { return fmt.Sprintf("%.0f", x) }
func percentage(x float64) string { return fmt.Sprintf("%.0f%%", 100*x) }

func hundredths(x *float64) string {
	return known(x, func(x float64) string { return fmt.Sprintf("%.2f", x) })
}

func known(x *float64, print func(float64) string) string {
	if x == nil {
		return "-"
	}
	return print(*x)
}

func told(t *admin.Told, print func(float64) string) string {
	switch {
	case t == nil:
		return "-"
	case t.Stale:
		return "(" + print(t.Value) + ")"
	}
	return print(t.Value)
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

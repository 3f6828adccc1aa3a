package dialect

import "fmt"

// Values are what a page says of an engine.
type Values struct {
	Running, Waiting              Value // requests
	KVUsage                       Value // 0–1
	TTFT, TBT                     Histogram
	PromptTokens, GeneratedTokens Value // since the engine began
}

// Any says whether anything is known.
func (v *Values) Any() bool {
	return v.Running.Known() || v.Waiting.Known() || v.KVUsage.Known() || v.TTFT.Known() || v.TBT.Known() ||
		v.PromptTokens.Known() || v.GeneratedTokens.Known()
}

// Stale returns the values as they are believed once no newer page could be had.
func (v Values) Stale() Values {
	return Values{
		Running: v.Running.stale(), Waiting: v.Waiting.stale(), KVUsage: v.KVUsage.stale(),
		TTFT: v.TTFT.stale(), TBT: v.TBT.stale(),
		PromptTokens: v.PromptTokens.stale(), GeneratedTokens: v.GeneratedTokens.stale(),
	}
}

// Window is what happened at an engine between two of its pages.
type Window struct {
	TTFT, TBT                     Histogram
	PromptTokens, GeneratedTokens Value
	Reset                         bool // a counter began anew; it says what happened since
}

// Between tells two pages of one engine apart. What either does not know, or what
// is made of other series than before (a rank is missing, a model was added), is
// unknown.
func Between(before, after *Values) Window {
	var w Window
	var resets [4]bool
	w.TTFT, resets[0] = after.TTFT.since(before.TTFT)
	w.TBT, resets[1] = after.TBT.since(before.TBT)
	w.PromptTokens, resets[2] = after.PromptTokens.since(before.PromptTokens)
	w.GeneratedTokens, resets[3] = after.GeneratedTokens.since(before.GeneratedTokens)
	w.Reset = resets != [4]bool{}
	return w
}

// Page is what was read of one page.
type Page struct {
	Dialect string // empty: none that is known
	Values  Values
	Names   [fields]string // the metric that each field was read from; empty: unknown
	Notes   []string       // what was dropped and why; capped
	Dropped int            // samples, however many are noted
	Cut     bool           // the page ended before its end

	declared [fields]string // a metric of a field that has no sample
	without  [fields]bool   // the dialect has no metric for the field
}

// Missing says of each field that is unknown, why.
func (p *Page) Missing() []string {
	var all []string
	for f := range fields {
		switch {
		case f == TTFT && p.Values.TTFT.empty(), f == TBT && p.Values.TBT.empty():
			all = append(all, fmt.Sprintf("%s has no mean: nothing was observed yet", f))
		case p.Names[f] != "":
		case p.without[f]:
			all = append(all, fmt.Sprintf("%s is unknown: %s has no metric for it", f, p.Dialect))
		case p.declared[f] != "":
			all = append(all, fmt.Sprintf("%s is unknown: %s has no sample that can be used", f, p.declared[f]))
		default:
			all = append(all, fmt.Sprintf("%s is unknown: the page has no metric for it", f))
		}
	}
	return all
}

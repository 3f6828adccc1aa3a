// Package dialect reads what inference engines tell of themselves on their
// metrics pages: it turns a page in Prometheus' text format into [Values].
//
// It is pure: a page is an io.Reader, time is nobody's business here.
//
// # What a page says
//
// Every engine has names of its own for the same few things, and changes them
// between versions. A [Dialect] is the table of these names, best first; a
// [Table] holds all dialects, so that one look-up of a name recognises the
// dialect as well. Where a page has several names of one thing, the first that
// has a sample rules; they are never added.
//
// Series of one name are those of data-parallel ranks or of several models on one
// engine: counts are summed, histograms merged, and of the KV cache's usage the
// highest rules. Ranks that work in lockstep on the same requests (tensor and
// pipeline parallel) count once.
//
// # What is not known
//
// A value is known or unknown, never silently zero. A name that is only declared
// (HELP, TYPE) is unknown; an idle engine's zero is a zero. A sample that cannot
// be true (NaN, infinite, negative, twice the same series, torn) is dropped, with
// a note that names it, and the others are used. Where a page ends before its
// end, the metric at the cut is unknown, for it may lack ranks.
//
// Time and memory are bounded by [MaxPage] and the caps of a [Reader].
package dialect

import "fmt"

// Field is one of the things that Weir wants to know of an engine.
type Field int

// The fields.
const (
	Running         Field = iota // requests being worked on
	Waiting                      // requests in the engine's queue
	KVUsage                      // share of the KV cache in use, 0–1
	TTFT                         // seconds to the first token: a histogram
	TBT                          // seconds between tokens: a histogram
	PromptTokens                 // prompt tokens taken in: a counter
	GeneratedTokens              // tokens made: a counter
	fields
)

var fieldNames = [fields]string{"running", "waiting", "kvUsage", "ttft", "tbt", "promptTokens", "generatedTokens"}

func (f Field) String() string { return fieldNames[f] }

// ParseField returns the field of a name.
func ParseField(name string) (Field, error) {
	for f, n := range fieldNames {
		if n == name {
			return Field(f), nil
		}
	}
	return 0, fmt.Errorf("unknown field %q: write one of %q", name, fieldNames)
}

func (f Field) isHistogram() bool { return f == TTFT || f == TBT }

// Names are the series that carry one field, best first.
type Names []Series

// Series names where a field is read from.
type Series struct {
	Name     string  // of a histogram or summary without _bucket, _sum, _count
	Label    string  // only samples whose label of this name
	Is       string  // has this value, as written on the page; empty Label: all
	Scale    float64 // what the page's numbers are multiplied by; 0 stands for 1
	Versions string  // of the engine that have it, for readers
}

// Dialect is how one kind of engine writes its page.
type Dialect struct {
	Name     string
	Prefixes []string // of all its metrics' names: what it is recognised by
	Paths    []string // where engines serve the page, likeliest first
	Lockstep []string // labels of ranks that work on the same requests
	Fields   [fields]Names
}

// Override is what an operator knows better of the engines of one pool.
type Override struct {
	Dialect string          // pages are read as this one only; empty: recognised
	Paths   []string        // empty: the dialect's
	Fields  map[Field]Names // replace the names of these fields; without Dialect, these are all
}

func (d Dialect) with(o Override) Dialect {
	if len(o.Paths) > 0 {
		d.Paths = o.Paths
	}
	for f, names := range o.Fields {
		d.Fields[f] = names
	}
	return d
}

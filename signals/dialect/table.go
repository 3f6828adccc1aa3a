package dialect

import (
	"bytes"
	"fmt"
	"slices"
)

// Table holds dialects, ready for looking up names. It does not change, and any
// number of readers may share it.
type Table struct {
	dialects []Dialect
	slots    []slot
	names    map[string][]entry
}

// slot is one name of one field of one dialect.
type slot struct {
	dialect int
	field   Field
	Series
	text string // the name as a page writes it
}

// entry says what a sample of some name is to a slot.
type entry struct {
	slot int
	part part
}

type part int

const (
	whole    part = iota // the value itself
	bucket               // of a histogram
	sum                  // of a histogram or summary
	count                // of a histogram or summary
	declared             // nothing: the name stands in HELP and TYPE only
)

// NewTable returns a table of dialects; where two fit a page equally well, the
// earlier rules.
func NewTable(dialects ...Dialect) *Table {
	t := &Table{dialects: dialects, names: map[string][]entry{}}
	for d := range dialects {
		for f := range fields {
			for _, s := range dialects[d].Fields[f] {
				t.add(slot{dialect: d, field: f, Series: s})
			}
		}
	}
	return t
}

func (t *Table) add(s slot) {
	if s.Scale == 0 {
		s.Scale = 1
	}
	s.text = s.written()
	i := len(t.slots)
	t.slots = append(t.slots, s)
	enter := func(name string, p part) { t.names[name] = append(t.names[name], entry{i, p}) }
	if !s.field.isHistogram() {
		enter(s.Name, whole)
		return
	}
	enter(s.Name, declared)
	enter(s.Name+"_bucket", bucket)
	enter(s.Name+"_sum", sum)
	enter(s.Name+"_count", count)
}

// written is the name as a page writes it.
func (s *Series) written() string {
	if s.Label == "" {
		return s.Name
	}
	return s.Name + "{" + s.Label + `="` + s.Is + `"}`
}

// With returns a table for engines of which an operator knows better.
func (t *Table) With(o Override) (*Table, error) {
	d := Dialect{Name: "custom", Paths: []string{metricsPath}}
	switch {
	case o.Dialect != "":
		i := slices.IndexFunc(t.dialects, func(d Dialect) bool { return d.Name == o.Dialect })
		if i < 0 {
			return nil, fmt.Errorf("unknown dialect %q: write one of %q", o.Dialect, t.dialectNames())
		}
		d = t.dialects[i]
	case len(o.Fields) == 0:
		return t.withPaths(o.Paths), nil
	}
	return NewTable(d.with(o)), nil
}

func (t *Table) withPaths(paths []string) *Table {
	all := slices.Clone(t.dialects)
	for i := range all {
		all[i] = all[i].with(Override{Paths: paths})
	}
	return NewTable(all...)
}

func (t *Table) dialectNames() []string {
	var names []string
	for _, d := range t.dialects {
		names = append(names, d.Name)
	}
	return names
}

// Paths are where an engine may serve its page: first those of the dialect that
// it is taken for, then those of all others, each once.
func (t *Table) Paths(likely string) []string {
	var paths []string
	add := func(d Dialect) {
		for _, p := range d.Paths {
			if !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	for _, d := range t.dialects {
		if d.Name == likely {
			add(d)
		}
	}
	for _, d := range t.dialects {
		add(d)
	}
	return paths
}

// prefixed returns the dialect that a name belongs to by its prefix, or -1.
func (t *Table) prefixed(name []byte) int {
	for d := range t.dialects {
		for _, p := range t.dialects[d].Prefixes {
			if len(name) > len(p) && string(name[:len(p)]) == p {
				return d
			}
		}
	}
	return -1
}

// inLockstep says whether a label tells ranks that work on the same requests.
func (t *Table) inLockstep(s *slot, label []byte) bool {
	for _, l := range t.dialects[s.dialect].Lockstep {
		if bytes.Equal(label, []byte(l)) {
			return true
		}
	}
	return false
}

package dialect

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// MaxPage is how many bytes of a page are read, unpacked.
	MaxPage = 16 << 20
	// maxLine is the length of the longest line that is read; longer ones are
	// skipped.
	maxLine = 64 << 10

	maxSeries  = 512   // of one metric
	maxBuckets = 16384 // of all histograms of a page
	maxNotes   = 16    // of one page
	maxQuoted  = 80    // bytes of a page's own text in a note
)

// ErrTooLong says that a page is longer than [MaxPage].
var ErrTooLong = errors.New("the page is longer than 16 MiB: its rest was not read")

// Reader reads one page at a time and keeps its memory for the next. It belongs
// to one goroutine.
type Reader struct {
	table *Table
	in    *bufio.Reader

	found   []found // by slot
	seen    []bool  // by dialect: some name of it was there
	series  int     // kept of this page
	buckets int     // kept of this page
	notes   []string
	dropped int
	isCut   bool

	lastName    []byte // and what was found for it, for the next line is likely of the same metric
	lastEntries []entry
	open        []entry // what the line just read was of
}

// NewReader returns a reader of pages in the dialects of a table.
func NewReader(t *Table) *Reader {
	return &Reader{
		table: t,
		in:    bufio.NewReaderSize(nil, maxLine),
		found: make([]found, len(t.slots)),
		seen:  make([]bool, len(t.dialects)),
	}
}

// Read reads a page. Likely is the dialect to prefer where others fit as well;
// it may be empty. An error says that the page could not be read to its end; what
// was read of it is returned nevertheless.
func (r *Reader) Read(src io.Reader, likely string) (Page, error) {
	r.reset(src)
	err := r.readLines()
	r.in.Reset(nil)
	return r.page(likely), err
}

func (r *Reader) reset(src io.Reader) {
	r.in.Reset(src)
	if r.series > maxSeries || r.buckets > maxBuckets/4 {
		r.found = make([]found, len(r.table.slots)) // do not keep what one odd page needed
	}
	for i := range r.found {
		r.found[i].reset()
	}
	clear(r.seen)
	r.series, r.buckets, r.dropped, r.notes, r.isCut = 0, 0, 0, nil, false
	r.lastName, r.lastEntries, r.open = r.lastName[:0], nil, nil
}

func (r *Reader) readLines() error {
	long := false // within a line that is too long
	for left := MaxPage; ; {
		line, err := r.in.ReadSlice('\n')
		left -= len(line)
		switch {
		case left < 0:
			r.cut(nil)
			return ErrTooLong
		case err == bufio.ErrBufferFull:
			if !long {
				r.skip(line)
			}
			long = true
		case err == nil && long:
			long = false
		case err == nil:
			r.line(line[:len(line)-1])
		case err == io.EOF:
			if len(line) > 0 && !long {
				r.cut(line)
			}
			return nil
		default:
			r.cut(line)
			return err
		}
	}
}

func (r *Reader) line(line []byte) {
	line = trimBlanks(bytes.TrimSuffix(line, []byte("\r")))
	r.open = nil
	switch {
	case len(line) == 0:
	case line[0] == '#':
		for _, e := range r.look(typedName(line)) {
			r.found[e.slot].declared = true
		}
	default:
		var rest []byte
		r.open, rest = r.lookLine(line)
		for _, e := range r.open {
			r.sample(e, rest)
		}
	}
}

// lookLine is look for the name that a line begins with; rest is what follows it.
// As a rule it is the name of the line before.
func (r *Reader) lookLine(line []byte) (found []entry, rest []byte) {
	if n := len(r.lastName); n > 0 && len(line) > n && endsName(line[n]) && bytes.Equal(line[:n], r.lastName) {
		return r.lastEntries, line[n:]
	}
	name, rest := splitName(line)
	return r.look(name), rest
}

// look returns what a name is to the table, and marks its dialect as seen.
func (r *Reader) look(name []byte) []entry {
	switch {
	case len(name) == 0:
		return nil
	case bytes.Equal(name, r.lastName):
		return r.lastEntries
	}
	entries := r.table.names[string(name)]
	for _, e := range entries {
		r.seen[r.table.slots[e.slot].dialect] = true
	}
	if d := r.table.prefixed(name); d >= 0 {
		r.seen[d] = true
	}
	r.lastName, r.lastEntries = append(r.lastName[:0], name...), entries
	return entries
}

// sample takes in one sample's labels and value.
func (r *Reader) sample(e entry, rest []byte) {
	s, f := &r.table.slots[e.slot], &r.found[e.slot]
	f.declared = true
	if e.part == declared {
		return
	}
	id, le, rest, ok := r.identify(s, e.part, rest)
	if !ok {
		r.drop(s, "unreadable labels", rest)
		return
	}
	if !id.selected {
		return
	}
	x, ok := number(rest)
	switch {
	case !ok:
		r.drop(s, "no number", rest)
	case !s.plausible(e.part, x):
		r.drop(s, "a value that cannot be", rest)
	case e.part == whole:
		r.point(s, f, id, x*s.Scale)
	case e.part == bucket:
		r.bucket(s, f, id, le, x)
	default:
		r.total(s, f, id, e.part, x)
	}
}

// selection is which series a sample belongs to, and whether the slot wants it.
type selection struct {
	identity
	selected bool
}

// identify walks over a sample's labels; after is what follows them.
func (r *Reader) identify(s *slot, p part, rest []byte) (id selection, le, after []byte, ok bool) {
	id.selected = s.Label == ""
	l, some := openLabels(rest)
	for some {
		name, value, more, ok := l.next()
		switch {
		case !ok:
			return id, nil, rest, false
		case !more:
			some = false
		case p == bucket && string(name) == "le":
			le = value
		default:
			id.add(name, value, r.table.inLockstep(s, name))
			id.selected = id.selected || string(name) == s.Label && string(value) == s.Is
		}
	}
	return id, le, l.rest, true
}

// plausible says whether a number can be what it is said to be. The usage of a KV
// cache may be a rounding error above 1.
func (s *slot) plausible(p part, x float64) bool {
	const most = 1.01
	ok := x >= 0 && x <= 1e300 // not NaN, not infinite
	return ok && (s.field != KVUsage || p != whole || x*s.Scale <= most)
}

// drop counts a sample that is not used, and notes it with some text of the page,
// which may be nil.
func (r *Reader) drop(s *slot, why string, text []byte) {
	r.dropped++
	if len(r.notes) >= maxNotes {
		return
	}
	note := s.text + ": dropped a sample: " + why
	if text != nil {
		note += fmt.Sprintf(": %q", trimBlanks(text[:min(len(text), maxQuoted)]))
	}
	r.notes = append(r.notes, note)
}

// skip drops a line that is too long.
func (r *Reader) skip(line []byte) {
	name, rest := splitName(trimBlanks(line))
	r.open = r.look(name)
	for _, e := range r.open {
		r.drop(&r.table.slots[e.slot], "its line is too long", rest)
	}
}

// cut ends a page that is not whole, with what there is of its last line. The
// metric at the cut may lack ranks and is unknown.
func (r *Reader) cut(torn []byte) {
	r.isCut = true
	torn = trimBlanks(torn)
	if len(torn) > 0 && torn[0] == '#' {
		return
	}
	name, rest := splitName(torn)
	at := r.open
	if rest != nil {
		at = r.look(name)
	}
	for _, e := range at {
		s := &r.table.slots[e.slot]
		if rest == nil && !strings.HasPrefix(string(name), s.Name) && !strings.HasPrefix(s.Name, string(name)) {
			continue
		}
		if f := &r.found[e.slot]; !f.cut {
			f.declared, f.cut = true, true
			r.drop(s, "the page ends there", torn)
		}
	}
}

package dialect

import (
	"bytes"
	"hash/maphash"
	"math"
	"strconv"
)

// maxNumber is the length of the longest number that is read.
const maxNumber = 64

// splitName cuts the metric's name off a sample's line.
func splitName(line []byte) (name, rest []byte) {
	end := len(line)
	for _, c := range []byte("{ \t") {
		if i := bytes.IndexByte(line[:end], c); i >= 0 {
			end = i
		}
	}
	if end == len(line) {
		return line, nil
	}
	return line[:end], line[end:]
}

func endsName(c byte) bool { return c == '{' || c == ' ' || c == '\t' }

// typedName returns the metric's name in a TYPE comment.
func typedName(line []byte) []byte {
	line, typed := bytes.CutPrefix(trimBlanks(line[1:]), []byte("TYPE"))
	if !typed {
		return nil
	}
	name, _ := splitName(trimBlanks(line))
	return name
}

// labels walks over the labels of a sample.
type labels struct{ rest []byte }

// openLabels begins a walk after a sample's name; without labels it has ended.
func openLabels(rest []byte) (l labels, some bool) {
	rest = trimBlanks(rest)
	if len(rest) == 0 || rest[0] != '{' {
		return labels{rest}, false
	}
	return labels{rest[1:]}, true
}

// next returns the next label, its value as it is written. After the last one more
// is false, and l.rest is what follows the labels.
func (l *labels) next() (name, value []byte, more, ok bool) {
	rest := trimBlanks(l.rest)
	if len(rest) > 0 && rest[0] == '}' {
		l.rest = rest[1:]
		return nil, nil, false, true
	}
	equals := bytes.IndexByte(rest, '=')
	if equals < 0 {
		return nil, nil, false, false
	}
	name = bytes.TrimRight(rest[:equals], " \t")
	rest = trimBlanks(rest[equals+1:])
	end := closingQuote(rest)
	if len(name) == 0 || end < 0 {
		return nil, nil, false, false
	}
	value, rest = rest[1:end], trimBlanks(rest[end+1:])
	switch {
	case len(rest) > 0 && rest[0] == ',':
		rest = rest[1:]
	case len(rest) == 0 || rest[0] != '}':
		return nil, nil, false, false
	}
	l.rest = rest
	return name, value, true, true
}

// closingQuote returns where a quoted text ends, or -1.
func closingQuote(text []byte) int {
	if len(text) == 0 || text[0] != '"' {
		return -1
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// identity tells series of one name apart, whatever the order of their labels.
type identity struct {
	series uint64 // by all labels
	group  uint64 // by all but those of ranks in lockstep
}

var seed = maphash.MakeSeed()

func (id *identity) add(name, value []byte, lockstep bool) {
	const odd = 0x9e3779b97f4a7c15
	h := maphash.Bytes(seed, name)*odd ^ maphash.Bytes(seed, value)
	h *= odd
	h ^= h >> 32
	id.series += h
	if !lockstep {
		id.group += h
	}
}

// number reads a sample's value; a timestamp and an exemplar may follow it.
func number(rest []byte) (x float64, ok bool) {
	token, rest := splitBlank(trimBlanks(rest))
	x, ok = parseFloat(token)
	stamp, rest := splitBlank(rest)
	switch {
	case len(stamp) == 0 || stamp[0] == '#':
		return x, ok
	case !isStamp(stamp):
		return 0, false
	}
	return x, ok && (len(rest) == 0 || rest[0] == '#')
}

func isStamp(text []byte) bool {
	x, ok := parseFloat(text)
	return ok && !math.IsNaN(x) && !math.IsInf(x, 0)
}

// parseFloat reads a number as Prometheus does: neither hexadecimal nor with
// underscores.
func parseFloat(text []byte) (float64, bool) {
	if len(text) == 0 || len(text) > maxNumber || bytes.ContainsAny(text, "pP_xX") {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(text), 64)
	return x, err == nil
}

func trimBlanks(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		text = text[1:]
	}
	return text
}

func splitBlank(text []byte) (token, rest []byte) {
	for i, c := range text {
		if c == ' ' || c == '\t' {
			return text[:i], trimBlanks(text[i:])
		}
	}
	return text, nil
}

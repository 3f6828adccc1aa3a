package extproc

import "bytes"

// Bounds of a body besides its size, so that none of the largest size takes a
// good part of the second that Envoy waits: names are remembered to find
// repetitions, a value costs more than its bytes, and so does an escape.
const (
	maxNames     = 100_000   // of members, in all objects together
	maxNameBytes = 4 << 20   // that all names take, as they are written
	maxValues    = 2_000_000 // commas and opening brackets: no fewer than there are values
	maxUnescaped = 4 << 20   // bytes of strings up to which escapes are read

	leastName = len(`"":0,`) // bytes that a member takes
)

// shape counts what a body consists of, without judging its syntax.
type shape struct {
	names, nameBytes, values int

	text    int  // bytes of the last string
	quoted  bool // inside a string
	escaped bool // behind a backslash
}

// add counts more of a body, and says whether it is too much.
func (s *shape) add(more []byte) error {
	for len(more) > 0 {
		if s.quoted {
			more = s.inText(more)
		} else {
			more = s.between(more)
		}
		if s.names > maxNames || s.nameBytes > maxNameBytes || s.values > maxValues {
			return errTooMany
		}
	}
	return nil
}

// inText goes to the next quote or the end of b, and returns what follows.
func (s *shape) inText(b []byte) []byte {
	n := bytes.IndexByte(b, '"')
	if n < 0 {
		s.escaped = s.escapes(b)
		s.text += len(b)
		return nil
	}
	s.text += n
	s.quoted = s.escapes(b[:n])
	if s.quoted {
		s.text++ // this quote is of the text
	}
	s.escaped = false
	return b[n+1:]
}

// escapes says whether what follows b is escaped.
func (s *shape) escapes(b []byte) bool {
	slashes := len(b) - len(bytes.TrimRight(b, `\`))
	odd := slashes%2 == 1
	if slashes == len(b) {
		return odd != s.escaped
	}
	return odd
}

// between goes to the next string or the end of b, and returns what follows.
func (s *shape) between(b []byte) []byte {
	for i, c := range b {
		switch c {
		case '"':
			s.quoted, s.text = true, 0
			return b[i+1:]
		case ':':
			s.names++
			s.nameBytes += s.text
		case ',', '[', '{':
			s.values++
		}
	}
	return nil
}

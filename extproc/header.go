package extproc

import (
	"cmp"
	"math"
	"slices"

	"weir/fleet"
)

// headerSources finds the headers that name conversations in one pass over those
// of a request: there are a dozen names to look for, and two dozen to look at.
type headerSources struct {
	names  []headerSource           // by length
	until  [maxHeaderName + 2]uint8 // the names of n bytes, or of the longest and more, end at until[n+1]
	others int                      // the first source of the class that is no header; none: nothing is behind it
}

const maxHeaderName = 40 // bytes that names are told apart by

type headerSource struct {
	name  string
	place int // among the class's sources
}

func newHeaderSources(affinity []source) *headerSources {
	s := &headerSources{others: math.MaxInt}
	for i, a := range affinity {
		switch {
		case a.kind == fleet.AffinityHeader:
			s.names = append(s.names, headerSource{a.header, i})
		case s.others == math.MaxInt:
			s.others = i
		}
	}
	slices.SortStableFunc(s.names, func(a, b headerSource) int { return cmp.Compare(a.length(), b.length()) })
	for _, n := range s.names {
		for length := n.length() + 1; length < len(s.until); length++ {
			s.until[length]++
		}
	}
	return s
}

func (n *headerSource) length() int { return min(len(n.name), maxHeaderName) }

// first returns the place of the first source that is a header of the request and
// not empty; without any, one behind all others. It is asked for twice: before the
// body, and of the class that is known then, mostly the same.
func (s *headerSources) first(h *head) int {
	if h.sought != s {
		h.sought, h.found = s, s.seek(h)
	}
	return h.found
}

func (s *headerSources) seek(h *head) int {
	first := math.MaxInt
	for _, f := range h.fields {
		length := min(len(f.Name), maxHeaderName)
		for i := s.until[length]; i < s.until[length+1]; i++ {
			if n := &s.names[i]; n.place < first && n.name == f.Name && f.Value != "" {
				first = n.place
			}
		}
	}
	return first
}

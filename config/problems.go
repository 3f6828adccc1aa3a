package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a fleet file.
type Problem struct {
	File         string
	Line, Column int    // from 1; the column counts characters
	What         string // what is wrong, and with which thing
	Remedy       string // what to do about it
}

func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s; %s", p.File, p.Line, p.Column, p.What, p.Remedy)
}

// Problems are all mistakes of a file, by position. They are an error.
type Problems []Problem

// Error lists the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders problems by position and drops repetitions, which arise where
// several aliases lead to one mistake.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	seen := map[Problem]bool{}
	return slices.DeleteFunc(ps, func(p Problem) bool {
		again := seen[p]
		seen[p] = true
		return again
	})
}

// mistake is a problem whose place is not known yet.
type mistake struct{ what, remedy string }

func mistakef(remedy, format string, args ...any) *mistake {
	return &mistake{fmt.Sprintf(format, args...), remedy}
}

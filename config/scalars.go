package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

// literal returns a single value as it is written.
func (n node) literal() (string, bool) {
	switch x := n.tree.(type) {
	case *ast.StringNode:
		return x.Value, true
	case *ast.LiteralNode:
		return x.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.tree.GetToken().Value, true
	}
	return "", false
}

// scalar reads a single value; fallback stands in where it is absent or wrong.
func scalar[T any](n node, fallback T, parse func(string) (T, *mistake)) T {
	if !n.present() {
		return fallback
	}
	s, ok := n.literal()
	if !ok {
		n.wrong("write one value", "%s where a single value belongs", n.kind())
		return fallback
	}
	v, bad := parse(s)
	if bad != nil {
		n.wrong(bad.remedy, "%s", bad.what)
		return fallback
	}
	return v
}

// text reads a text; what YAML takes for a number or a truth value must be quoted.
func (n node) text() string {
	switch n.tree.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		s, _ := n.literal()
		n.wrong("write it in quotes: "+strconv.Quote(s), "%s is %s, not a text", s, n.kind())
		return ""
	}
	return scalar(n, "", parseText)
}

func parseText(s string) (string, *mistake) {
	switch {
	case strings.TrimSpace(s) == "":
		return "", mistakef("give it a value or leave it out", "the text is empty")
	case len(s) > maxTextLength:
		return "", mistakef("keep it to "+strconv.Itoa(maxTextLength)+" bytes", "%d bytes are too long", len(s))
	case s != strings.TrimSpace(s), strings.ContainsFunc(s, unicode.IsControl):
		return "", mistakef("remove them", "%q has spaces at its ends or control characters", s)
	}
	return s, nil
}

// texts reads distinct texts.
func texts(items []node) []string { return distinct(items, node.text) }

// distinct reads each item to a text that must differ from the others'.
func distinct(items []node, read func(node) string) []string {
	var out []string
	for _, item := range items {
		s := read(item)
		if s == "" {
			continue
		}
		if slices.Contains(out, s) {
			item.wrong("remove one of the two", "%q is listed twice", s)
			continue
		}
		out = append(out, s)
	}
	return out
}

// oneOrMore returns the value under one key or the items under its plural.
func (m mapping) oneOrMore(one, more string) []node {
	single, several := m.at(one), m.at(more)
	if single.present() && several.present() {
		several.wrong("keep "+more, "both %s and %s are given", one, more)
	}
	if single.present() {
		return []node{single}
	}
	return several.someOf(maxListed)
}

// mark reads a demand that is made or left out: what "false" asks for, nobody would
// agree on.
func (n node) mark() bool {
	return scalar(n, false, func(s string) (bool, *mistake) {
		if s != "true" {
			return false, mistakef("write true or leave it out", "%q is not known", s)
		}
		return true, nil
	})
}

// labels reads a mapping of free keys to texts.
func (n node) labels() map[string]string {
	entries := n.entries(maxListed)
	if len(entries) == 0 {
		return nil
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		out[e.name] = e.value.text()
	}
	return out
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// name reads the name of a thing. A name that breaks the rules is reported and
// still returned, so that those who refer to it are not reported as well.
func (m mapping) name() string {
	n := m.must("name")
	scalar(n, "", func(s string) (string, *mistake) {
		if !namePattern.MatchString(s) || len(s) > maxNameLength {
			return "", mistakef("use 1 to "+strconv.Itoa(maxNameLength)+" letters, digits, '.', '_' and '-', a letter or digit first",
				"%q cannot be a name", s)
		}
		return s, nil
	})
	name, _ := n.literal()
	return name
}

// oneOf reads one of a few words.
func (n node) oneOf(fallback string, words ...string) string {
	return scalar(n, fallback, func(s string) (string, *mistake) {
		if !slices.Contains(words, s) {
			return "", mistakef("write "+strings.Join(words, " or "), "%q is not known", s)
		}
		return s, nil
	})
}

func (n node) duration(fallback, lo, hi time.Duration) time.Duration {
	return scalar(n, fallback, func(s string) (time.Duration, *mistake) {
		return within(parseDuration, s, lo, hi, formatDuration)
	})
}

// seconds reads a duration as the seconds that fleet's values are in.
func (n node) seconds(hi time.Duration) float64 { return n.duration(0, 0, hi).Seconds() }

func (n node) rps(lo, hi float64) float64 {
	return scalar(n, 0, func(s string) (float64, *mistake) {
		return within(parseRate, s, lo, hi, suffixed(" rps"))
	})
}

func (n node) percent(fallback, hi float64) float64 {
	return scalar(n, fallback, func(s string) (float64, *mistake) {
		return within(parsePercent, s, 0, hi, suffixed("%"))
	})
}

func (n node) bytes(fallback, lo, hi int64) int64 {
	return scalar(n, fallback, func(s string) (int64, *mistake) {
		return within(parseSize, s, lo, hi, formatSize)
	})
}

func (n node) number(fallback, lo, hi float64) float64 {
	return scalar(n, fallback, func(s string) (float64, *mistake) {
		return within(parseNumber, s, lo, hi, suffixed(""))
	})
}

func (n node) integer(fallback, lo, hi int) int {
	return scalar(n, fallback, func(s string) (int, *mistake) {
		return within(parseInteger, s, lo, hi, strconv.Itoa)
	})
}

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/fleet"
)

// What a body says, Envoy learns from weir-extproc alone. While that is dead, a
// request that a rule takes by its body falls to a later rule: that is no harm
// where the two classes differ in what they are good at, and a breach where they
// differ in where requests may go.

// residency refuses rules by the body that would decide where requests may go.
func (r *reader) residency() {
	for i, rule := range r.rules {
		if rule.Body.Any() {
			r.staysPut(rule, r.rules[i+1:])
		}
	}
}

// staysPut holds one rule against those that take its requests when nobody reads
// their bodies.
func (r *reader) staysPut(rule placedRule, later []placedRule) {
	class := r.fleet.Class(rule.class)
	seen := rule.Rule // what Envoy sees of it
	seen.Body = fleet.BodyRule{}
	for _, next := range later {
		if next.Body.Any() || !meet(next.Rule, seen) {
			continue
		}
		if heir := r.fleet.Class(next.class); residencyOf(heir) != residencyOf(class) {
			rule.node.wrong("match by host, path, headers or model; or require the same of both; or use capabilities for what is no residency",
				"regions and labels may not hang on %s, which Envoy does not see: this class has %s, and class %q, which takes such requests while weir-extproc is dead, %s",
				strings.Join(describeBody(rule.Body), ", "), residencyOf(class), heir.ID, residencyOf(heir))
			return
		}
		if covers(next.Rule, seen) {
			return
		}
	}
	if where := residencyOf(class); where != nowhere {
		rule.node.wrong("match by host, path, headers or model; or put a class with the same behind it; or use capabilities for what is no residency",
			"regions and labels may not hang on %s, which Envoy does not see: this class has %s, and no class takes such requests while weir-extproc is dead",
			strings.Join(describeBody(rule.Body), ", "), where)
	}
}

// nowhere is the residency of a class that may go everywhere.
const nowhere = "no regions or labels"

// residencyOf words where a class's requests may go. Capabilities are not part of
// it: they say what engines can do, not where they stand.
func residencyOf(c *fleet.Class) string {
	var parts []string
	if len(c.Requires.Regions) > 0 {
		parts = append(parts, fmt.Sprintf("regions %q", slices.Sorted(slices.Values(c.Requires.Regions))))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Requires.Labels)) {
		parts = append(parts, fmt.Sprintf("label %s: %s", name, c.Requires.Labels[name]))
	}
	if len(parts) == 0 {
		return nowhere
	}
	return strings.Join(parts, ", ")
}

// meet reports whether a request can match both rules, bodies aside.
func meet(a, b fleet.Rule) bool {
	return meetPaths(a, b) && meetPaths(b, a) &&
		(a.Host == "" || b.Host == "" || a.Host == b.Host) &&
		(a.Model == "" || b.Model == "" || a.Model == b.Model) &&
		!slices.ContainsFunc(a.Headers, func(h fleet.HeaderRule) bool {
			return slices.ContainsFunc(b.Headers, func(o fleet.HeaderRule) bool { return o.Name == h.Name && o.Value != h.Value })
		})
}

// meetPaths reports whether a's path, the longest that both leave open, is one of
// b's; where b's is longer the question is the other way round.
func meetPaths(a, b fleet.Rule) bool {
	switch {
	case a.Exact && b.Exact:
		return a.Path == b.Path
	case a.Exact || len(a.Path) >= len(b.Path):
		return strings.HasPrefix(a.Path, b.Path)
	}
	return true
}

func describeBody(b fleet.BodyRule) []string {
	var parts []string
	if b.Tools {
		parts = append(parts, "tools")
	}
	if b.Vision {
		parts = append(parts, "vision")
	}
	if b.ContextOver > 0 {
		parts = append(parts, fmt.Sprintf("contextOver %d", b.ContextOver))
	}
	return parts
}

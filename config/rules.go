package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"weir/fleet"
)

var (
	hostPattern     = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`)
	headerPattern   = regexp.MustCompile("^[a-z0-9!#$%&'*+.^_`|~-]+$")
	dnsPattern      = regexp.MustCompile(`^[a-z0-9_]([a-z0-9._-]*[a-z0-9.])?$`)
	srvPattern      = regexp.MustCompile(`^_[a-z0-9-]+\._(tcp|udp)\.[a-z0-9_]([a-z0-9._-]*[a-z0-9.])?$`)
	originPattern   = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[a-z0-9.\[\]:-]+$`)
	bodyPathPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}$`)
)

// anyOrigin stands for all of them.
const anyOrigin = "*"

// withheld are the headers that weir-extproc is never sent, since they carry
// secrets: a rule on one would hold in Envoy and fail in weir-extproc.
var withheld = []string{"authorization", "cookie", "x-api-key"}

// stripped are the prefixes of headers that Envoy removes from clients' requests.
var stripped = []string{"x-weir-", "x-gateway-destination-endpoint"}

// placedRule is a rule and where it came from.
type placedRule struct {
	fleet.Rule
	class fleet.ClassID
	node  node
}

// match reads the rules of a class.
func (r *reader) match(n node, class fleet.ClassID, aliases []alias) []fleet.Rule {
	var out []fleet.Rule
	for _, item := range n.someOf(maxRules) {
		before := r.doc.faults()
		rules := item.rules(aliases)
		if r.doc.faults() > before {
			continue
		}
		if len(r.rules)+len(rules) > maxRules {
			item.wrong("use fewer hosts and models", "there are more than %d rules, hosts and models multiplied out", maxRules)
			return out
		}
		for _, rule := range rules {
			r.reachable(item, rule)
			r.rules = append(r.rules, placedRule{rule, class, item})
		}
		out = append(out, rules...)
	}
	return out
}

// rules reads one entry of match: a rule for each pair of its hosts and models, and
// for their aliases.
func (n node) rules(aliases []alias) []fleet.Rule {
	m := n.mapping("host", "hosts", "path", "pathPrefix", "headers", "model", "models", "tools", "vision", "contextOver")
	var common fleet.Rule
	common.Path, common.Exact = m.urlPath()
	common.Headers = headerRules(m.at("headers"))
	common.Body = fleet.BodyRule{
		Tools: m.at("tools").mark(), Vision: m.at("vision").mark(),
		ContextOver: m.at("contextOver").integer(0, 1, maxTokens),
	}
	var out []fleet.Rule
	hosts := distinct(m.oneOrMore("host", "hosts"), hostName)
	models := texts(m.oneOrMore("model", "models"))
	for _, host := range orAny(hosts) {
		for _, model := range orAny(models) {
			rule := common
			rule.Host, rule.Model = host, model
			out = append(out, withAliases(rule, aliases)...)
		}
	}
	return out
}

// orAny stands the empty text, which matches anything, for an empty list.
func orAny(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

func (m mapping) urlPath() (path string, exact bool) {
	whole, prefix := m.at("path"), m.at("pathPrefix")
	if whole.present() && prefix.present() {
		prefix.wrong("keep one", "both path and pathPrefix are given")
	}
	if whole.present() {
		return requestPath(whole), true
	}
	return requestPath(prefix), false
}

// requestPath reads a path, as it stands in a request before any '?'.
func requestPath(n node) string {
	s := n.text()
	if s != "" && (!strings.HasPrefix(s, "/") || strings.ContainsAny(s, "?# ")) {
		n.wrong("write it like /v1/chat/completions", "%q is not a path", s)
	}
	return s
}

// headerRules reads headers by name, so that equal sets are equal slices.
func headerRules(n node) []fleet.HeaderRule {
	var out []fleet.HeaderRule
	for _, e := range n.entries(maxRuleHeaders) {
		h := fleet.HeaderRule{Name: headerName(e.key, e.name), Value: e.value.text()}
		if slices.ContainsFunc(out, func(o fleet.HeaderRule) bool { return o.Name == h.Name }) {
			e.key.wrong("remove one of the two", "the header %s is matched twice", h.Name)
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b fleet.HeaderRule) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// headerName checks the name of a header that both Envoy and weir-extproc read,
// and returns it in lower case.
func headerName(n node, name string) string {
	name = strings.ToLower(name)
	switch {
	case !headerPattern.MatchString(name):
		n.wrong("write it like x-session-id", "%q is not a header name", name)
	case name == "host":
		n.wrong("use the key host of the rule", "the header host cannot be matched as a header")
	case slices.Contains(withheld, name):
		n.wrong("use another header", "the header %s carries secrets and is withheld from weir-extproc", name)
	case slices.ContainsFunc(stripped, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
		n.wrong("use another header", "the header %s is stripped from clients' requests", name)
	}
	return name
}

// reachable reports a rule all of whose requests an earlier rule takes.
func (r *reader) reachable(n node, rule fleet.Rule) {
	for _, earlier := range r.rules {
		if covers(earlier.Rule, rule) {
			n.wrong("remove it, or move it before the wider rule",
				"the rule for %s is never reached: the rule of class %q at %s takes all its requests",
				describe(rule), earlier.class, earlier.node.at)
			return
		}
	}
}

// covers reports whether every request that matches b matches a.
func covers(a, b fleet.Rule) bool {
	path := strings.HasPrefix(b.Path, a.Path)
	if a.Exact {
		path = b.Exact && a.Path == b.Path
	}
	headers := !slices.ContainsFunc(a.Headers, func(h fleet.HeaderRule) bool { return !slices.Contains(b.Headers, h) })
	return path && headers &&
		(a.Host == "" || a.Host == b.Host) &&
		(a.Model == "" || a.Model == b.Model) &&
		(!a.Body.Tools || b.Body.Tools) && (!a.Body.Vision || b.Body.Vision) && a.Body.ContextOver <= b.Body.ContextOver
}

func describe(r fleet.Rule) string {
	var parts []string
	for _, p := range []struct{ name, value string }{{"host", r.Host}, {"path", r.Path}, {"model", r.Model}} {
		if p.value != "" {
			parts = append(parts, fmt.Sprintf("%s %q", p.name, p.value))
		}
	}
	for _, h := range r.Headers {
		parts = append(parts, fmt.Sprintf("header %s: %s", h.Name, h.Value))
	}
	parts = append(parts, describeBody(r.Body)...)
	if len(parts) == 0 {
		return "everything"
	}
	return strings.Join(parts, ", ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

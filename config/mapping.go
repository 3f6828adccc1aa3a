package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// entry is one key of a mapping with its value.
type entry struct {
	name       string
	key, value node
}

// entries returns a mapping's entries in the file's order, with those merged by
// << behind its own. A key that comes twice is reported and dropped.
func (n node) entries(limit int) []entry {
	if !n.present() {
		return nil
	}
	if _, ok := n.tree.(ast.MapNode); !ok {
		n.wrong("write it as {key: value} or with a key a line", "%s where a mapping belongs", n.kind())
		return nil
	}
	seen := map[string]position{}
	out, merged := n.ownEntries(seen)
	for _, e := range merged {
		if _, hidden := seen[e.name]; !hidden {
			seen[e.name] = e.key.at
			out = append(out, e)
		}
	}
	if n.tooMany(len(out), limit) {
		return nil
	}
	return out
}

func (n node) ownEntries(seen map[string]position) (own, merged []entry) {
	for it := n.tree.(ast.MapNode).MapRange(); it.Next(); {
		if it.Key().IsMergeKey() {
			merged = append(merged, n.mergedEntries(it.Value())...)
			continue
		}
		e, ok := n.entry(it.KeyValue())
		if !ok {
			continue
		}
		if first, again := seen[e.name]; again {
			e.key.wrong("remove one of the two", "the key %s stands here again, after %s", e.name, first)
			continue
		}
		seen[e.name] = e.key.at
		own = append(own, e)
	}
	return own, merged
}

func (n node) entry(kv *ast.MappingValueNode) (entry, bool) {
	key := n.child(n.key, kv.Key)
	if !key.present() {
		return entry{}, false
	}
	name, ok := key.literal()
	if !ok {
		key.wrong("write a plain key", "this key is not a single value")
		return entry{}, false
	}
	value := n.child(n.path(name), kv.Value)
	if !value.present() {
		value.at = key.at
	}
	return entry{name, key, value}, true
}

func (n node) mergedEntries(tree ast.Node) []entry {
	source := n.child(n.key, tree)
	if _, ok := source.tree.(ast.MapNode); source.present() && !ok {
		source.wrong("write <<: *name, where &name stands before a mapping", "%s merged into a mapping", source.kind())
		return nil
	}
	return source.entries(maxListed)
}

// mapping is a value whose keys are known.
type mapping struct {
	node
	byKey map[string]node
}

// mapping reads a mapping that may have these keys and no other.
func (n node) mapping(known ...string) mapping {
	byKey := n.known(known)
	if _, ok := n.tree.(ast.MapNode); !ok {
		n.tree = nil // reported: its keys are not missed as well
	}
	return mapping{n, byKey}
}

// thing is a mapping with a name, which opens the messages about it.
func (n node) thing(kind string, i int, known ...string) mapping {
	n.of = fmt.Sprintf("%s %d", kind, i+1)
	if name := n.peek("name"); name != "" {
		n.of = fmt.Sprintf("%s %q", kind, name)
	}
	n.key = ""
	return n.mapping(known...)
}

func (n node) known(keys []string) map[string]node {
	byKey := map[string]node{}
	for _, e := range n.entries(maxListed) {
		if !slices.Contains(keys, e.name) {
			e.key.wrong("use one of "+strings.Join(keys, ", "), "unknown key %q", e.name)
			continue
		}
		byKey[e.name] = e.value
	}
	return byKey
}

// peek returns a text of a mapping without reporting anything.
func (n node) peek(key string) string {
	m, ok := n.tree.(ast.MapNode)
	if !ok {
		return ""
	}
	for it := m.MapRange(); it.Next(); {
		text, ok := it.Value().(*ast.StringNode)
		if ok && it.Key().GetToken().Value == key {
			return text.Value
		}
	}
	return ""
}

// at returns the value under a key, which may be absent.
func (m mapping) at(key string) node {
	if n, ok := m.byKey[key]; ok {
		return n
	}
	return node{doc: m.doc, at: m.node.at, of: m.of, key: m.path(key)}
}

// must is at, but reports an absent key, or one without a value as required.
func (m mapping) must(key string) node {
	if _, ok := m.byKey[key]; !ok && m.present() {
		m.wrong("add it", "%s is missing", key)
	}
	n := m.at(key)
	n.required()
	return n
}

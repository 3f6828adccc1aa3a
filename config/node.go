package config

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// document is one file being read.
type document struct {
	file      string
	targets   map[*ast.AliasNode]ast.Node // what each alias stands for
	nodesLeft int                         // bounds what aliases can multiply
	problems  Problems
}

func (d *document) report(at position, m mistake) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, Problem{d.file, at.line, at.column, m.what, m.remedy})
	}
}

// faults counts the problems so far; a caller compares two counts to learn
// whether what it read in between was sound.
func (d *document) faults() int { return len(d.problems) }

// bind finds the value of every alias. An anchor counts from its end on, so that
// no value can contain itself.
func (d *document) bind(root ast.Node) {
	d.targets = map[*ast.AliasNode]ast.Node{}
	ast.Walk(&binder{doc: d, anchors: map[string]ast.Node{}}, root)
}

type binder struct {
	doc     *document
	anchors map[string]ast.Node
}

func (b *binder) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.AnchorNode:
		ast.Walk(b, n.Value)
		b.anchors[n.Name.GetToken().Value] = n.Value
		return nil
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		if b.anchors[name] == nil {
			b.doc.report(start(n), *mistakef("write &"+name+" before the value that it stands for",
				"nothing above is named by the alias *%s", name))
		}
		b.doc.targets[n] = b.anchors[name]
		return nil
	}
	return b
}

// resolve follows anchors and aliases to the value itself; nil when there is
// none, which has been reported.
func (d *document) resolve(n ast.Node) ast.Node {
	for n != nil {
		if d.nodesLeft--; d.nodesLeft < 0 {
			d.tooMuch(n)
			return nil
		}
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.AliasNode:
			n = d.targets[x]
		case *ast.TagNode:
			d.report(start(n), *mistakef("remove it", "the tag %s means nothing here", x.Start.Value))
			return nil
		default:
			return n
		}
	}
	return nil
}

func (d *document) tooMuch(n ast.Node) {
	if d.nodesLeft == -1 {
		d.report(start(n), *mistakef("use fewer aliases", "the file expands to more than %d values", maxNodes))
	}
}

// node is one value of the file and where it stands. A node without a tree is
// absent: reading it gives the default and reports nothing.
type node struct {
	doc  *document
	tree ast.Node // without aliases and anchors
	at   position // of the value, or of the mapping that lacks it
	of   string   // the thing that it belongs to, such as `pool "A"`
	key  string   // where it stands in that, such as "profile.ttft"
	bare int      // the place, from 1, of the problem that it has no value; 0: it has one
}

func (n node) present() bool { return n.tree != nil }

// wrong reports a problem of this value, with what it belongs to in front.
func (n node) wrong(remedy, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	for _, prefix := range []string{n.key, n.of} {
		if prefix != "" {
			what = prefix + ": " + what
		}
	}
	n.doc.report(n.at, mistake{what, remedy})
}

// child wraps a value below n. A key without a value is reported and absent.
func (n node) child(key string, tree ast.Node) node {
	c := node{doc: n.doc, tree: n.doc.resolve(tree), at: n.at, of: n.of, key: key}
	if c.tree == nil {
		return c
	}
	c.at = start(c.tree)
	if c.tree.Type() == ast.NullType {
		before := n.doc.faults()
		c.wrong("give it one or leave it out", "no value")
		c.tree = nil
		if after := n.doc.faults(); after > before {
			c.bare = after
		}
	}
	return c
}

// required corrects the remedy for a value that may not be left out.
func (n node) required() {
	if n.bare > 0 {
		n.doc.problems[n.bare-1].Remedy = "give it one: it is required"
	}
}

// path is where the value under a key of n stands.
func (n node) path(key string) string {
	if n.key == "" {
		return key
	}
	return n.key + "." + key
}

// kind says what a value is, in an operator's words.
func (n node) kind() string {
	switch n.tree.(type) {
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	}
	return "a text"
}

// list returns the items of a list, at most limit of them.
func (n node) list(limit int) []node {
	if !n.present() {
		return nil
	}
	seq, ok := n.tree.(*ast.SequenceNode)
	if !ok {
		n.wrong("write it as [a, b] or with a dash a line", "%s where a list belongs", n.kind())
		return nil
	}
	if n.tooMany(len(seq.Values), limit) {
		return nil
	}
	items := make([]node, len(seq.Values))
	for i, v := range seq.Values {
		items[i] = n.child(n.key, v)
	}
	return items
}

// someOf is a list that must not be empty.
func (n node) someOf(limit int) []node {
	items := n.list(limit)
	if seq, ok := n.tree.(*ast.SequenceNode); ok && len(seq.Values) == 0 {
		n.wrong("list at least one", "the list is empty")
	}
	return items
}

func (n node) tooMany(count, limit int) bool {
	if count <= limit {
		return false
	}
	n.wrong(fmt.Sprintf("keep it to %d", limit), "%d entries are too many", count)
	return true
}

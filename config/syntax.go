package config

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const unread = "correct it here; the rest of the file was not read"

// parse turns the text into its root node. Where it cannot, it reports why.
func (d *document) parse(data []byte) (node, bool) {
	root, at, bad := d.tree(bytes.TrimPrefix(data, []byte("\ufeff"))) // some editors put a mark of UTF-8 there
	if bad != nil {
		d.report(at, *bad)
		return node{}, false
	}
	return node{doc: d, tree: root, at: start(root)}, true
}

func (d *document) tree(data []byte) (ast.Node, position, *mistake) {
	top := position{1, 1}
	if len(data) > maxFileBytes {
		return nil, top, mistakef("split the fleet", "the file is larger than %d MiB", maxFileBytes>>20)
	}
	if at, ok := firstInvalid(data); ok {
		return nil, at, mistakef(unread, "the text is not UTF-8")
	}
	file, at, bad := parseYAML(data)
	if bad != nil {
		return nil, at, bad
	}
	body, at, bad := soleDocument(file)
	if bad != nil {
		return nil, at, bad
	}
	d.bind(body)
	return body, top, nil
}

func firstInvalid(data []byte) (position, bool) {
	if utf8.Valid(data) {
		return position{}, false
	}
	valid := bytes.ToValidUTF8(data, []byte{0})
	i := 0
	for i < len(valid) && valid[i] == data[i] {
		i++
	}
	line := bytes.Count(data[:i], []byte{'\n'})
	column := utf8.RuneCount(data[bytes.LastIndexByte(data[:i], '\n')+1 : i])
	return position{line + 1, column + 1}, true
}

// parseYAML guards the library: it is kept from inputs that make it run for
// minutes, and a panic in it is a mistake of the file, not the end of the process.
func parseYAML(data []byte) (file *ast.File, at position, bad *mistake) {
	at = position{1, 1}
	defer func() {
		if p := recover(); p != nil {
			file, bad = nil, mistakef("simplify its quotes, anchors and block texts", "the YAML cannot be parsed (%v)", p)
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if t := tooDeep(tokens); t != nil {
		return nil, place(t), mistakef(unread, "lists and mappings are nested more than %d deep", maxNesting)
	}
	// Repeated keys are found when the mapping is read, together with all else.
	file, err := parser.Parse(joinColons(tokens), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, bad = syntaxMistake(err)
	}
	return file, at, bad
}

func syntaxMistake(err error) (position, *mistake) {
	at, what := position{1, 1}, err.Error()
	var placed yaml.Error
	if errors.As(err, &placed) {
		at, what = place(placed.GetToken()), placed.GetMessage()
	}
	return at, mistakef(unread, "not valid YAML: %s", what)
}

// tooDeep returns the token at which nesting passes the bound, or nil: the
// parser's work and memory grow with the square of the depth. Brackets nest, and
// so do dashes, question marks, tags and anchors that follow one another.
// Indentation needs no bound, as its depth costs text of the square of it.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, run := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		}
		run = runLength(run, t)
		if brackets > maxNesting || run > maxNesting {
			return t
		}
	}
	return nil
}

func runLength(before int, t *token.Token) int {
	switch t.Type {
	case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
		return before + 1
	}
	if t.PreviousType() == token.AnchorType {
		return before // the anchor's name
	}
	return 0
}

func soleDocument(file *ast.File) (ast.Node, position, *mistake) {
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.CommentType {
			bodies = append(bodies, doc.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return nil, position{1, 1}, mistakef("describe frontEnds, pools and classes", "the file is empty")
	case 1:
		return bodies[0], position{}, nil
	}
	return nil, start(bodies[1]), mistakef("keep one document a file", "a second YAML document begins")
}

// position is a place in the file, from 1.
type position struct{ line, column int }

func (p position) String() string { return fmt.Sprintf("%d:%d", p.line, p.column) }

func place(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{1, 1}
	}
	return position{max(1, t.Position.Line), max(1, t.Position.Column)}
}

// start is where a value begins: for a mapping in block style its first key, not
// the colon that the library names.
func start(n ast.Node) position {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return place(n.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		return place(n.Key.GetToken())
	}
	return place(n.GetToken())
}

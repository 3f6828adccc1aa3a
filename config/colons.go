package config

import (
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// joinColons makes one text of what the library takes apart at a colon in a list that
// stands in a flow mapping, as in {models: [tern:7b]}. YAML ends a word at a colon
// only where a space follows.
func joinColons(tokens token.Tokens) token.Tokens {
	var open []token.Type // the brackets around a token
	out := tokens[:0]
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open = append(open, t.Type)
		case token.SequenceEndType, token.MappingEndType:
			open = open[:max(0, len(open)-1)]
		}
		inList := len(open) > 0 && open[len(open)-1] == token.SequenceStartType
		if inList && i+2 < len(tokens) && isWord(t, tokens[i+1], tokens[i+2]) {
			join(t, tokens[i+2])
			i += 2
		}
		out = append(out, t)
	}
	return out
}

// isWord says whether two plain texts and the colon between them touch.
func isWord(before, colon, after *token.Token) bool {
	return isPlain(before) && colon.Type == token.MappingValueType && isPlain(after) &&
		touch(before, colon) && touch(colon, after)
}

func isPlain(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.IntegerType, token.FloatType, token.BoolType, token.NullType:
		return true
	}
	return false
}

func touch(a, b *token.Token) bool {
	return a.Position.Line == b.Position.Line && a.Position.Column+utf8.RuneCountInString(a.Value) == b.Position.Column
}

// join makes one text of two, with the colon between them.
func join(t, after *token.Token) {
	t.Type = token.StringType
	t.Value += ":" + after.Value
	t.Origin += ":" + after.Origin
	t.Next = after.Next
	if t.Next != nil {
		t.Next.Prev = t
	}
}

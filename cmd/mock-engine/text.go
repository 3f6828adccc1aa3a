package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
)

const bytesPerToken = 4 // of English text, roughly

// text is the text of a message's content: a string, or a list of parts, of which
// those without text (images, results of tools) stand for themselves as JSON.
func text(raw json.RawMessage) string {
	var s *string
	if json.Unmarshal(raw, &s) == nil {
		if s == nil {
			return ""
		}
		return *s
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	var all strings.Builder
	for _, part := range parts {
		all.WriteString(partText(part))
	}
	return all.String()
}

func partText(raw json.RawMessage) string {
	var part struct{ Text *string }
	if json.Unmarshal(raw, &part) != nil || part.Text == nil {
		return string(raw)
	}
	return *part.Text
}

// inputs are the texts of a prompt or of an embedding's input: a string, a list of
// them, the numbers of a text's tokens, or a list of such.
func inputs(raw json.RawMessage) ([]string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var tokens []uint32
	if json.Unmarshal(raw, &tokens) == nil && len(tokens) > 0 {
		return []string{tokenText(tokens)}, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, errors.New("want a text, a list of texts, or token numbers")
	}
	texts := make([]string, len(list))
	for i, item := range list {
		var tokens []uint32
		switch {
		case json.Unmarshal(item, &texts[i]) == nil:
		case json.Unmarshal(item, &tokens) == nil:
			texts[i] = tokenText(tokens)
		default:
			return nil, errors.New("want a list of texts or of lists of token numbers")
		}
	}
	return texts, nil
}

// tokenText stands for tokens of which only the numbers are known.
func tokenText(tokens []uint32) string {
	text := make([]byte, 0, bytesPerToken*len(tokens))
	for _, t := range tokens {
		text = binary.BigEndian.AppendUint32(text, t)
	}
	return string(text)
}

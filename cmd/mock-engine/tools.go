package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// toolMarker in the last user message asks for a call of a tool where the request
// leaves that to the model.
const toolMarker = "[use a tool]"

// tool is a function that the model may call.
type tool struct {
	name       string
	parameters json.RawMessage // JSON schema of its arguments
}

// offer decides which of the tools, if any, the answer calls.
func (q *request) offer(tools []tool, rawChoice json.RawMessage) error {
	if len(tools) == 0 {
		return nil
	}
	q.preface("tools", toolText(tools))
	wish := readToolChoice(rawChoice)
	switch {
	case wish.name != "":
		i := slices.IndexFunc(tools, func(t tool) bool { return t.name == wish.name })
		if i < 0 {
			return fmt.Errorf("tool_choice names %q, which is not among the tools", wish.name)
		}
		q.tool = &tools[i]
	case wish.forced, !wish.forbidden && strings.Contains(q.lastUserText(), toolMarker):
		q.tool = &tools[0]
	}
	return nil
}

// toolText is what tools are in the prompt.
func toolText(tools []tool) string {
	var all strings.Builder
	for _, t := range tools {
		all.WriteString(t.name + string(t.parameters))
	}
	return all.String()
}

type toolChoice struct {
	forced, forbidden bool
	name              string
}

// readToolChoice understands all APIs: a word, or an object with a type and, in
// one place or the other, a name.
func readToolChoice(raw json.RawMessage) toolChoice {
	var choice struct {
		Type, Name string
		Function   struct{ Name string }
	}
	if json.Unmarshal(raw, &choice.Type) != nil && json.Unmarshal(raw, &choice) != nil {
		return toolChoice{}
	}
	return toolChoice{
		forced:    choice.Type == "required" || choice.Type == "any",
		forbidden: choice.Type == "none",
		name:      cmp.Or(choice.Name, choice.Function.Name),
	}
}

// call is the call of a tool that an answer consists of.
type call struct {
	name   string
	pieces []string // of the arguments, one a token
}

// newCall makes up arguments that fit the tool's schema.
func newCall(t *tool, word func() string) *call {
	var s schema
	_ = json.Unmarshal(t.parameters, &s) // what is no schema has no properties
	arguments, _ := json.Marshal(s.object(word, 8))
	return &call{t.name, split(string(arguments))}
}

// split cuts a text into tokens.
func split(text string) []string {
	var pieces []string
	for chunk := range slices.Chunk([]rune(text), bytesPerToken) {
		pieces = append(pieces, string(chunk))
	}
	return pieces
}

// schema is the part of a JSON schema that arguments are made up from.
type schema struct {
	Type       json.RawMessage   `json:"type"` // a name or a list of them
	Enum       []any             `json:"enum"`
	Properties map[string]schema `json:"properties"`
}

func (s schema) object(word func() string, depth int) map[string]any {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		object[name] = s.Properties[name].value(word, depth-1)
	}
	return object
}

// value makes up a value; of what is nested deeper than depth it is null.
func (s schema) value(word func() string, depth int) any {
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	if depth <= 0 {
		return nil
	}
	switch s.kind() {
	case "string":
		return strings.TrimSpace(word())
	case "integer", "number":
		return len(word())
	case "boolean":
		return true
	case "array":
		return []any{}
	case "object":
		return s.object(word, depth)
	}
	return nil
}

// kind is the first type that the schema allows.
func (s schema) kind() string {
	var kinds []string
	if json.Unmarshal(s.Type, &kinds) == nil && len(kinds) > 0 {
		return kinds[0]
	}
	return text(s.Type)
}

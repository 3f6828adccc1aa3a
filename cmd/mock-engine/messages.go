package main

import (
	"encoding/json"
	"errors"
)

// messages is Anthropic's Messages API.
type messages struct{}

func (messages) read(body []byte) (*request, error) {
	var r struct {
		Model     string          `json:"model"`
		System    json.RawMessage `json:"system"`
		Messages  []chatMessage   `json:"messages"`
		MaxTokens *int            `json:"max_tokens"`
		Stream    bool            `json:"stream"`
		Metadata  struct {
			User string `json:"user_id"`
		} `json:"metadata"`
		ToolChoice json.RawMessage `json:"tool_choice"`
		Tools      []struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
	}
	err := json.Unmarshal(body, &r)
	q := &request{model: r.Model, limit: r.MaxTokens, stream: r.Stream, user: r.Metadata.User}
	for _, m := range r.Messages {
		q.turns = append(q.turns, turn{m.Role, text(m.Content)})
	}
	if err := q.check(err, "messages"); err != nil {
		return q, err
	}
	if q.limit == nil {
		return q, errors.New("max_tokens: field required")
	}
	q.preface("system", text(r.System))
	tools := make([]tool, len(r.Tools))
	for i, t := range r.Tools {
		tools[i] = tool{t.Name, t.Schema}
	}
	return q, q.offer(tools, r.ToolChoice)
}

// answer is a message of the model, as far as it has come.
type answer struct {
	ID           string       `json:"id"`
	Type         string       `json:"type"`
	Role         string       `json:"role"`
	Model        string       `json:"model"`
	Content      []block      `json:"content"`
	StopReason   *string      `json:"stop_reason"`
	StopSequence *string      `json:"stop_sequence"`
	Usage        messageUsage `json:"usage"`
}

// block is a part of the content: a text or the use of a tool.
type block struct {
	Type  string          `json:"type"`
	Text  *string         `json:"text,omitempty"`
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
}

// messageUsage counts a prompt's tokens apart: those that were in the cache are
// not in Input.
type messageUsage struct {
	Input         int `json:"input_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	Output        int `json:"output_tokens"`
}

func newAnswer(j *job) *answer {
	return &answer{
		ID: j.id("msg_"), Type: "message", Role: assistant, Model: j.model, Content: []block{},
		Usage: messageUsage{Input: j.prompt - j.cached, CacheRead: j.cached, Output: j.made},
	}
}

func (messages) whole(j *job) any {
	a := newAnswer(j)
	a.StopReason = stopReason(j)
	b := newBlock(j)
	if j.call == nil {
		b.Text = &j.text
	} else if json.Valid([]byte(j.text)) { // cut short, it is not
		b.Input = json.RawMessage(j.text)
	}
	a.Content = append(a.Content, b)
	return a
}

// newBlock is the answer's one block, before its first token.
func newBlock(j *job) block {
	if j.call == nil {
		return block{Type: "text", Text: new(string)}
	}
	return block{Type: "tool_use", ID: j.id("toolu_"), Name: j.call.name, Input: json.RawMessage("{}")}
}

func stopReason(j *job) *string {
	reason := "end_turn"
	switch {
	case j.finish == cutShort:
		reason = "max_tokens"
	case j.call != nil:
		reason = "tool_use"
	}
	return &reason
}

func (messages) refusal(e *apiError) any {
	kind := "invalid_request_error"
	switch {
	case e.status == 404:
		kind = "not_found_error"
	case e.status == 413:
		kind = "request_too_large"
	case e.status == 429:
		kind = "rate_limit_error"
	case e.status == 529:
		kind = "overloaded_error"
	case e.status >= 500:
		kind = "api_error"
	}
	return map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": e.message}}
}

package main

import (
	"encoding/json"
	"fmt"
)

// chat is OpenAI's chat completions API.
type chat struct{ openAI }

type chatRequest struct {
	Model               string          `json:"model"`
	Messages            []chatMessage   `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Stream              bool            `json:"stream"`
	StreamOptions       streamOptions   `json:"stream_options"`
	User                json.RawMessage `json:"user"`
	PromptCacheKey      string          `json:"prompt_cache_key"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	Tools               []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

func (chat) read(body []byte) (*request, error) {
	var r chatRequest
	err := json.Unmarshal(body, &r)
	q := &request{
		model: r.Model, limit: r.MaxTokens, stream: r.Stream, withUsage: r.StreamOptions.IncludeUsage,
		user: text(r.User), cacheKey: r.PromptCacheKey,
	}
	if r.MaxCompletionTokens != nil {
		q.limit = r.MaxCompletionTokens
	}
	for _, m := range r.Messages {
		q.turns = append(q.turns, turn{m.Role, text(m.Content) + string(m.ToolCalls)})
	}
	if err := q.check(err, "messages"); err != nil {
		return q, err
	}
	tools := make([]tool, len(r.Tools))
	for i, t := range r.Tools {
		tools[i] = tool{t.Function.Name, t.Function.Parameters}
	}
	return q, q.offer(tools, r.ToolChoice)
}

func (chat) whole(j *job) any {
	said := &said{Role: assistant, Content: &j.text}
	if j.call != nil {
		said.Content, said.ToolCalls = nil, []toolCall{{
			ID: j.id("call_"), Type: "function",
			Function: functionCall{Name: j.call.name, Arguments: j.text},
		}}
	}
	r := newReply(j, "chatcmpl-", "chat.completion")
	r.Choices = []choice{{Message: said, Finish: openAIFinish(j)}}
	r.Usage = usageOf(j)
	return r
}

func (chat) token(j *job, piece string) []event {
	delta := &said{}
	if j.made == 1 {
		delta.Role = assistant
	}
	if j.call == nil {
		delta.Content = &piece
	} else {
		call := toolCall{Index: new(int), Function: functionCall{Arguments: piece}}
		if j.made == 1 {
			call.ID, call.Type, call.Function.Name = j.id("call_"), "function", j.call.name
		}
		delta.ToolCalls = []toolCall{call}
	}
	r := newReply(j, "chatcmpl-", "chat.completion.chunk")
	r.Choices = []choice{{Delta: delta, Finish: openAIFinish(j)}}
	return []event{{data: r}}
}

func (chat) closing(j *job) []event {
	return closing(j, newReply(j, "chatcmpl-", "chat.completion.chunk"))
}

// completions is OpenAI's older completions API.
type completions struct{ openAI }

func (completions) read(body []byte) (*request, error) {
	var r struct {
		Model          string          `json:"model"`
		Prompt         json.RawMessage `json:"prompt"`
		MaxTokens      *int            `json:"max_tokens"`
		Stream         bool            `json:"stream"`
		StreamOptions  streamOptions   `json:"stream_options"`
		User           json.RawMessage `json:"user"`
		PromptCacheKey string          `json:"prompt_cache_key"`
	}
	err := json.Unmarshal(body, &r)
	q := &request{
		model: r.Model, limit: r.MaxTokens, stream: r.Stream, withUsage: r.StreamOptions.IncludeUsage,
		user: text(r.User), cacheKey: r.PromptCacheKey,
	}
	prompts, promptError := inputs(r.Prompt)
	for _, p := range prompts {
		q.turns = append(q.turns, turn{text: p})
	}
	switch err := q.check(err, "prompt"); {
	case err != nil:
		return q, err
	case promptError != nil:
		return q, fmt.Errorf("prompt: %w", promptError)
	case len(prompts) > 1:
		return q, fmt.Errorf("prompt: %d of them: want one a request", len(prompts))
	}
	return q, nil
}

func (completions) whole(j *job) any {
	r := newReply(j, "cmpl-", "text_completion")
	r.Choices = []choice{{Text: &j.text, Finish: openAIFinish(j)}}
	r.Usage = usageOf(j)
	return r
}

func (completions) token(j *job, piece string) []event {
	r := newReply(j, "cmpl-", "text_completion")
	r.Choices = []choice{{Text: &piece, Finish: openAIFinish(j)}}
	return []event{{data: r}}
}

func (completions) closing(j *job) []event {
	return closing(j, newReply(j, "cmpl-", "text_completion"))
}

package main

// openAI is what OpenAI's APIs have in common; by itself it streams nothing.
type openAI struct{}

func (openAI) opening(*job) []event       { return nil }
func (openAI) token(*job, string) []event { return nil }
func (openAI) closing(*job) []event       { return nil }

func (openAI) refusal(e *apiError) any {
	kind := "invalid_request_error"
	switch {
	case e.status >= 500:
		kind = "server_error"
	case e.status == 429:
		kind = "rate_limit_error"
	}
	return map[string]any{"error": map[string]any{
		"message": e.message, "type": kind, "param": nil, "code": e.code,
	}}
}

// reply is a completion, or one chunk of one, of chat or the older API.
type reply struct {
	ID          string   `json:"id"`
	Object      string   `json:"object"`
	Created     int64    `json:"created"` // Unix seconds
	Model       string   `json:"model"`
	Fingerprint string   `json:"system_fingerprint"` // the engine's name
	Choices     []choice `json:"choices"`
	Usage       *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index   int     `json:"index"`
	Message *said   `json:"message,omitempty"` // chat, whole
	Delta   *said   `json:"delta,omitempty"`   // chat, one chunk
	Text    *string `json:"text,omitempty"`    // the older API
	Finish  *string `json:"finish_reason"`
}

type said struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in a chunk
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type usage struct {
	Prompt  int           `json:"prompt_tokens"`
	Output  int           `json:"completion_tokens"`
	Total   int           `json:"total_tokens"`
	Details promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	Cached int `json:"cached_tokens"`
}

func newReply(j *job, prefix, object string) *reply {
	return &reply{ID: j.id(prefix), Object: object, Created: j.arrived.Unix(), Model: j.model, Fingerprint: j.engine}
}

func usageOf(j *job) *usage {
	return &usage{j.prompt, j.made, j.prompt + j.made, promptDetails{j.cached}}
}

// openAIFinish is why the answer ended, and nil as long as it has not.
func openAIFinish(j *job) *string {
	if j.made < j.output {
		return nil
	}
	reason := string(j.finish)
	if j.finish == stopped && j.call != nil {
		reason = "tool_calls"
	}
	return &reason
}

// closing ends a stream, with a chunk of its usage if that was asked for.
func closing(j *job, last *reply) []event {
	if !j.withUsage {
		return []event{{}}
	}
	last.Choices, last.Usage = []choice{}, usageOf(j)
	return []event{{data: last}, {}}
}

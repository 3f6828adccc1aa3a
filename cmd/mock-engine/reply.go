package main

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// reply is a completion, or one chunk of one, of either API.
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
	Text    string  `json:"text,omitempty"`    // the older API
	Finish  *string `json:"finish_reason"`
}

type said struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

type usage struct {
	Prompt int `json:"prompt_tokens"`
	Output int `json:"completion_tokens"`
	Total  int `json:"total_tokens"`
}

// lengthReached is why every completion ends: it is as long as was asked for.
var lengthReached = "length"

func (e *engine) reply(j *job, chunk bool) *reply {
	r := &reply{Created: j.arrived.Unix(), Model: j.Model, Fingerprint: e.name}
	switch {
	case !j.chat:
		r.ID, r.Object = "cmpl", "text_completion"
	case chunk:
		r.ID, r.Object = "chatcmpl", "chat.completion.chunk"
	default:
		r.ID, r.Object = "chatcmpl", "chat.completion"
	}
	r.ID = fmt.Sprintf("%s-%s-%d", r.ID, e.name, j.number)
	return r
}

func wholeChoice(j *job, text string) choice {
	if !j.chat {
		return choice{Text: text, Finish: &lengthReached}
	}
	return choice{Message: &said{Role: "assistant", Content: text}, Finish: &lengthReached}
}

// tokenChoice is the chunk of the token made last.
func tokenChoice(j *job, word string) choice {
	var c choice
	if j.made == j.output {
		c.Finish = &lengthReached
	}
	if !j.chat {
		c.Text = word
		return c
	}
	c.Delta = &said{Content: word}
	if j.made == 1 {
		c.Delta.Role = "assistant"
	}
	return c
}

func usageOf(j *job) *usage {
	return &usage{Prompt: j.prompt, Output: j.made, Total: j.prompt + j.made}
}

// stream writes server-sent events.
type stream struct {
	w      http.ResponseWriter
	flush  func() error
	opened bool
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, flush: http.NewResponseController(w).Flush}
}

// open sends the response's headers, once.
func (s *stream) open() error {
	if s.opened {
		return nil
	}
	s.opened = true
	s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s.w.Header().Set("Cache-Control", "no-cache")
	s.w.WriteHeader(http.StatusOK)
	return s.flush()
}

func (s *stream) send(event any) error {
	data, err := json.Marshal(event)
	if err != nil {
		return err
	}
	return s.write(data)
}

func (s *stream) close() error { return s.write([]byte("[DONE]")) }

func (s *stream) write(data []byte) error {
	if err := s.open(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.w, "data: %s\n\n", data); err != nil {
		return err
	}
	return s.flush()
}

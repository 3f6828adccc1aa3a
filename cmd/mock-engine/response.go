package main

import (
	"cmp"
	"encoding/json"
)

// response is an answer in the Responses API, as far as it has come.
type response struct {
	ID         string             `json:"id"`
	Object     string             `json:"object"`
	Created    int64              `json:"created_at"` // Unix seconds
	Status     string             `json:"status"`
	Error      *struct{}          `json:"error"`
	Incomplete *incompleteDetails `json:"incomplete_details"`
	Model      string             `json:"model"`
	Output     []outputItem       `json:"output"`
	Parallel   bool               `json:"parallel_tool_calls"`
	Truncation string             `json:"truncation"`
	Usage      *responseUsage     `json:"usage"`
	settings
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

// outputItem is a message or the call of a function.
type outputItem struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`

	Role    string       `json:"role,omitempty"`
	Content []outputPart `json:"content,omitzero"`

	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
}

type outputPart struct {
	Type        string     `json:"type"`
	Text        string     `json:"text"`
	Annotations []struct{} `json:"annotations"`
	LogProbs    []struct{} `json:"logprobs"`
}

type responseUsage struct {
	Input        int           `json:"input_tokens"`
	InputDetails promptDetails `json:"input_tokens_details"`
	Output       int           `json:"output_tokens"`
	OutDetails   struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

func (responses) whole(j *job) any { return finishedResponse(j) }

func newResponse(j *job) *response {
	r := &response{
		ID: j.id("resp_"), Object: "response", Created: j.arrived.Unix(), Status: "in_progress",
		Model: j.model, Output: []outputItem{}, Parallel: true, Truncation: "disabled", settings: j.echo,
	}
	one, yes := 1.0, true
	r.Temperature, r.TopP, r.Store = cmp.Or(r.Temperature, &one), cmp.Or(r.TopP, &one), cmp.Or(r.Store, &yes)
	if r.Tools == nil {
		r.Tools = json.RawMessage("[]")
	}
	if r.ToolChoice == nil {
		r.ToolChoice = json.RawMessage(`"auto"`)
	}
	return r
}

func finishedResponse(j *job) *response {
	r := newResponse(j)
	r.Status = "completed"
	if j.finish == cutShort {
		r.Status, r.Incomplete = "incomplete", &incompleteDetails{"max_output_tokens"}
	}
	r.Output = append(r.Output, finishedItem(j))
	r.Usage = &responseUsage{
		Input: j.prompt, InputDetails: promptDetails{j.cached}, Output: j.made, Total: j.prompt + j.made,
	}
	return r
}

// newItem is the answer's one item, before its first token.
func newItem(j *job) outputItem {
	if j.call != nil {
		return outputItem{
			ID: j.id("fc_"), Type: "function_call", Status: "in_progress",
			CallID: j.id("call_"), Name: j.call.name, Arguments: new(string),
		}
	}
	return outputItem{
		ID: j.id("msg_"), Type: "message", Status: "in_progress",
		Role: assistant, Content: []outputPart{},
	}
}

func finishedItem(j *job) outputItem {
	item := newItem(j)
	item.Status = "completed"
	if j.finish == cutShort {
		item.Status = "incomplete"
	}
	if j.call != nil {
		item.Arguments = &j.text
	} else {
		item.Content = append(item.Content, newPart(j.text))
	}
	return item
}

func newPart(text string) outputPart {
	return outputPart{"output_text", text, []struct{}{}, []struct{}{}}
}

package main

import "encoding/json"

// responses is OpenAI's Responses API.
type responses struct{ openAI }

// settings are what a response repeats of its request.
type settings struct {
	Instructions json.RawMessage `json:"instructions"`
	Limit        *int            `json:"max_output_tokens"`
	Previous     *string         `json:"previous_response_id"`
	Conversation *conversationID `json:"conversation,omitempty"`
	CacheKey     string          `json:"prompt_cache_key,omitempty"`
	Store        *bool           `json:"store"`
	Metadata     json.RawMessage `json:"metadata"`
	Temperature  *float64        `json:"temperature"`
	TopP         *float64        `json:"top_p"`
	Tools        json.RawMessage `json:"tools"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Text         json.RawMessage `json:"text,omitempty"`
	Reasoning    json.RawMessage `json:"reasoning,omitempty"`
}

// conversationID is a name or an object with one.
type conversationID struct {
	ID string `json:"id"`
}

func (c *conversationID) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &c.ID) == nil {
		return nil
	}
	var object struct{ ID string }
	err := json.Unmarshal(raw, &object)
	c.ID = object.ID
	return err
}

func (responses) read(body []byte) (*request, error) {
	var r struct {
		settings
		Model  string          `json:"model"`
		Input  json.RawMessage `json:"input"`
		Stream bool            `json:"stream"`
		User   json.RawMessage `json:"user"`
	}
	err := json.Unmarshal(body, &r)
	q := &request{
		model: r.Model, limit: r.Limit, stream: r.Stream, user: text(r.User),
		cacheKey: r.CacheKey, turns: inputTurns(r.Input), echo: r.settings,
		keep: r.Store == nil || *r.Store,
	}
	if r.Previous != nil {
		q.follows = *r.Previous
	}
	if r.Conversation != nil {
		q.talk = r.Conversation.ID
	}
	if err := q.check(err, "input"); err != nil {
		return q, err
	}
	q.preface("system", text(r.Instructions))
	return q, q.offer(responseTools(r.Tools), r.ToolChoice)
}

// inputTurns reads an input: a text of the user, or items. Items other than
// messages stand for themselves.
func inputTurns(raw json.RawMessage) []turn {
	var said string
	if json.Unmarshal(raw, &said) == nil {
		if said == "" {
			return nil
		}
		return []turn{{"user", said}}
	}
	var items []json.RawMessage
	_ = json.Unmarshal(raw, &items) // what is no list has no items
	turns := make([]turn, len(items))
	for i, item := range items {
		var message struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(item, &message) == nil && message.Role != "" {
			turns[i] = turn{message.Role, text(message.Content)}
		} else {
			turns[i] = turn{text: string(item)}
		}
	}
	return turns
}

// responseTools are the functions among the tools; the others are the service's.
func responseTools(raw json.RawMessage) []tool {
	var all []struct {
		Type, Name string
		Parameters json.RawMessage
	}
	_ = json.Unmarshal(raw, &all) // what is no list has no tools
	var functions []tool
	for _, t := range all {
		if t.Type == "function" {
			functions = append(functions, tool{t.Name, t.Parameters})
		}
	}
	return functions
}

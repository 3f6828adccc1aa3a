package main

// responseEvent is an event of a stream in the Responses API. Kinds of events
// differ in the fields that they have.
type responseEvent struct {
	Type     string `json:"type"`
	Sequence int    `json:"sequence_number"`

	Response *response   `json:"response,omitempty"`
	Item     *outputItem `json:"item,omitempty"`
	Part     *outputPart `json:"part,omitempty"`
	LogProbs []struct{}  `json:"logprobs,omitzero"`

	ItemID    string  `json:"item_id,omitempty"`
	Output    *int    `json:"output_index,omitempty"`
	Content   *int    `json:"content_index,omitempty"`
	Delta     *string `json:"delta,omitempty"`
	Text      *string `json:"text,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	Name      string  `json:"name,omitempty"`
}

// opening comes before the first token has been made, as an engine knows by then
// only that it took the request.
func (responses) opening(j *job) []event {
	return j.inSequence(
		&responseEvent{Type: "response.created", Response: newResponse(j)},
		&responseEvent{Type: "response.in_progress", Response: newResponse(j)},
	)
}

func (responses) token(j *job, piece string) []event {
	delta := responseEvent{Type: "response.function_call_arguments.delta", ItemID: newItem(j).ID, Output: new(int), Delta: &piece}
	if j.call == nil {
		delta.Type, delta.Content, delta.LogProbs = "response.output_text.delta", new(int), []struct{}{}
	}
	var events []*responseEvent
	if j.made == 1 {
		events = itemAdded(j)
	}
	return j.inSequence(append(events, &delta)...)
}

func itemAdded(j *job) []*responseEvent {
	item, part := newItem(j), newPart("")
	added := []*responseEvent{{Type: "response.output_item.added", Output: new(int), Item: &item}}
	if j.call != nil {
		return added
	}
	return append(added, &responseEvent{
		Type: "response.content_part.added", ItemID: item.ID, Output: new(int), Content: new(int), Part: &part,
	})
}

func (responses) closing(j *job) []event {
	item, r := finishedItem(j), finishedResponse(j)
	return j.inSequence(append(contentDone(j, item.ID),
		&responseEvent{Type: "response.output_item.done", Output: new(int), Item: &item},
		&responseEvent{Type: "response." + r.Status, Response: r},
	)...)
}

func contentDone(j *job, id string) []*responseEvent {
	if j.call != nil {
		return []*responseEvent{{
			Type: "response.function_call_arguments.done", ItemID: id, Output: new(int), Arguments: &j.text, Name: j.call.name,
		}}
	}
	part := newPart(j.text)
	return []*responseEvent{
		{
			Type: "response.output_text.done", ItemID: id, Output: new(int), Content: new(int), Text: &j.text,
			LogProbs: []struct{}{},
		},
		{Type: "response.content_part.done", ItemID: id, Output: new(int), Content: new(int), Part: &part},
	}
}

// inSequence numbers the next events of a stream.
func (j *job) inSequence(events ...*responseEvent) []event {
	numbered := make([]event, len(events))
	for i, e := range events {
		e.Sequence = j.events
		j.events++
		numbered[i] = event{e.Type, e}
	}
	return numbered
}

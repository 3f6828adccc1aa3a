package main

// messageEvent is an event of a stream in the Messages API. Kinds of events differ
// in the fields that they have.
type messageEvent struct {
	Type    string        `json:"type"`
	Message *answer       `json:"message,omitempty"`
	Index   *int          `json:"index,omitempty"`
	Block   *block        `json:"content_block,omitempty"`
	Delta   any           `json:"delta,omitempty"`
	Usage   *messageUsage `json:"usage,omitempty"`
}

type textDelta struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type inputDelta struct {
	Type string `json:"type"`
	JSON string `json:"partial_json"`
}

type stopDelta struct {
	Reason   *string `json:"stop_reason"`
	Sequence *string `json:"stop_sequence"`
}

// opening is empty: the first event comes with the first token.
func (messages) opening(*job) []event { return nil }

func (messages) token(j *job, piece string) []event {
	var events []event
	if j.made == 1 {
		block := newBlock(j)
		events = named(
			messageEvent{Type: "message_start", Message: newAnswer(j)},
			messageEvent{Type: "content_block_start", Index: new(int), Block: &block},
		)
	}
	delta := any(textDelta{"text_delta", piece})
	if j.call != nil {
		delta = inputDelta{"input_json_delta", piece}
	}
	return append(events, named(messageEvent{Type: "content_block_delta", Index: new(int), Delta: delta})...)
}

func (messages) closing(j *job) []event {
	return named(
		messageEvent{Type: "content_block_stop", Index: new(int)},
		messageEvent{Type: "message_delta", Delta: stopDelta{Reason: stopReason(j)}, Usage: &newAnswer(j).Usage},
		messageEvent{Type: "message_stop"},
	)
}

// named gives events their types as names.
func named(all ...messageEvent) []event {
	events := make([]event, len(all))
	for i, e := range all {
		events[i] = event{e.Type, e}
	}
	return events
}

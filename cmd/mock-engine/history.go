package main

import "slices"

// keptResponses are remembered for requests that follow one.
const keptResponses = 1024

// recall puts in front of a request what was said before it, if this engine was
// there. What it does not know it takes as not said: whoever sent the request to
// the wrong engine sees it in the tokens of the prompt.
func (e *engine) recall(q *request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range []string{q.follows, q.talk} {
		if before, ok := e.history.get(id); ok {
			q.turns = slices.Concat(before, q.turns)
		}
	}
}

// remember keeps a response for those that follow it. It must be there before the
// client knows that the response has ended.
func (e *engine) remember(j *job) {
	if !j.keep {
		return
	}
	turns := slices.Concat(j.turns, []turn{{assistant, j.text}})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.history.put(j.id("resp_"), turns)
	if j.talk != "" {
		e.history.put(j.talk, turns)
	}
}

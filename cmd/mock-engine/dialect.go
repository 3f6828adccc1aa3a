package main

// dialect is one API: how its requests are read, and how answers are said in it.
type dialect interface {
	// read checks a request. What could be read of a wrong one is returned too.
	read(body []byte) (*request, error)
	// whole is the answer to a request that does not stream.
	whole(j *job) any
	// opening are the events that are sent with a stream's headers.
	opening(j *job) []event
	// token are the events of the token that was made last.
	token(j *job, piece string) []event
	// closing are the events after the last token.
	closing(j *job) []event
	// refusal is the body of an error.
	refusal(e *apiError) any
}

// event is a server-sent event.
type event struct {
	name string // none when empty
	data any    // JSON; nil: the end of a stream of OpenAI's older APIs
}

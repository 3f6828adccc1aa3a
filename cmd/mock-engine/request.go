package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	bodyLimit     = 64 << 20         // bytes
	bodyPatience  = 30 * time.Second // for a body to arrive
	defaultOutput = 16               // tokens of an answer when the request does not say
)

// request is what the engine wants to know of a request, whatever its API.
type request struct {
	dialect dialect
	body    bodyFacts

	model     string
	head      []turn // tools and instructions, which come before all turns
	turns     []turn
	limit     *int // output tokens at most
	stream    bool
	withUsage bool // a stream ends with its usage
	tool      *tool
	embed     *embedding // what to do instead of an answer

	user     string
	cacheKey string
	follows  string   // ID of an earlier response
	talk     string   // ID of the conversation that the request is part of
	keep     bool     // the answer may be followed by its ID
	echo     settings // what a response repeats of its request
}

// turn is one message of a prompt.
type turn struct{ role, text string }

// assistant is the role of the model.
const assistant = "assistant"

// bodyFacts let a test prove that a body arrived unchanged.
type bodyFacts struct {
	bytes  int
	sha256 string
}

// readRequest reads and checks a request. The request is never nil: what could be
// read of it is there for the journal.
func readRequest(w http.ResponseWriter, r *http.Request, d dialect) (*request, *apiError) {
	q := &request{}
	body, failure := readBody(w, r)
	if failure == nil {
		var err error
		if q, err = d.read(body); err != nil {
			failure = badRequest(err.Error())
		}
	}
	sum := sha256.Sum256(body)
	q.dialect, q.body = d, bodyFacts{len(body), hex.EncodeToString(sum[:])}
	return q, failure
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *apiError) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyPatience)) // where the transport has no deadlines, none is set
	defer control.SetReadDeadline(time.Time{})
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return body, &apiError{http.StatusRequestEntityTooLarge, "the body is larger than 64 MiB", "request_too_large"}
	case err != nil:
		return body, badRequest(fmt.Sprintf("the body did not arrive: %v", err))
	}
	return body, nil
}

// check finds what is wrong with a request that was read; what names the part that
// holds the prompt.
func (q *request) check(readError error, what string) error {
	switch {
	case readError != nil:
		return fmt.Errorf("the body is not a completion request: %w", readError)
	case q.model == "":
		return errors.New("the request names no model")
	case len(q.turns) == 0:
		return fmt.Errorf("the request has no %s", what)
	case q.limit != nil && *q.limit <= 0:
		return fmt.Errorf("max_tokens is %d: want at least 1", *q.limit)
	}
	return nil
}

// preface puts a text in front of all others, unless it is empty.
func (q *request) preface(role, text string) {
	if text != "" {
		q.head = slices.Insert(q.head, 0, turn{role, text})
	}
}

// prompt is the request's text, for the KV cache.
func (q *request) prompt(block int) *prefixes {
	p := newPrefixes(q.model, block)
	for _, t := range slices.Concat(q.head, q.turns) {
		p.turn(t)
	}
	return p
}

// conversation is the start of the first user message: test clients name their
// conversations in it.
func (q *request) conversation() string {
	i := slices.IndexFunc(q.turns, func(t turn) bool { return t.role == "user" })
	if i < 0 {
		return ""
	}
	return shorten(q.turns[i].text)
}

// lastUserText is what the user said last.
func (q *request) lastUserText() string {
	for _, t := range slices.Backward(q.turns) {
		if t.role == "user" {
			return t.text
		}
	}
	return ""
}

func shorten(s string) string {
	const most = 80 // bytes
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

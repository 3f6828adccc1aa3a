package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	defaultOutput = 16               // tokens of a request that does not say
	bytesPerToken = 4                // of English text, roughly
)

// request is the part of a completion request that the engine looks at.
type request struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	Prompt              json.RawMessage `json:"prompt"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	User           json.RawMessage `json:"user"`
	PromptCacheKey string          `json:"prompt_cache_key"`

	chat bool // of the chat API; else of the older completions API
	body bodyFacts
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// bodyFacts let a test prove that a body arrived unchanged.
type bodyFacts struct {
	bytes  int
	sha256 string
}

// readRequest reads and checks a request. The request is never nil: what could be
// read of it is there for the journal.
func readRequest(w http.ResponseWriter, r *http.Request, chat bool) (*request, *apiError) {
	q := &request{chat: chat}
	body, failure := readBody(w, r)
	sum := sha256.Sum256(body)
	q.body = bodyFacts{len(body), hex.EncodeToString(sum[:])}
	if failure != nil {
		return q, failure
	}
	if err := json.Unmarshal(body, q); err != nil {
		return q, badRequest(fmt.Sprintf("the body is not a completion request: %v", err))
	}
	return q, q.check()
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

func (q *request) check() *apiError {
	switch {
	case q.Model == "":
		return badRequest("the request names no model")
	case q.chat && len(q.Messages) == 0:
		return badRequest("the request has no messages")
	case !q.chat && len(q.Prompt) == 0:
		return badRequest("the request has no prompt")
	case q.asked() <= 0:
		return badRequest(fmt.Sprintf("max_tokens is %d: want at least 1", q.asked()))
	}
	return nil
}

// asked is the number of output tokens that the request asks for.
func (q *request) asked() int {
	switch {
	case q.MaxCompletionTokens != nil:
		return *q.MaxCompletionTokens
	case q.MaxTokens != nil:
		return *q.MaxTokens
	}
	return defaultOutput
}

// promptTokens is an estimate from the length of the text.
func (q *request) promptTokens() int {
	n := len(q.Prompt)
	for _, m := range q.Messages {
		n += len(m.Content)
	}
	return max(1, n/bytesPerToken)
}

// conversation is the start of the first user message: test clients name their
// conversations in it.
func (q *request) conversation() string {
	i := slices.IndexFunc(q.Messages, func(m message) bool { return m.Role == "user" })
	if i < 0 {
		return ""
	}
	return shorten(text(q.Messages[i].Content))
}

// text is a JSON string's value, and any other JSON as it stands.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func shorten(s string) string {
	const most = 80 // bytes
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

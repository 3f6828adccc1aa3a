package stage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Call is one request of a client.
type Call struct {
	URL     string // of the front-end
	Path    string // empty: chat completions
	Body    []byte
	Headers map[string]string
	Timeout time.Duration // of the whole exchange; 0: 30 s
}

// Reply is what the client saw.
type Reply struct {
	Sent   time.Time
	Status int
	Header http.Header
	TTFT   time.Duration // until the first event of the stream, or the first byte of the body
	Took   time.Duration // until the end, however it came
	Body   []byte
	Err    error // also a stream that ended before its last event
}

// OK says whether the client got a whole answer.
func (r *Reply) OK() bool { return r.Err == nil && r.Status == http.StatusOK }

// tellable are our headers that clients may see.
var tellable = []string{"x-weir-shed-reason", "x-weir-attempts"}

// Leak names a header between Envoy and weir-extproc, or of Envoy's own, that reached
// the client; there should be none.
func (r *Reply) Leak() string {
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-weir-") && !slices.Contains(tellable, lower) || strings.HasPrefix(lower, "x-envoy-") {
			return name + ": " + r.Header.Get(name)
		}
	}
	return ""
}

func (r *Reply) String() string {
	return fmt.Sprintf("status %d, error %v, body %.200q", r.Status, r.Err, r.Body)
}

// NewClient returns an HTTP client that keeps many connections and, unlike an
// SDK, never tries again.
func NewClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}}
}

// Do sends a call and reads the whole answer.
func Do(ctx context.Context, client *http.Client, c Call) (r Reply) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r.Sent = time.Now()
	defer func() { r.Took = time.Since(r.Sent) }()
	request, err := newRequest(ctx, c)
	if err != nil {
		r.Err = err
		return r
	}
	response, err := client.Do(request)
	if err != nil {
		r.Err = err
		return r
	}
	defer response.Body.Close()
	r.Status, r.Header = response.StatusCode, response.Header
	r.Body, r.TTFT, r.Err = readReply(response, r.Sent)
	return r
}

func newRequest(ctx context.Context, c Call) (*http.Request, error) {
	path := c.Path
	if path == "" {
		path = "/v1/chat/completions"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, bytes.NewReader(c.Body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("content-type", "application/json")
	for name, value := range c.Headers {
		request.Header.Set(name, value)
	}
	return request, nil
}

func readReply(response *http.Response, sent time.Time) ([]byte, time.Duration, error) {
	body := bufio.NewReader(response.Body)
	_, err := body.Peek(1)
	ttft := time.Since(sent)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, ttft, err
	}
	all, err := io.ReadAll(body)
	stream := strings.HasPrefix(response.Header.Get("content-type"), "text/event-stream")
	if err == nil && stream && !bytes.HasSuffix(bytes.TrimSpace(all), []byte("data: [DONE]")) {
		err = errors.New("the stream ended before its last event")
	}
	return all, ttft, err
}

// Chat is the body of the first turn of a conversation. Padding lengthens the
// system prompt.
func Chat(model, user string, stream bool, padding int) []byte {
	system := "You are terse." + strings.Repeat(" a", padding/2)
	p := prompt{Messages: []message{{"system", system}, {"user", user}}, Stream: stream, MaxTokens: shortAnswer, Model: model}
	return p.body()
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type usageOption struct {
	IncludeUsage bool `json:"include_usage"`
}

// prompt is the body of a request, the model last, as openai-python has it.
type prompt struct {
	Messages  []message    `json:"messages"`
	Stream    bool         `json:"stream"`
	MaxTokens int          `json:"max_tokens"`
	Options   *usageOption `json:"stream_options,omitempty"`
	Model     string       `json:"model"`
}

func (p *prompt) body() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic("stage: " + err.Error()) // strings always marshal
	}
	return body
}

// shortAnswer is how many tokens most clients ask for.
const shortAnswer = 4

// Turn is the body of one turn of a conversation, which sends all earlier ones
// again. Only the first user message names the conversation.
func Turn(model, name string, turn int, stream bool) []byte {
	p := prompt{Messages: turns(name, turn), Stream: stream, MaxTokens: shortAnswer, Model: model}
	return p.body()
}

// LongTurn asks for an answer of so many tokens, as a stream that tells their number.
func LongTurn(model, name string, turn, tokens int) []byte {
	p := prompt{Messages: turns(name, turn), Stream: true, MaxTokens: tokens, Options: &usageOption{IncludeUsage: true}, Model: model}
	return p.body()
}

func turns(name string, turn int) []message {
	messages := []message{{"system", "You are terse."}, {"user", "conversation " + name}}
	for i := range turn {
		messages = append(messages, message{"assistant", fmt.Sprint("answer ", i)}, message{"user", fmt.Sprint("and then ", i)})
	}
	return messages
}

// Pick is an engine's address as stateful_session's header has it.
func Pick(engine string) string { return base64.StdEncoding.EncodeToString([]byte(engine)) }

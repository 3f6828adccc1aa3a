package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// journal is the engine's own account of what reached it: a JSON line when a
// request has arrived, and one with the same id when it has ended.
type journal struct {
	mu  sync.Mutex // guards out and err
	out io.WriteCloser
	err error // the first failure to write
}

// arrival is the line of a request whose body was read, whatever comes of it.
type arrival struct {
	Event   string    `json:"event"` // "arrival"
	Time    time.Time `json:"time"`
	Engine  string    `json:"engine"`
	ID      uint64    `json:"id"`           // counts the engine's requests from 1
	Source  string    `json:"source"`       // address of the client
	Delay   float64   `json:"delaySeconds"` // that lies behind the request
	Method  string    `json:"method"`
	Path    string    `json:"path"`
	Model   string    `json:"model"`
	Stream  bool      `json:"stream"`
	Bytes   int       `json:"bytes"`  // of the body
	SHA256  string    `json:"sha256"` // of the body, in hex
	XNames  []string  `json:"xHeaders"`
	User    string    `json:"user,omitempty"`
	Cache   string    `json:"promptCacheKey,omitempty"`
	Talk    string    `json:"conversation,omitempty"` // start of the first user message
	Prompt  int       `json:"promptTokens"`
	Cached  int       `json:"cachedTokens"`
	Load    float64   `json:"utilisation"` // that the request met
	Running int       `json:"running"`     // other requests in the engine then

	Headers map[string]string `json:"headers"` // those that --log-headers names
}

// ending is the line of a request that has ended.
type ending struct {
	Event   string    `json:"event"` // "end"
	Time    time.Time `json:"time"`
	Engine  string    `json:"engine"`
	ID      uint64    `json:"id"`
	Status  int       `json:"status"`
	Outcome outcome   `json:"outcome"` // done, aborted, rejected or failed
	Tokens  int       `json:"outputTokens"`
	Cached  int       `json:"cachedTokens"`          // of the prompt, in the KV cache
	TTFT    *float64  `json:"ttftSeconds,omitempty"` // absent without a token
}

// openJournal appends to a file; without a name the journal keeps nothing.
func openJournal(name string) (*journal, error) {
	if name == "" {
		return &journal{}, nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--log: %w", err)
	}
	return &journal{out: f}, nil
}

// Close returns the first failure of the journal's life: a test must not count
// in a journal with holes.
func (l *journal) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return nil
	}
	if err := l.out.Close(); l.err == nil {
		l.err = err
	}
	return l.err
}

func (l *journal) write(record any) {
	line, err := json.Marshal(record)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return
	}
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if l.err == nil {
		l.err = err
	}
}

func (e *engine) logArrival(j *job, r *http.Request) {
	source := sourceOf(r)
	e.journal.write(arrival{
		Event: "arrival", Time: j.arrived, Engine: e.name, ID: j.number,
		Source: source.String(), Delay: e.delays.to(source).Seconds(), Method: r.Method, Path: r.URL.Path, Model: j.model, Stream: j.stream,
		Bytes: j.body.bytes, SHA256: j.body.sha256, XNames: xNames(r.Header),
		User: shorten(j.user), Cache: j.cacheKey, Talk: j.conversation(),
		Prompt: j.prompt, Cached: j.cached, Load: j.utilisation, Running: j.others,
		Headers: pick(r.Header, e.logHeaders),
	})
}

func (e *engine) logEnd(j *job) {
	end := ending{
		Event: "end", Time: time.Now(), Engine: e.name, ID: j.number,
		Status: j.status, Outcome: j.outcome, Tokens: j.made, Cached: j.cached,
	}
	if j.made > 0 {
		ttft := j.firstToken.Sub(j.arrived).Seconds()
		end.TTFT = &ttft
	}
	e.journal.write(end)
}

// xNames lists the headers that start with x-, lower case and sorted.
func xNames(h http.Header) []string {
	names := []string{}
	for name := range h {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func pick(h http.Header, names []string) map[string]string {
	values := map[string]string{}
	for _, name := range names {
		if v := h.Values(name); len(v) > 0 {
			values[name] = strings.Join(v, ", ")
		}
	}
	return values
}

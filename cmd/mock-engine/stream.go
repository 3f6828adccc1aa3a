package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// stream writes server-sent events.
type stream struct {
	w      http.ResponseWriter
	flush  func() error
	opened bool
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, flush: http.NewResponseController(w).Flush}
}

// open sends the response's headers and the job's first events, once.
func (s *stream) open(j *job) error {
	if s.opened {
		return nil
	}
	s.opened = true
	s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s.w.Header().Set("Cache-Control", "no-cache")
	s.w.WriteHeader(http.StatusOK)
	return s.send(j.dialect.opening(j))
}

func (s *stream) send(events []event) error {
	for _, e := range events {
		if err := e.writeTo(s.w); err != nil {
			return err
		}
	}
	return s.flush()
}

func (e event) writeTo(w io.Writer) error {
	data := []byte("[DONE]")
	if e.data != nil {
		var err error
		if data, err = json.Marshal(e.data); err != nil {
			return err
		}
	}
	if e.name != "" {
		if _, err := fmt.Fprintf(w, "event: %s\n", e.name); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "data: %s\n\n", data)
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// statusAborted stands in the journal for a request without an answer.
const statusAborted = 499

// complete answers POST /v1/chat/completions and /v1/completions.
func (e *engine) complete(chat bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, refusal := readRequest(w, r, chat)
		if refusal == nil && !slices.Contains(e.models, q.Model) {
			refusal = noModel(q.Model)
		}
		j := e.arrive(q, refusal == nil, time.Now())
		e.logArrival(j, r)
		defer e.logEnd(j)
		switch {
		case refusal != nil:
			j.end(rejected, refusal.status)
			writeError(w, refusal)
		case j.fails():
			j.end(failed, j.faults.ErrorStatus)
			writeError(w, &apiError{j.faults.ErrorStatus, "an injected fault", "injected"})
		default:
			e.work(w, r.Context(), j)
		}
	}
}

func noModel(name string) *apiError {
	return &apiError{http.StatusNotFound, fmt.Sprintf("the model %q does not exist", name), "model_not_found"}
}

// work answers a job that was accepted. One that cannot be answered to its end
// has its connection cut, so that nobody takes the part for the whole.
func (e *engine) work(w http.ResponseWriter, ctx context.Context, j *job) {
	answer := e.answerWhole
	if j.Stream {
		answer = e.answerStream
	}
	err := answer(ctx, w, j)
	switch {
	case err == nil:
		j.end(done, http.StatusOK)
	case errors.Is(err, errCut):
		j.end(failed, statusAborted)
	default:
		j.end(aborted, statusAborted)
	}
	e.change(func(s *stats) { s.finished[j.outcome]++ })
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (e *engine) answerWhole(ctx context.Context, w http.ResponseWriter, j *job) error {
	var text strings.Builder
	err := e.generate(ctx, j, func(word string) error {
		text.WriteString(word)
		return nil
	})
	if err != nil {
		return err
	}
	reply := e.reply(j, false)
	reply.Choices = []choice{wholeChoice(j, text.String())}
	reply.Usage = usageOf(j)
	writeJSON(w, http.StatusOK, reply)
	return nil
}

func (e *engine) answerStream(ctx context.Context, w http.ResponseWriter, j *job) error {
	s := newStream(w)
	if !e.holdHeader {
		if err := s.open(); err != nil {
			return err
		}
	}
	err := e.generate(ctx, j, func(word string) error {
		reply := e.reply(j, true)
		reply.Choices = []choice{tokenChoice(j, word)}
		return s.send(reply)
	})
	if err != nil {
		return err
	}
	if j.StreamOptions.IncludeUsage {
		reply := e.reply(j, true)
		reply.Choices, reply.Usage = []choice{}, usageOf(j)
		if err := s.send(reply); err != nil {
			return err
		}
	}
	return s.close()
}

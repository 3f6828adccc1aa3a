package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// statusAborted stands in the journal for a request without an answer.
const statusAborted = 499

// serve answers the requests of an API.
func (e *engine) serve(d dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, refusal := readRequest(w, r, d)
		if refusal == nil && !slices.Contains(e.models, q.model) {
			refusal = noModel(q.model)
		}
		j := e.arrive(q, refusal, time.Now())
		e.logArrival(j, r)
		defer e.end(j)
		if j.refusal != nil {
			j.refuse(w)
			return
		}
		e.work(w, r.Context(), j)
	}
}

func noModel(name string) *apiError {
	return &apiError{http.StatusNotFound, fmt.Sprintf("the model %q does not exist", name), "model_not_found"}
}

// work answers a job that was accepted. One that cannot be answered to its end
// has its connection cut, so that nobody takes the part for the whole.
func (e *engine) work(w http.ResponseWriter, ctx context.Context, j *job) {
	answer := e.answerWhole
	if j.stream {
		answer = e.answerStream
	}
	switch err := answer(ctx, w, j); {
	case err == nil:
		j.outcome, j.status = done, http.StatusOK
	case errors.Is(err, errCut):
		j.outcome, j.status = failed, statusAborted
		reset(w)
	default:
		j.outcome, j.status = aborted, statusAborted
		panic(http.ErrAbortHandler)
	}
}

// end counts and logs a job that has ended.
func (e *engine) end(j *job) {
	if j.refusal == nil {
		e.change(func(s *stats) { s.ended(j) })
	}
	e.logEnd(j)
}

func (e *engine) answerWhole(ctx context.Context, w http.ResponseWriter, j *job) error {
	if err := e.generate(ctx, j, func(string) error { return nil }); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, j.dialect.whole(j))
	return nil
}

func (e *engine) answerStream(ctx context.Context, w http.ResponseWriter, j *job) error {
	s := newStream(w)
	if !e.holdHeader {
		if err := s.open(j); err != nil {
			return err
		}
	}
	err := e.generate(ctx, j, func(piece string) error {
		if err := s.open(j); err != nil {
			return err
		}
		return s.send(j.dialect.token(j, piece))
	})
	if err != nil {
		return err
	}
	return s.send(j.dialect.closing(j))
}

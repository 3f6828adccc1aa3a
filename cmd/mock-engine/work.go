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
		j := e.arrive(q, refusal == nil, time.Now())
		e.logArrival(j, r)
		defer e.logEnd(j)
		switch {
		case refusal != nil:
			j.end(rejected, refusal.status)
			writeJSON(w, refusal.status, d.refusal(refusal))
		case j.fails():
			j.end(failed, j.faults.ErrorStatus)
			writeJSON(w, j.faults.ErrorStatus, d.refusal(&apiError{j.faults.ErrorStatus, "an injected fault", "injected"}))
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
	if j.stream {
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
	e.change(func(s *stats) { s.ended(j) })
	if err != nil {
		panic(http.ErrAbortHandler)
	}
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

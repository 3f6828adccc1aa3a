package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// faults are what is wrong with the engine. They can be set while it runs, so that
// a test can make it sick and well again: PUT /faults with the whole set as JSON.
// What is left out is well.
type faults struct {
	Refuse bool `json:"refuse"` // a connection is reset as soon as it asks for anything
	Mute   bool `json:"mute"`   // requests of every kind are taken and never answered

	Unhealthy   bool    `json:"unhealthy"`   // /health answers 503
	ErrorRate   float64 `json:"errorRate"`   // fraction of requests that fail at once, 0 to 1
	ErrorStatus int     `json:"errorStatus"` // status of these failures; 500 by default
	BusyAbove   *int    `json:"busyAbove"`   // requests at once; more are refused. null: never
	BusyStatus  int     `json:"busyStatus"`  // status of these refusals; 429 by default
	RetryAfter  float64 `json:"retryAfter"`  // seconds, told in these refusals; 0: not told

	Slow       float64 `json:"slow"`       // factor of every wait; 1 by default
	Hang       bool    `json:"hang"`       // the first token never comes
	StallAfter int     `json:"stallAfter"` // nothing more comes after that many tokens; 0: never
	CutAfter   int     `json:"cutAfter"`   // the connection is reset after that many tokens; 0: never

	Freeze bool `json:"freeze"` // /metrics goes on saying what it said when this began
}

// well is an engine without faults.
func well() *faults {
	return &faults{ErrorStatus: http.StatusInternalServerError, BusyStatus: http.StatusTooManyRequests, Slow: 1}
}

func readFaults(r io.Reader) (*faults, error) {
	f := well()
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	switch {
	case f.ErrorRate < 0 || f.ErrorRate > 1:
		return nil, fmt.Errorf("faults: errorRate %v: want 0 to 1", f.ErrorRate)
	case f.ErrorStatus < 400 || f.ErrorStatus > 599:
		return nil, fmt.Errorf("faults: errorStatus %d: want 400 to 599", f.ErrorStatus)
	case f.BusyAbove != nil && *f.BusyAbove < 0:
		return nil, fmt.Errorf("faults: busyAbove %d: want 0 or more requests", *f.BusyAbove)
	case f.BusyStatus < 400 || f.BusyStatus > 599:
		return nil, fmt.Errorf("faults: busyStatus %d: want 400 to 599", f.BusyStatus)
	case f.RetryAfter < 0:
		return nil, fmt.Errorf("faults: retryAfter %v: want 0 or more seconds", f.RetryAfter)
	case f.Slow <= 0 || f.Slow > 1e6:
		return nil, fmt.Errorf("faults: slow %v: want a factor above 0", f.Slow)
	case f.StallAfter < 0:
		return nil, fmt.Errorf("faults: stallAfter %d: want 0 or more tokens", f.StallAfter)
	case f.CutAfter < 0:
		return nil, fmt.Errorf("faults: cutAfter %d: want 0 or more tokens", f.CutAfter)
	}
	return f, nil
}

func (e *engine) putFaults(w http.ResponseWriter, r *http.Request) {
	f, err := readFaults(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil {
		writeError(w, badRequest(err.Error()))
		return
	}
	e.sicken(f)
	w.WriteHeader(http.StatusNoContent)
}

// sicken replaces what is wrong. A page that is frozen already stays as it is.
func (e *engine) sicken(f *faults) {
	switch {
	case !f.Freeze:
		e.frozen.Store(nil)
	case e.frozen.Load() == nil:
		page := e.metrics()
		e.frozen.Store(&page)
	}
	e.faults.Store(f)
}

func (e *engine) serveFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, e.faults.Load())
}

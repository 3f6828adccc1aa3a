package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// faults are what is wrong with the engine. They are set while it runs, so that
// a test can make it sick and well again: PUT /faults with the whole set as JSON.
type faults struct {
	Unhealthy   bool    `json:"unhealthy"`   // /health answers 503
	ErrorRate   float64 `json:"errorRate"`   // fraction of requests that fail at once, 0 to 1
	ErrorStatus int     `json:"errorStatus"` // status of these failures; 500 by default
	Slow        float64 `json:"slow"`        // factor of every wait; 1 by default
	Hang        bool    `json:"hang"`        // the first token never comes
	CutAfter    int     `json:"cutAfter"`    // cut the connection after that many tokens; 0: never
}

func readFaults(r io.Reader) (*faults, error) {
	f := faults{ErrorStatus: http.StatusInternalServerError, Slow: 1}
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	switch {
	case f.ErrorRate < 0 || f.ErrorRate > 1:
		return nil, fmt.Errorf("faults: errorRate %v: want 0 to 1", f.ErrorRate)
	case f.ErrorStatus < 400 || f.ErrorStatus > 599:
		return nil, fmt.Errorf("faults: errorStatus %d: want 400 to 599", f.ErrorStatus)
	case f.Slow <= 0 || f.Slow > 1e6:
		return nil, fmt.Errorf("faults: slow %v: want a factor above 0", f.Slow)
	case f.CutAfter < 0:
		return nil, fmt.Errorf("faults: cutAfter %d: want 0 or more tokens", f.CutAfter)
	}
	return &f, nil
}

func (e *engine) putFaults(w http.ResponseWriter, r *http.Request) {
	f, err := readFaults(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil {
		writeError(w, badRequest(err.Error()))
		return
	}
	e.faults.Store(f)
	w.WriteHeader(http.StatusNoContent)
}

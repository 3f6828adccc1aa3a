package main

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// sick lets the faults of whole connections, and the time that the engine takes to
// load, come before everything else but /faults, by which they end.
func (e *engine) sick(well http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := e.faults.Load()
		switch {
		case r.URL.Path == "/faults":
			well.ServeHTTP(w, r)
		case f.Refuse:
			reset(w)
		case f.Mute:
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client leaves
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case r.Method == http.MethodGet && e.loading(time.Now()):
			writeError(w, stillLoading)
		default:
			well.ServeHTTP(w, r)
		}
	})
}

// reset cuts a connection off as a crash would: with a TCP reset, or over HTTP/2
// with one of the stream.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // where that fails the end is only more polite
	}
	conn.Close()
}

var stillLoading = &apiError{status: http.StatusServiceUnavailable, message: "the model is being loaded", code: "loading"}

// loading says whether the engine is not ready yet.
func (e *engine) loading(now time.Time) bool { return now.Before(e.ready) }

// turnAway decides whether a job that is well formed is refused even so. The
// caller holds the lock.
func (e *engine) turnAway(j *job) (*apiError, outcome) {
	f := j.faults
	fails := j.chance.Float64() < f.ErrorRate
	switch {
	case e.loading(j.arrived):
		return stillLoading, rejected
	case f.BusyAbove != nil && e.stats.inside >= *f.BusyAbove:
		return &apiError{f.BusyStatus, "the engine is busy", "busy"}, rejected
	case fails:
		return &apiError{f.ErrorStatus, "an injected fault", "injected"}, failed
	}
	return nil, ""
}

// refuse answers a job with its refusal.
func (j *job) refuse(w http.ResponseWriter) {
	if j.refusal.code == "busy" && j.faults.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatFloat(j.faults.RetryAfter, 'g', -1, 64))
	}
	writeJSON(w, j.refusal.status, j.dialect.refusal(j.refusal))
}

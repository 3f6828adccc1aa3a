package main

import (
	"math/rand/v2"
	"time"
)

// job is one request while the engine works on it. It belongs to the goroutine
// that serves the request.
type job struct {
	*request
	number      uint64 // of arrival, from 1
	prompt      int    // tokens
	output      int    // tokens to make
	arrived     time.Time
	utilisation float64 // that it met
	others      int     // requests in the engine when it arrived
	faults      *faults // as they were when it arrived
	random      *rand.Rand

	made       int // tokens
	firstToken time.Time
	lastToken  time.Time
	status     int // of the response
	outcome    outcome
}

// outcome says how a request ended.
type outcome string

const (
	done     outcome = "done"
	aborted  outcome = "aborted"  // the client went away, or the engine stopped
	rejected outcome = "rejected" // refused at the door
	failed   outcome = "failed"   // by an injected fault
)

func (j *job) end(o outcome, status int) { j.outcome, j.status = o, status }

// fails draws whether the job is to meet an injected error.
func (j *job) fails() bool { return j.random.Float64() < j.faults.ErrorRate }

// stretch is a wait with the jitter and the injected slowness in it.
func (j *job) stretch(wait time.Duration, jitter float64) time.Duration {
	factor := j.faults.Slow * (1 + jitter*(2*j.random.Float64()-1))
	return time.Duration(float64(wait) * factor)
}

var words = [...]string{
	" the", " river", " holds", " its", " level", " and", " lets", " rest", " pass", " over", " stone", " slowly",
}

// word makes up the text of one token.
func (j *job) word() string { return words[j.random.IntN(len(words))] }

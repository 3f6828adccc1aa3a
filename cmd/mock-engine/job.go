package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// job is one request while the engine works on it. It belongs to the goroutine
// that serves the request.
type job struct {
	*request
	engine      string // its name
	seed        uint64
	number      uint64    // of arrival, from 1
	context     *prefixes // the prompt, and at the end the answer
	prompt      int       // tokens
	cached      int       // tokens of the prompt that were in the KV cache
	output      int       // tokens to make
	finish      finish    // why the answer ends after them
	call        *call     // that the answer consists of; nil: it is a text
	arrived     time.Time
	refusal     *apiError  // that it is answered with; nil: it is worked on
	utilisation float64    // that it met
	others      int        // requests in the engine when it arrived
	faults      *faults    // as they were when it arrived
	chance      *rand.Rand // of faults and jitter: differs from request to request
	voice       *rand.Rand // of the answer: the same for the same body

	made       int    // tokens
	text       string // of these tokens
	events     int    // of a stream whose API numbers them
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

// finish says why an answer ended where it did.
type finish string

const (
	stopped  finish = "stop"
	cutShort finish = "length" // by the limit of tokens
)

// id is an identifier of something of this job.
func (j *job) id(prefix string) string {
	return fmt.Sprintf("%s%s-%d", prefix, strings.ReplaceAll(j.engine, "/", "-"), j.number) // it stands in paths
}

// decide fixes what will be answered. An answer goes on to the limit that the
// request sets, or to length where that is above 0, and never beyond most.
func (j *job) decide(length, most int) {
	if j.tool != nil {
		j.call = newCall(j.tool, j.word)
	}
	if j.limit != nil {
		most = min(most, *j.limit)
	}
	wanted := math.MaxInt
	switch {
	case j.embed != nil:
		wanted = 0
	case j.call != nil:
		wanted = len(j.call.pieces)
	case length > 0:
		wanted = length
	case j.limit == nil:
		wanted = defaultOutput
	}
	j.output, j.finish = wanted, stopped
	if wanted > most {
		j.output, j.finish = most, cutShort
	}
}

// make makes a token and returns its text.
func (j *job) make() string {
	var piece string
	if j.call != nil {
		piece = j.call.pieces[j.made]
	} else {
		piece = j.word()
	}
	j.made++
	j.text += piece
	return piece
}

// stretch is a wait with the jitter and the injected slowness in it: what slows an engine
// down slows all that it has in work, and for as long.
func (e *engine) stretch(j *job, wait time.Duration) time.Duration {
	factor := e.faults.Load().Slow * (1 + e.jitter*(2*j.chance.Float64()-1))
	return time.Duration(float64(wait) * factor)
}

var words = [...]string{
	" the", " river", " holds", " its", " level", " and", " lets", " rest", " pass", " over", " stone", " slowly",
}

// word makes up a word.
func (j *job) word() string { return words[j.voice.IntN(len(words))] }

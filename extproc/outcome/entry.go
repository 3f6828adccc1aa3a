package outcome

import (
	"time"

	"weir/fleet"
)

// moment is when an entry was written.
type moment int

const (
	elsewhere moment = iota // of no engine, or of a kind that tells nothing
	during                  // while an attempt lasts
	attemptOver
	requestOver
)

// key names a request while it lasts, by hashes of the client's address and of its
// request ID. That alone would not do: some clients send the same one for ever.
type key struct{ client, id uint64 }

// entry is what an entry of the access log says.
type entry struct {
	moment moment
	key    key
	began  time.Time // the attempt, or the request
	class  fleet.ClassID
	engine fleet.EngineID
	status uint32 // 0: no answer began
	stream bool   // the answer is a stream of events

	first, decode measure // to the first byte of the answer's body, and on to its last
	refused, lost bool    // no connection; it broke
	left, idle    bool    // the client left; the answer went silent

	prompt, output, cached measure // tokens, as the answer says
	asked, answered        uint64  // bytes of the bodies
	sofar                  uint64  // bytes of the answer's body, of an attempt that lasts

	response string // ID of the response that was made, in the log of answers; empty: this is the other log
	affinity uint64 // key of the request that it answers
}

// measure is seconds or tokens, that may be unknown, which is not zero.
type measure struct {
	value float64
	known bool
}

// outcome is what became of an attempt. It is not known of one that ended without
// an answer and without a fault: why, only the entry of its request says.
func (e *entry) outcome() (o fleet.Outcome, known bool) {
	switch {
	case e.refused:
		return fleet.Refused, true
	case e.status == 429 || e.status == 503:
		return fleet.Busy, true
	case e.status >= 500:
		return fleet.ServerError, true
	case e.status >= 400:
		return fleet.ClientError, true
	case e.lost && e.status == 0:
		return fleet.Reset, true
	case e.lost:
		return fleet.Truncated, true
	case e.status != 0 && e.decode.known:
		return fleet.Answered, true
	default:
		return 0, false
	}
}

// unfinished is why a request ended whose last attempt did not say.
func (e *entry) unfinished() (o fleet.Outcome, known bool) {
	switch {
	case e.refused || e.lost || e.decode.known || e.status >= 400:
		return 0, false
	case e.left:
		return fleet.Aborted, true
	case e.idle && e.first.known:
		return fleet.Truncated, true
	case e.idle:
		return fleet.Slow, true
	default:
		return 0, false
	}
}

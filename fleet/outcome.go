package fleet

// Outcome says what became of one attempt at an engine.
type Outcome int

// The outcomes of attempts. Each attempt has one.
const (
	Answered    Outcome = iota // whole, and no error
	ClientError                // 4xx but 429: the engine is not to blame
	Busy                       // 429 or 503: a sign of load
	ServerError                // any other 5xx
	Refused                    // no connection
	Reset                      // the connection was lost before any answer
	Truncated                  // the answer began, and was cut
	Slow                       // the limit passed without the first byte of an answer
	Aborted                    // the client left: the engine is not to blame
	outcomes
)

func (o Outcome) String() string {
	return [...]string{
		"answered", "client_error", "busy", "server_error", "refused", "reset", "truncated", "slow", "aborted",
	}[o]
}

// Outcomes counts attempts by [Outcome].
type Outcomes [outcomes]uint64

// EngineLoad is what became of the attempts at one engine, as its front-end saw it.
type EngineLoad struct {
	Engine   EngineID
	Outcomes Outcomes
	// TTFT is from the first byte sent to the first byte of a streamed answer's body,
	// of each attempt: so the network is in it, earlier attempts are not. Of a slow
	// attempt it is the time that was waited until then.
	TTFT Buckets
	// TBT is the mean time between the tokens of each streamed answer.
	TBT Buckets
	// Whole counts the answers in one piece, which have neither.
	Whole uint64
}

// TokenLoad sums the tokens of requests that were answered.
type TokenLoad struct {
	Requests  uint64 // that are in the sums
	Estimated uint64 // those of them whose tokens are estimated from bytes
	Prompt    float64
	Output    float64
	Cached    float64 // of the prompt, found in an engine's cache
}

// Mean is the size of a mean request; zero where nothing was measured.
func (t TokenLoad) Mean() Tokens {
	if t.Requests == 0 {
		return Tokens{}
	}
	n := float64(t.Requests)
	return Tokens{Prompt: t.Prompt / n, Output: t.Output / n}
}

// EngineOpen counts the open requests that were sent to an engine, by first choice.
type EngineOpen struct {
	Pool   PoolID
	Engine EngineID
	Open   uint64
}

// RoundTrip sums measured round trips from a front-end to a pool.
type RoundTrip struct {
	Pool    PoolID
	Count   uint64
	Seconds float64
}

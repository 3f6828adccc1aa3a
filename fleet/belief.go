package fleet

import "time"

// Reading is a value that somebody told, and when. The zero Reading is unknown:
// never a zero.
type Reading struct {
	Value float64
	At    time.Time // when it was read; zero: never
	Stale bool      // nothing newer could be had, or it cannot be true any more
	// StdErr is that of a mean; what was read once has none.
	StdErr StdErr
}

// Known says whether there is a value at all.
func (r Reading) Known() bool { return !r.At.IsZero() }

// Fresh says whether the value can be acted on.
func (r Reading) Fresh() bool { return r.Known() && !r.Stale }

// StdErr is how far chance takes a mean from what it estimates: one standard error,
// in the unit of the mean. The zero StdErr is unknown: never a zero.
type StdErr struct {
	Value float64
	Known bool
}

// EngineSignals are what an engine tells of itself on its metrics page.
type EngineSignals struct {
	Dialect     string
	Running     Reading // requests
	Waiting     Reading // requests in its queue
	Queued      Reading // likewise, on each of the last two pages: a burst passes
	KVUsage     Reading // 0–1
	TTFTSeconds Reading // mean over the last seconds
	TBTSeconds  Reading // likewise
	Why         string  // why nothing newer is known; empty: it is
}

// EngineSeen is how fast an engine is as front-ends see it, over the last seconds.
type EngineSeen struct {
	TTFTSeconds Reading // mean, the network taken off
	TBTSeconds  Reading // mean
}

// Signal is one by which engines of a pool are compared.
type Signal string

// The signals that are compared. Times are those that front-ends see, numbers of
// requests those that engines tell.
const (
	SignalTTFT    Signal = "ttft"
	SignalTBT     Signal = "tbt"
	SignalRunning Signal = "running"
	SignalWaiting Signal = "waiting"
)

// Deviation is how far an engine lies from its pool in one signal.
type Deviation struct {
	Signal Signal
	Value  float64
	Median float64 // of the pool's engines
	Z      float64 // (value − median) / what is usual in the pool; above 0: slower or busier
}

// outlierZ is where a robust z-score makes an outlier (Iglewicz and Hoaglin, How to
// Detect and Handle Outliers, 1993).
const outlierZ = 3.5

// Outlier says whether the engine is too slow or too busy for it to be chance. One
// that is too fast is none.
func (d Deviation) Outlier() bool { return d.Z >= outlierZ }

// PoolSignals are what is believed of a pool beside the readiness of its engines.
type PoolSignals struct {
	Engines map[EngineID]EngineSignals // a missing engine's metrics were not asked for
	Seen    map[EngineID]EngineSeen    // a missing engine has not been seen lately
	// Deviations are by signal, in the order above. What is missing cannot be told.
	Deviations map[EngineID][]Deviation
	// Open is how many requests front-ends have open at an engine; nil: nobody tells,
	// an engine without an entry has none.
	Open map[EngineID]float64
	// Load is the work that each ready replica is sent, as far as the pool's health
	// leaves it, in engine-seconds per second by the profile: 1 is what the profile
	// promises.
	Load Reading
	// SentRps is what front-ends send to all of its engines together, retries and clients
	// that come back included.
	SentRps     Reading
	TTFTSeconds Reading // mean, as front-ends see it, the network taken off
	TBTSeconds  Reading // mean, as front-ends see it
	// Failed is the part of the attempts there, 0–1, that engines refuse, fail or lose.
	Failed       Reading
	FactorReason string // why the capacity factor is not 1; empty: it is
	// Penalties are those of front-ends whose requests tell, by engine, front-end and
	// node.
	Penalties []PenaltySeen
}

// PenaltySeen is a penalty, and who has it.
type PenaltySeen struct {
	Penalty
	FrontEnd FrontEndID
	Node     string
}

// TokenBelief is the size of a class's mean request, and on how many it rests.
type TokenBelief struct {
	Mean      Tokens  // what engines that do not tell had cached is not in it
	Requests  float64 // measured, decayed
	Estimated float64 // those of them that were estimated from bytes
	At        time.Time
	// What chance does to the mean, tokens.
	PromptStdErr, OutputStdErr StdErr
}

// TokensOf is the size of a mean request of a class: measured, else as declared.
func (s *State) TokensOf(c *Class) Tokens {
	if b, ok := s.Tokens[c.ID]; ok {
		return b.Mean
	}
	return c.Tokens
}

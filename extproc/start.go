package extproc

import "time"

const (
	// slowStart is how long an engine takes to come to its full part of the traffic
	// when it joins: its caches are cold, and every conversation that it gets has to be
	// prefilled there.
	slowStart = 30 * time.Second
	// leastStart is the part that it begins with.
	leastStart = 0.1
)

// weight is how much of a share an engine is worth: less for a while when it has
// joined, less while it is penalised. What of that the plan has priced as health is the
// pool's affair: see [pool.factor].
func (e *liveEngine) weight(now time.Time) float64 {
	weight := 1.0
	if e.starting(now) {
		weight = max(leastStart, now.Sub(e.since).Truncate(time.Second).Seconds()/slowStart.Seconds())
	}
	return weight * e.penalty
}

// starting says whether the engine has joined a moment ago.
func (e *liveEngine) starting(now time.Time) bool {
	return !e.since.IsZero() && now.Sub(e.since) < slowStart
}

// aged takes the control plane's word on how long the engine has been ready. It reads
// the engines' health itself, and has been there when this process has not.
func (e *liveEngine) aged(age time.Duration, now time.Time) {
	const imprecision = 3 * time.Second // of a word in whole seconds that was under way
	if since := now.Add(-age); since.Sub(e.since).Abs() > imprecision {
		e.since = since
	}
}

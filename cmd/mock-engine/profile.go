package main

import (
	"flag"
	"time"
)

// profile is how fast the engine is: latencies that rise in a straight line from
// an idle engine to utilisation 1, and on beyond it.
type profile struct {
	capacity float64 // reference requests per second at utilisation 1
	ttft     line
	tbt      line
	// The reference request. With no tokens at all every request is one.
	promptTokens, outputTokens int
	outputCost                 float64 // work of one output token in prompt tokens
}

// line is a latency against utilisation.
type line struct{ idle, full time.Duration }

func (p *profile) flags(f *flag.FlagSet) {
	f.Float64Var(&p.capacity, "capacity", 50, "reference requests per second at utilisation 1")
	f.DurationVar(&p.ttft.idle, "ttft", 200*time.Millisecond, "time to first token of an idle engine")
	f.DurationVar(&p.ttft.full, "ttft-full", 0, "time to first token at utilisation 1 (default: as idle)")
	f.DurationVar(&p.tbt.idle, "tbt", 10*time.Millisecond, "time between tokens of an idle engine")
	f.DurationVar(&p.tbt.full, "tbt-full", 0, "time between tokens at utilisation 1 (default: as idle)")
	f.IntVar(&p.promptTokens, "reference-prompt", 0, "prompt `tokens` of the reference request: time and work of a request follow\n"+
		"those of its own that are not in the KV cache (0: every request costs the same)")
	f.IntVar(&p.outputTokens, "reference-output", 0, "output tokens of the reference request")
	f.Float64Var(&p.outputCost, "output-cost", 0, "work of one output token in prompt tokens")
}

func (p *profile) validate(check func(ok bool, flag, want string)) {
	check(p.capacity > 0, "capacity", "a rate above 0")
	check(p.ttft.idle >= 0 && p.ttft.full >= 0, "ttft", "no negative time")
	check(p.tbt.idle >= 0 && p.tbt.full >= 0, "tbt", "no negative time")
	check(p.promptTokens >= 0 && p.outputTokens >= 0, "reference-prompt", "no negative count of tokens")
	check(p.outputCost >= 0, "output-cost", "no negative cost")
}

// at is the latency at a utilisation; a line without a second end is level.
func (l line) at(utilisation float64) time.Duration {
	if l.full == 0 {
		return l.idle
	}
	return max(0, l.idle+time.Duration(utilisation*float64(l.full-l.idle)))
}

// work is what a request costs, in reference requests.
// Its prompt is what of it is not in the KV cache.
func (p *profile) work(prompt, output int) float64 {
	cost := func(prompt, output int) float64 {
		return float64(prompt) + p.outputCost*float64(output)
	}
	reference := cost(p.promptTokens, p.outputTokens)
	if reference <= 0 {
		return 1
	}
	return cost(prompt, output) / reference
}

// leastPrefill is what the shortest prefill takes, against the reference's.
const leastPrefill = 0.1

// firstToken splits the wait for the first token at a utilisation: an engine
// that is not over its capacity has no queue, and all that it waits longer than
// at utilisation 1 is spent in one. The prefill takes as long as the prompt, or
// what of it is not in the KV cache, is longer than the reference's.
func (p *profile) firstToken(utilisation float64, prompt int) (queue, prefill time.Duration) {
	prefill = p.ttft.at(min(utilisation, 1))
	queue = max(0, p.ttft.at(utilisation)-prefill)
	if p.promptTokens > 0 {
		prefill = time.Duration(float64(prefill) * max(leastPrefill, float64(prompt)/float64(p.promptTokens)))
	}
	return queue, prefill
}

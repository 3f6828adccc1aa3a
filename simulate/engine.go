package simulate

import (
	"errors"

	"weir/fleet"
)

// Engine says how one replica behaves. Its fields but for the curves are flags of
// cmd/mock-engine, and mean the same: a test holds the two together.
type Engine struct {
	CapacityRps     float64      // reference requests per second at utilisation 1
	TTFT, TBT       Line         // of the reference request
	Reference       fleet.Tokens // without a prompt every request is one
	OutputTokenCost float64      // work of one output token in prompt tokens
	Window          float64      // seconds over which utilisation is measured
	Slots           int          // requests that run at once; more wait
	KVTokens        int          // size of the KV cache
	Block           int          // tokens of one block of it
	Jitter          float64      // every wait is multiplied by 1 ± Jitter

	// Curves of the reference request, in place of the lines where they have points.
	TTFTCurve, TBTCurve fleet.Curve
}

func (e *Engine) check() error {
	var errs []error
	want := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	want(e.CapacityRps > 0, "want a capacity above 0")
	want(e.TTFT.Idle >= 0 && e.TTFT.Full >= 0, "TTFT: want no negative time")
	want(e.TBT.Idle >= 0 && (e.TBT.Full == 0 || e.TBT.Full >= e.TBT.Idle), "TBT: want no negative time, and none that falls under load")
	want(e.Reference.Prompt >= 0 && e.Reference.Output >= 0 && e.OutputTokenCost >= 0, "want no negative tokens or costs")
	want(e.Window > 0 && e.Slots > 0 && e.KVTokens > 0 && e.Block > 0, "want a window, slots and a KV cache above 0")
	want(e.Jitter >= 0 && e.Jitter <= 1, "jitter: want 0 to 1")
	return errors.Join(errs...)
}

// Work is what a request costs, in reference requests. Its prompt is what of it is not
// in the KV cache.
func (e *Engine) Work(prompt, output float64) float64 {
	reference := e.Reference.Prompt + e.OutputTokenCost*e.Reference.Output
	if reference <= 0 {
		return 1
	}
	return (prompt + e.OutputTokenCost*output) / reference
}

// leastPrefill is what the shortest prefill takes, against the reference's.
const leastPrefill = 0.1

// firstToken splits the wait for the first token at a utilisation. An engine that is
// not over its capacity has no queue, and all that it waits longer than at utilisation
// 1 is spent in one. The prefill is in proportion to the prompt that is not cached.
func (e *Engine) firstToken(utilisation, prompt float64) (queue, prefill float64) {
	prefill = e.ttft(min(utilisation, 1))
	queue = max(0, e.ttft(utilisation)-prefill)
	if e.Reference.Prompt > 0 {
		prefill *= max(leastPrefill, prompt/e.Reference.Prompt)
	}
	return queue, prefill
}

func (e *Engine) ttft(utilisation float64) float64 {
	if len(e.TTFTCurve) > 0 {
		return e.TTFTCurve.At(utilisation)
	}
	return e.TTFT.At(utilisation)
}

// pace is how fast a batch decodes from a utilisation on. While that falls, a curve is
// taken as straight from there to the idle engine.
func (e *Engine) pace(utilisation float64) pace {
	if len(e.TBTCurve) == 0 {
		return paceOf(e.TBT, utilisation, e.Window)
	}
	idle := e.TBTCurve.At(0)
	return pace{max(idle, leastGap), max(0, e.TBTCurve.At(utilisation)-idle), e.Window}
}

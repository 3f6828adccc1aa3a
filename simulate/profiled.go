package simulate

import (
	"fmt"
	"math"

	"weir/fleet"
)

// What a profile does not tell of an engine.
const (
	profiledWindow = 5.0 // seconds over which its utilisation is measured
	profiledJitter = 0.1
)

// EngineOf is an engine that does what a profile says of it. A profile knows nothing
// of its KV cache, nor of how many requests it runs at once: that is for [SlotsFor].
// Where it does not say what was cached, its reference was computed whole.
// Without a curve of TBT it decodes in no time.
func EngineOf(p *fleet.Profile, kvTokens, block int) Engine {
	return Engine{
		CapacityRps: p.CapacityRps, Reference: fleet.Tokens{Prompt: p.Prefill(p.Reference), Output: p.Reference.Output}, OutputTokenCost: p.OutputTokenCost,
		TTFTCurve: p.TTFT, TBTCurve: p.TBT, Window: profiledWindow, Jitter: profiledJitter,
		KVTokens: kvTokens, Block: max(1, block),
	}
}

// spareSlots is how much more than it needs at utilisation 1 a batch has room for.
const spareSlots = 1.15

// SlotsFor is how many requests an engine has room for at once, so that its capacity
// is what bounds it under a workload: a little more than it holds at utilisation 1. Of
// makes the workload at a rate, as for [Fit].
func SlotsFor(e Engine, of func(rps float64) (Workload, error), seed uint64) (int, error) {
	e.Slots = math.MaxInt32
	rps, held := e.CapacityRps/4, 0.0
	for range 3 { // what is cached depends on the rate
		r, err := tryOut(e, of, rps, seed)
		if err != nil {
			return 0, err
		}
		if !(r.WorkPerRequest > 0) || !(r.EndToEnd.Mean >= 0) {
			return 0, fmt.Errorf("nothing can be measured at %.3g RPS: the workload is too sparse", rps)
		}
		rps, held = e.CapacityRps/r.WorkPerRequest, rps*r.EndToEnd.Mean
	}
	return int(math.Ceil(max(1, spareSlots*held))), nil
}

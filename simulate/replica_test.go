package simulate

import (
	"math"
	"testing"

	"weir/fleet"
)

// cached is an engine whose prefill takes a second for 160 tokens.
var cached = Engine{
	CapacityRps: 1000, TTFT: Line{Idle: 1}, TBT: Line{Idle: 0.1}, Reference: fleet.Tokens{Prompt: 160, Output: 1},
	Window: 5, Slots: 4, KVTokens: 1600, Block: 16,
}

func blocks(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = mix(uint64(i))
	}
	return out
}

func TestWhatIsCachedIsNotComputed(t *testing.T) {
	tests := []struct {
		name   string
		prompt int
		blocks int
		cached int
		ttft   float64 // seconds
	}{
		{"whole blocks: the last is computed, to go on from", 160, 10, 144, 0.1}, // no prefill is shorter than a tenth
		{"more than was there before", 320, 20, 160, 1},
		{"less than it, and a part of a block", 88, 5, 80, 0.1},
		{"less than a block", 15, 0, 0, 0.1},
		{"of which nobody knows the blocks", 160, 0, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			done, _ := alone(cached, []Request{
				{At: 0, Prompt: 160, Output: 1, Context: blocks(10)},
				{At: 10, Prompt: tt.prompt, Output: 1, Context: blocks(tt.blocks)},
			})
			if got := done[1].cached; got != tt.cached {
				t.Errorf("%d tokens are cached, want %d", got, tt.cached)
			}
			if got := done[1].first - 10; math.Abs(got-tt.ttft) > 1e-9 {
				t.Errorf("the first token takes %v s, want %v", got, tt.ttft)
			}
		})
	}
}

// An answer is in the cache for the next turn; the prompt is as soon as it was
// computed.
func TestWhenTheCacheKnows(t *testing.T) {
	done, _ := alone(cached, []Request{
		{At: 0, Prompt: 160, Output: 161, Context: blocks(20)}, // prefilled at 1 s, done at 17 s
		{At: 0.9, Prompt: 240, Output: 1, Context: blocks(15)},
		{At: 1.1, Prompt: 161, Output: 1, Context: blocks(10)},
		{At: 18, Prompt: 321, Output: 1, Context: blocks(20)},
	})
	for i, want := range []int{0, 0, 160, 320} {
		if got := done[i].cached; got != want {
			t.Errorf("request %d finds %d tokens, want %d", i, got, want)
		}
	}
	if got := done[0].seen; math.Abs(got-17) > 1e-9 {
		t.Errorf("the first is done at %v s, want 17", got)
	}
}

// What the page tells is what is inside at the moment.
func TestPageTellsWhatIsInside(t *testing.T) {
	jobs := newJobs()
	e := cached
	e.Slots = 1
	r := newReplica(&e, "lab", jobs)
	for range 3 {
		r.arrive(0, jobs.add(Request{Prompt: 160, Output: 11}, 0))
	}
	for r.next() <= 1.25 { // two tokens after the first
		r.step(r.next())
	}
	r.advance(1.25)
	if r.told.running != 1 || r.told.queued != 2 {
		t.Errorf("%d run, %d wait, want 1 and 2", r.told.running, r.told.queued)
	}
	if got := r.heldTokens(); math.Abs(got-163.5) > 1e-6 {
		t.Errorf("%v tokens are held, want a prompt of 160 and 3.5", got)
	}
	if got := r.outputTokens(); math.Abs(got-3.5) > 1e-6 {
		t.Errorf("%v tokens were made, want 3.5", got)
	}
	if got := r.told.tokenTime / r.told.tokenCount; math.Abs(got-0.1) > 1e-9 {
		t.Errorf("tokens are %v s apart, want 0.1", got)
	}
	for !math.IsInf(r.next(), 1) {
		r.step(r.next())
	}
	if got := r.heldTokens(); math.Abs(got) > 1e-6 || r.told.running != 0 || r.told.queued != 0 {
		t.Errorf("at the end %v tokens are held, %d run, %d wait", got, r.told.running, r.told.queued)
	}
}

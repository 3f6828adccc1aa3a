package extproc

import "sync/atomic"

const (
	// Keys that are remembered at once, at most: sets × ways.
	recentSets = 1 << 16
	recentWays = 4

	tagBits  = 32
	timeMask = 1<<(64-tagBits) - 1
)

// recent remembers keys until a time, in a table of fixed size whose sets forget first
// what ends first. Each place is one word, a part of the key and the time, so that no
// request waits for another: what two write at once, one of them has written in vain.
// One key in about a billion is taken for another.
type recent struct {
	forgotten atomic.Uint64 // for want of room, before their time
	sets      [recentSets][recentWays]atomic.Uint64
}

// word joins a key's tag and a time in Unix seconds; 0 is no word.
func word(key uint64, until int64) uint64 {
	return key>>tagBits<<(64-tagBits) | uint64(until)&timeMask
}

func (r *recent) set(key uint64) *[recentWays]atomic.Uint64 { return &r.sets[key%recentSets] }

// has says whether a key is remembered.
func (r *recent) has(key uint64, now int64) bool { return r.left(key, now) > 0 }

// left is for how many seconds more a key is remembered; 0: it is not.
func (r *recent) left(key uint64, now int64) int64 {
	if r == nil {
		return 0
	}
	key = mix(key)
	set := r.set(key)
	for i := range set {
		if w := set[i].Load(); w>>(64-tagBits) == key>>tagBits {
			return max(0, int64(w&timeMask)-now)
		}
	}
	return 0
}

// keep remembers a key until a time, in place of the one that ends first if need be.
func (r *recent) keep(key uint64, until, now int64) {
	if r == nil {
		return
	}
	key = mix(key)
	set := r.set(key)
	first, ends := 0, uint64(timeMask+1)
	for i := range set {
		w := set[i].Load()
		if w>>(64-tagBits) == key>>tagBits {
			first, ends = i, 0
			break
		}
		if w&timeMask < ends {
			first, ends = i, w&timeMask
		}
	}
	if int64(ends) > now {
		r.forgotten.Add(1)
	}
	set[first].Store(word(key, until))
}

// drop forgets a key.
func (r *recent) drop(key uint64) {
	if r == nil {
		return
	}
	key = mix(key)
	set := r.set(key)
	for i := range set {
		if w := set[i].Load(); w != 0 && w>>(64-tagBits) == key>>tagBits {
			set[i].CompareAndSwap(w, 0)
		}
	}
}

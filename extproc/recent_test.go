package extproc

import (
	"math/rand/v2"
	"sync"
	"testing"
)

func TestRecent(t *testing.T) {
	r := &recent{}
	const now = 1_800_000_000
	if r.has(7, now) {
		t.Error("an empty table has a key")
	}
	r.keep(7, now+10, now)
	if !r.has(7, now) || r.has(8, now) || r.has(7, now+10) {
		t.Error("a key is to be remembered until its time, and no other")
	}
	r.keep(7, now+20, now)
	if !r.has(7, now+10) {
		t.Error("a key that came again is to be remembered for longer")
	}
	r.drop(7)
	if r.has(7, now) {
		t.Error("a key that was dropped is remembered")
	}
	var none *recent
	none.keep(7, now, now)
	none.drop(7)
	if none.has(7, now) {
		t.Error("no table has a key")
	}
}

// A table that is full forgets what ends first, counts that, and takes no key for another.
func TestRecentIsFull(t *testing.T) {
	r, random := &recent{}, rand.New(rand.NewPCG(3, 4))
	const now, n = 1_800_000_000, recentSets * recentWays
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = random.Uint64()
		r.keep(keys[i], now+100+int64(i*600/n), now)
	}
	kept := func(keys []uint64) float64 {
		sum := 0.0
		for _, k := range keys {
			if r.has(k, now) {
				sum++
			}
		}
		return sum / float64(len(keys))
	}
	if late, early := kept(keys[n/2:]), kept(keys[:n/2]); late < 0.95 || early > late {
		t.Errorf("%.3f of those that end late are kept and %.3f of those that end early", late, early)
	}
	held := 0
	for i := range r.sets {
		for j := range r.sets[i] {
			if r.sets[i][j].Load() != 0 {
				held++
			}
		}
	}
	lost := r.forgotten.Load()
	if held+int(lost) != n || lost == 0 {
		t.Errorf("%d held and %d forgotten, of %d", held, lost, n)
	}
	// Those that came again, or to a place whose key has ended, make nobody forgotten.
	for range 2 {
		for _, k := range keys[:recentSets] {
			r.keep(k, now+1000, now+800)
		}
	}
	if got := r.forgotten.Load(); got-lost > recentSets/20 {
		t.Errorf("%d count as forgotten that have ended", got-lost)
	}
	for range 100_000 {
		if k := random.Uint64(); r.has(k, now) {
			t.Fatalf("key %x was never kept", k)
		}
	}
}

func TestRecentInParallel(t *testing.T) {
	r := &recent{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for k := range uint64(1000) {
				r.keep(k, 100, 50)
				r.has(k, 50)
				r.drop(k)
			}
		})
	}
	all.Wait()
}

func BenchmarkRecent(b *testing.B) {
	r, key := &recent{}, uint64(0)
	for b.Loop() {
		key++
		if !r.has(key, 50) {
			r.keep(key, 100, 50)
		}
	}
}

package extproc

import (
	"math/rand/v2"
	"sync"
	"testing"
)

const idleFor = 600 // seconds, of the tests

func TestMemory(t *testing.T) {
	t.Parallel()
	m := &memory[uint64]{idle: idleFor}
	m.keep(1, 10, 0)
	m.keep(2, 20, 0)
	m.keep(1, 11, 5)
	for key, want := range map[uint64]uint64{0: 0, 1: 11, 2: 20, 3: 0} {
		if got := m.find(key, 10); got != want {
			t.Errorf("key %d: %d, want %d", key, got, want)
		}
	}
	m.find(1, idleFor)
	if got := m.find(1, 2*idleFor); got != 11 {
		t.Errorf("one that has turns: %d, want 11", got)
	}
	if got := m.find(2, 2*idleFor); got != 0 {
		t.Errorf("one that has had none: %d", got)
	}
	m.drop(1)
	m.drop(7)
	if got := m.find(1, 10); got != 0 || m.kept.Load() != 1 || m.lost() != 0 {
		t.Errorf("dropped: %d; %d kept, %d forgotten", got, m.kept.Load(), m.lost())
	}
	var none *memory[uint64]
	none.keep(1, 1, 1)
	none.drop(1)
	if none.find(1, 1) != 0 || none.lost() != 0 {
		t.Error("no table remembers")
	}
}

// Full sets forget the longest unused, and count it; idle ones are no loss.
func TestMemoryBound(t *testing.T) {
	t.Parallel()
	m, r := &memory[uint64]{idle: idleFor}, rand.New(rand.NewPCG(1, 1))
	const most = memorySets * memoryWays
	for range 2 * most {
		m.keep(r.Uint64(), 1, 1)
	}
	m.keep(42, 1, 2)
	kept, forgotten := m.kept.Load(), int64(m.lost())
	if kept > most || kept < most*9/10 || kept+forgotten != 2*most+1 {
		t.Errorf("%d kept of at most %d, %d forgotten", kept, most, forgotten)
	}
	for range most / 100 { // few for each set, whose oldest go first
		m.keep(r.Uint64(), 1, 1)
	}
	if m.find(42, 2) == 0 {
		t.Error("one that was used last is forgotten first")
	}
	for now := range int64(memoryLocks) {
		m.sweep(2 + 2*idleFor + now)
	}
	if got := m.kept.Load(); got != 0 {
		t.Errorf("%d idle ones are kept", got)
	}
	before := m.lost()
	for i := range int64(2) {
		for range most / 2 {
			m.keep(r.Uint64(), 1, 2*idleFor*i)
		}
	}
	// Of what comes at one moment a few sets get more than they hold.
	if got := m.lost() - before; got > most/20 {
		t.Errorf("%d idle ones count as forgotten", got)
	}
}

func TestMemoryByManyAtOnce(t *testing.T) {
	t.Parallel()
	m := &memory[uint64]{idle: idleFor}
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(2000) {
				m.keep(i, 1+i, int64(i))
				if got := m.find(i, int64(i)); got != 0 && got != 1+i {
					t.Errorf("key %d has the engine %d", i, got)
				}
				if i%4 == g {
					m.drop(i)
				}
				m.sweep(int64(i))
			}
		})
	}
	wg.Wait()
	held := int64(0)
	for i := range m.sets {
		for _, r := range m.sets[i] {
			if r.ends != 0 {
				held++
			}
		}
	}
	if got := m.kept.Load(); got != held {
		t.Errorf("%d counted, %d held", got, held)
	}
}

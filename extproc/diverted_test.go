package extproc

import (
	"math/rand/v2"
	"sync"
	"testing"
)

func TestDiverted(t *testing.T) {
	t.Parallel()
	d := new(diverted)
	d.keep(1, 10, 0)
	d.keep(2, 20, 0)
	d.keep(1, 11, 5)
	for key, want := range map[uint64]uint64{1: 11, 2: 20, 3: 0} {
		if got := d.find(key, 10); got != want {
			t.Errorf("key %d: %d, want %d", key, got, want)
		}
	}
	d.find(1, divertedIdle)
	if got := d.find(1, 2*divertedIdle); got != 11 {
		t.Errorf("one that has turns: %d, want 11", got)
	}
	if got := d.find(2, 2*divertedIdle); got != 0 {
		t.Errorf("one that has had none: %d", got)
	}
	d.drop(1)
	d.drop(7)
	if got := d.find(1, 10); got != 0 || d.kept.Load() != 0 || d.forgotten.Load() != 0 {
		t.Errorf("dropped: %d; %d kept, %d forgotten", got, d.kept.Load(), d.forgotten.Load())
	}
	var none *diverted
	none.keep(1, 1, 1)
	none.drop(1)
	if none.find(1, 1) != 0 {
		t.Error("no table remembers")
	}
}

// Full sets forget the longest unused, and count it; idle ones are no loss.
func TestDivertedBound(t *testing.T) {
	t.Parallel()
	d := new(diverted)
	r := rand.New(rand.NewPCG(1, 1))
	const most = divertedSets * divertedWays
	for range 2 * most {
		d.keep(r.Uint64(), 1, 1)
	}
	d.keep(42, 1, 2)
	kept, forgotten := d.kept.Load(), int64(d.forgotten.Load())
	if kept > most || kept < most*9/10 || kept+forgotten != 2*most+1 {
		t.Errorf("%d kept of at most %d, %d forgotten", kept, most, forgotten)
	}
	for range most / 100 { // few for each set, whose oldest go first
		d.keep(r.Uint64(), 1, 1)
	}
	if d.find(42, 2) == 0 {
		t.Error("one that was used last is forgotten first")
	}
	for now := range int64(divertedLocks) {
		d.sweep(2 + 2*divertedIdle + now)
	}
	if got := d.kept.Load(); got != 0 {
		t.Errorf("%d idle ones are kept", got)
	}
	before := d.forgotten.Load()
	for range most {
		d.keep(r.Uint64(), 1, 0)
		d.keep(r.Uint64(), 1, 2*divertedIdle)
	}
	if got := d.forgotten.Load(); got-before >= 2*most {
		t.Errorf("%d idle ones count as forgotten", got-before)
	}
}

func TestDivertedByManyAtOnce(t *testing.T) {
	t.Parallel()
	d := new(diverted)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(2000) {
				d.keep(i, 1+i, int64(i))
				if got := d.find(i, int64(i)); got != 0 && got != 1+i {
					t.Errorf("key %d has the engine %d", i, got)
				}
				if i%4 == g {
					d.drop(i)
				}
				d.sweep(int64(i))
			}
		})
	}
	wg.Wait()
	held := int64(0)
	for i := range d.sets {
		for _, e := range d.sets[i] {
			if e.engine != 0 {
				held++
			}
		}
	}
	if got := d.kept.Load(); got != held {
		t.Errorf("%d counted, %d held", got, held)
	}
}

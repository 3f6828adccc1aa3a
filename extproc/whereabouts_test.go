package extproc

import (
	"math/rand/v2"
	"sync"
	"testing"
)

func TestWhereabouts(t *testing.T) {
	t.Parallel()
	w := new(whereabouts)
	first := lastTurn{key: 1, engine: 10, seen: 5, settled: 5, turns: 1}
	second := lastTurn{key: 1, engine: 10, seen: 9, settled: 5, turns: 2}
	other := lastTurn{key: 2, engine: 20, seen: 9, settled: 9, turns: 7}
	for _, turn := range []lastTurn{first, other, second} {
		w.note(turn)
	}
	for _, c := range []struct {
		key  uint64
		now  int64
		want lastTurn
	}{
		{1, 9, second},
		{1, 9 + activeFor, second},
		{1, 10 + activeFor, lastTurn{}},
		{2, 9, other},
		{3, 9, lastTurn{}},
	} {
		if got := w.find(c.key, c.now); got != c.want {
			t.Errorf("key %d at %d: %+v, want %+v", c.key, c.now, got, c.want)
		}
	}
	w.drop(2)
	w.drop(3)
	if w.find(2, 9) != (lastTurn{}) || w.find(1, 9) != second || w.lost() != 0 {
		t.Error("not just the one is dropped")
	}
	var none *whereabouts
	if none.lost() != 0 {
		t.Error("nothing forgets something")
	}
}

// Full sets forget the longest unused, and count those that were active.
func TestWhereaboutsBound(t *testing.T) {
	t.Parallel()
	w := new(whereabouts)
	luck := rand.New(rand.NewPCG(1, 1))
	const most = placesSets * placesWays
	for range 2 * most {
		w.note(lastTurn{key: luck.Uint64(), engine: 1, seen: 1})
	}
	held := 0
	for i := range w.sets {
		for _, t := range w.sets[i] {
			if t.engine != 0 {
				held++
			}
		}
	}
	if lost := int(w.lost()); held < most*9/10 || held+lost != 2*most {
		t.Errorf("%d held, %d lost of %d", held, lost, 2*most)
	}
	w.note(lastTurn{key: 42, engine: 1, seen: 2})
	before := w.lost()
	for range most / 100 {
		w.note(lastTurn{key: luck.Uint64(), engine: 1, seen: 1})
	}
	if w.find(42, 2).engine == 0 || w.lost() == before {
		t.Error("one that was seen last is forgotten first")
	}
	w, luck = new(whereabouts), rand.New(rand.NewPCG(1, 1))
	for i := range int64(2) {
		for range most / 2 {
			w.note(lastTurn{key: luck.Uint64(), engine: 1, seen: 1000 * i})
		}
	}
	// Of what comes at one moment a few sets get more than they hold; idle ones are no loss.
	if got := w.lost(); got > most/20 {
		t.Errorf("%d idle ones count as lost", got)
	}
}

func TestWhereaboutsByManyAtOnce(t *testing.T) {
	t.Parallel()
	w := new(whereabouts)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range uint64(4000) {
				key := i % 50
				if got := w.find(key, 1); got.engine != 0 && (got.key != key || got.engine != 1+key) {
					t.Errorf("key %d: %+v", key, got)
				}
				w.note(lastTurn{key: key, engine: 1 + key, seen: 1})
				if i%7 == 0 {
					w.drop(key)
				}
			}
		})
	}
	wg.Wait()
}

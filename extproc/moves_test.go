package extproc

import (
	"fmt"
	"math"
	"testing"

	"go.uber.org/zap"

	"weir/fleet"
)

// What a change of plan moves is measured on conversations of late, and is near the
// least that its weights ask for.
func TestMoves(t *testing.T) {
	t.Parallel()
	pools := func(a, b, c uint32, engines int) []fleet.ViewPool {
		return []fleet.ViewPool{viewPool("a", a, engines), viewPool("b", b, 5), viewPool("c", c, 5)}
	}
	for name, c := range map[string]struct {
		to    []fleet.ViewPool
		least float64 // part of all that must move
	}{
		"nothing":                {pools(5_000_000, 3_000_000, 2_000_000, 5), 0},
		"weights times two":      {pools(10_000_000, 6_000_000, 4_000_000, 5), 0},
		"a weight that is moved": {pools(4_000_000, 4_000_000, 2_000_000, 5), 0.1},
		"an engine gone":         {pools(5_000_000, 3_000_000, 2_000_000, 4), 0.1},
		"a pool gone":            {pools(5_000_000, 3_000_000, 0, 5), 0.2},
		"an engine more":         {pools(5_000_000, 3_000_000, 2_000_000, 6), 0.5 * leastStart / (5 + leastStart)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, pools(5_000_000, 3_000_000, 2_000_000, 5)...)
			for i := range 3 * seenConversations {
				s.ask(fmt.Sprint("s-", i))
			}
			s.pools = c.to
			s.inForce()
			compared, moved, least := s.moves.counts()
			if compared < seenConversations*9/10 || compared > seenConversations {
				t.Fatalf("%d compared", compared)
			}
			if want := c.least * float64(compared); math.Abs(least-want) > 1e-6*float64(compared) {
				t.Errorf("the least is %.1f, want %.1f", least, want)
			}
			if c.least == 0 && moved != 0 || c.least > 0 && math.Abs(zScore(int(moved), int(compared), c.least)) > 4 {
				t.Errorf("%d of %d moved, the least is %.0f", moved, compared, least)
			}
		})
	}
}

// Conversations that nothing names are not compared: none of them has another turn.
func TestMovesOfNamedConversationsAlone(t *testing.T) {
	t.Parallel()
	s := New(zap.NewNop())
	v := twoPools()
	v.Classes[0].Affinity = nil
	for range 2 {
		s.Swap(NewTable(v))
		x := exchange{table: s.table.Load(), head: *headOf(post("/"))}
		s.settle(&x, facts{model: "small"}, nil)
	}
	if compared, _, _ := s.moves.counts(); compared != 0 {
		t.Errorf("%d compared", compared)
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to map[uint64]float64
		want     float64
	}{
		{map[uint64]float64{1: 1}, map[uint64]float64{1: 1}, 0},
		{map[uint64]float64{1: 1}, map[uint64]float64{2: 1}, 1},
		{map[uint64]float64{1: 0.5, 2: 0.5}, map[uint64]float64{1: 0.25, 2: 0.5, 3: 0.25}, 0.25},
	} {
		if got := distance(c.from, c.to); got != c.want {
			t.Errorf("%v to %v: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

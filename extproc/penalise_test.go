package extproc

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"weir/fleet"
)

// A pool whose engines are penalised weighs less, by the mean of their penalties, until
// the plan has priced that.
func TestFactor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		penalties []float64
		health    fleet.Amount
		want      float64
	}{
		{[]float64{1, 1}, fleet.Amount{}, 1},
		{[]float64{1, 1}, fleet.Known(0.5), 1},
		{[]float64{0.5, 1}, fleet.Amount{}, 0.75},
		{[]float64{0.5, 1}, fleet.Known(1), 0.75},
		{[]float64{0.5, 1}, fleet.Known(0.75), 1},
		{[]float64{0.5, 1}, fleet.Known(0.5), 1},
		{[]float64{0.2, 0.4}, fleet.Known(0.6), 0.5},
		{[]float64{0.5, 1}, fleet.Known(0), 0.75}, // nothing is priced at nothing
	} {
		v := viewPool("a", 1, len(c.penalties))
		p := newPool(&v)
		for i := range p.engines {
			p.engines[i].live.penalty, p.engines[i].live.health = c.penalties[i], c.health
		}
		p.refresh(epoch)
		if got := p.state.Load().factor; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %v", c, got)
		}
		for i := range p.engines {
			if got := p.engines[i].penalty(); got != c.penalties[i] {
				t.Errorf("%+v: engine %d is told to have %v", c, i, got)
			}
		}
	}
}

// Conversations leave a penalised engine, by its penalty and no more, some for the other
// pool until the plan has priced it; all others stay. They come back when it ends, and a
// new table changes nothing of it.
func TestPenalties(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 1, 4), viewPool("b", 1, 4))
	sick := s.pools[0].Engines[0].ID
	home := map[fleet.EngineID]fleet.PoolID{}
	for _, p := range s.pools {
		for _, e := range p.Engines {
			home[e.ID] = p.ID
		}
	}
	const n = 8000
	counts := func() (atSick, inPool int, at map[string]fleet.EngineID) {
		at = map[string]fleet.EngineID{}
		for i := range n {
			name := fmt.Sprint("s-", i)
			at[name] = s.ask(name)
			if at[name] == sick {
				atSick++
			}
			if home[at[name]] == "a" {
				inPool++
			}
		}
		return atSick, inPool, at
	}
	_, _, before := counts()
	s.SetPenalties(map[fleet.EngineID]float64{sick: 0.2})
	atSick, inPool, after := counts()
	checkShare(t, "in its pool", inPool, n, 0.8/1.8)
	checkShare(t, "at the sick engine", atSick, n, 0.8/1.8*0.2/3.2)
	for name, e := range before {
		if is := after[name]; is != e && home[is] == home[e] && e != sick {
			t.Fatalf("%s moved from %s to %s, neither of which is penalised", name, e, is)
		}
	}
	s.inForce()
	if _, _, again := counts(); !maps.Equal(again, after) {
		t.Error("a new table forgets penalties")
	}
	s.levels(func(pool, _ int) fleet.EngineLevels {
		if pool == 0 {
			return fleet.EngineLevels{Health: fleet.Known(0.8)}
		}
		return fleet.EngineLevels{}
	})
	atSick, inPool, _ = counts()
	checkShare(t, "in its pool, priced", inPool, n, 0.5)
	checkShare(t, "at the sick engine, priced", atSick, n, 0.5*0.2/3.2)
	s.SetPenalties(nil)
	_, _, end := counts()
	for name, e := range before {
		if end[name] != e {
			t.Fatalf("%s ends at %s, began at %s", name, end[name], e)
		}
	}
}

package extproc

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/zap"

	"weir/fleet"
)

// large is a class with 20 pools of 100 engines.
func large() *fleet.View {
	v := twoPools()
	v.Classes[0].Pools = nil
	for i := range 20 {
		p := fleet.ViewPool{ID: fleet.PoolID(fmt.Sprintf("pool-%d", i)), Weight: uint32(1+i) * 1000}
		for j := range 100 {
			p.Engines = append(p.Engines, fleet.ViewEngine{ID: fleet.EngineID(fmt.Sprintf("10.0.%d.%d:8000", i, j)), Readiness: fleet.Ready})
		}
		v.Classes[0].Pools = append(v.Classes[0].Pools, p)
	}
	return v
}

// sessions are the headers of requests of many conversations.
func sessions(n int) []head {
	heads := make([]head, n)
	for i := range heads {
		heads[i] = newHead(headersOf(post("/v1/chat/completions", fmt.Sprintf("x-session: s-%d", i))))
	}
	return heads
}

// loaded is a server of the large view whose engines have so many requests each.
func loaded(inFlight float64) *Server {
	s := New(zap.NewNop())
	v := large()
	s.Swap(NewTable(v))
	told := &fleet.Levels{Round: 1}
	for _, p := range v.Classes[0].Pools {
		told.Pools = append(told.Pools, levelsOf(&p, func(int) fleet.EngineLevels {
			return fleet.EngineLevels{Queued: fleet.Known(0), InFlight: fleet.Known(inFlight)}
		}))
	}
	sortPools(told)
	s.SwapLevels(told, 0)
	return s
}

// levelsOf tells of each engine of a pool.
func levelsOf(p *fleet.ViewPool, of func(engine int) fleet.EngineLevels) fleet.PoolLevels {
	out := fleet.PoolLevels{ID: p.ID}
	var ids []fleet.EngineID
	for i, e := range p.Engines {
		ids = append(ids, e.ID)
		out.Engines = append(out.Engines, of(i))
	}
	out.Print = fleet.FingerprintOf(ids)
	return out
}

func sortPools(l *fleet.Levels) {
	slices.SortFunc(l.Pools, func(a, b fleet.PoolLevels) int { return cmp.Compare(a.ID, b.ID) })
}

func BenchmarkDecide(b *testing.B) {
	heads := sessions(1024)
	b.Run("20 pools of 100", func(b *testing.B) {
		s := loaded(30)
		t := s.table.Load()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if d := t.decide(&heads[i%len(heads)], facts{model: "small"}, nil, 0); d.refusal != nil || d.detour != direct {
				b.Fatal("refused or diverted")
			}
		}
	})
	b.Run("an engine in four full", func(b *testing.B) {
		s := loaded(30)
		for _, p := range s.table.Load().pools {
			for i := 0; i < len(p.engines); i += 4 {
				p.engines[i].live.queued.Store(100)
			}
		}
		t := s.table.Load()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			t.decide(&heads[i%len(heads)], facts{model: "small"}, nil, 0)
		}
	})
	b.Run("engines of unlike weights", func(b *testing.B) {
		s := loaded(30)
		for _, p := range s.table.Load().pools {
			p.engines[0].live.penalty = 0.5
		}
		s.refreshAt(s.ledger.levels.at)
		t := s.table.Load()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			t.decide(&heads[i%len(heads)], facts{model: "small"}, nil, 0)
		}
	})
	b.Run("many at once", func(b *testing.B) {
		t := loaded(30).table.Load()
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				d := t.decide(&heads[i%len(heads)], facts{model: "small"}, nil, 0)
				d.choice.first().live.open.Add(1)
				d.choice.first().live.open.Add(-1)
			}
		})
	})
}

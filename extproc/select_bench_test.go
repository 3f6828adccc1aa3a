package extproc

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

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

// moved is a table of the large view by which half of the conversations do not belong
// where they had their turns, and may be held there.
func moved(heads []head) *Table {
	v := large()
	v.Hold = time.Hour
	s := loadedWith(v, 0)
	for range 2 * longTurns {
		for i := range heads {
			s.table.Load().decide(&heads[i], facts{model: "small"}, nil, 0)
		}
	}
	for i := range v.Classes[0].Pools {
		v.Classes[0].Pools[i].Weight = uint32(20-i) * 1000
	}
	s.Swap(NewTable(v))
	return s.table.Load()
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
func loaded(inFlight float64) *Server { return loadedWith(large(), inFlight) }

func loadedWith(v *fleet.View, inFlight float64) *Server {
	s := New(zap.NewNop())
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

// A decision allocates nothing, wherever it leads.
func TestDecideAllocatesNothing(t *testing.T) {
	s := loaded(30)
	for _, p := range s.table.Load().pools[:10] {
		for i := 0; i < len(p.engines); i += 2 {
			p.engines[i].live.queued.Store(100)
		}
		p.refresh(epoch)
	}
	heads := sessions(200)
	detours := map[detour]int{}
	i := 0
	if n := testing.AllocsPerRun(10*len(heads), func() {
		d := s.table.Load().decide(&heads[i%len(heads)], facts{model: "small"}, nil, 0)
		i++
		detours[d.detour]++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if detours[direct] == 0 || detours[elsewhere] == 0 {
		t.Errorf("detours %v: the test shows little", detours)
	}
}

// Nor does one about a conversation that is remembered.
func TestHoldingAllocatesNothing(t *testing.T) {
	heads := sessions(200)
	table := moved(heads)
	holds := map[hold]int{}
	i := 0
	if n := testing.AllocsPerRun(10*len(heads), func() {
		holds[table.decide(&heads[i%len(heads)], facts{model: "small"}, nil, 0).hold]++
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if holds[held] == 0 || holds[notMoved] == 0 {
		t.Errorf("holds %v: the test shows little", holds)
	}
}

// BenchmarkDecide is one decision; cpu-ns/op is what it costs where others want the
// processor, too.
func BenchmarkDecide(b *testing.B) {
	heads := sessions(1024)
	decide := func(b *testing.B, t *Table) {
		b.ReportAllocs()
		before := processor(b)
		for i := 0; b.Loop(); i++ {
			if d := t.decide(&heads[i%len(heads)], facts{model: "small"}, nil, 0); d.refusal != nil {
				b.Fatal("refused")
			}
		}
		b.ReportMetric(float64((processor(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
	}
	b.Run("20 pools of 100", func(b *testing.B) { decide(b, loaded(30).table.Load()) })
	b.Run("an engine in four full", func(b *testing.B) {
		t := loaded(30).table.Load()
		for _, p := range t.pools {
			for i := 0; i < len(p.engines); i += 4 {
				p.engines[i].live.queued.Store(100)
			}
			p.refresh(epoch)
		}
		decide(b, t)
	})
	b.Run("engines of unlike weights", func(b *testing.B) {
		t := loaded(30).table.Load()
		for _, p := range t.pools {
			p.engines[0].live.penalty = 0.5
			p.refresh(epoch)
		}
		decide(b, t)
	})
	b.Run("conversations remembered", func(b *testing.B) { decide(b, moved(heads)) })
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

// processor is the time that this process has used.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

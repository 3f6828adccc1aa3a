package extproc

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

const holdFor = 40 // seconds, of the tests

// holding is a scene of two pools whose conversations are held; one second of it has
// passed, and engines have room.
func holding(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, viewPool("a", 5_000_000, 5), viewPool("b", 5_000_000, 5))
	s.hold = holdFor * time.Second
	s.inForce()
	s.roomy()
	return s
}

// roomy tells that no engine has a queue.
func (s *scene) roomy() {
	s.levels(func(int, int) fleet.EngineLevels { return engineAt(0, 5) })
}

// weigh puts other weights in force.
func (s *scene) weigh(a, b uint32) {
	s.pools[0].Weight, s.pools[1].Weight = a, b
	s.inForce()
}

// moving are sessions of pool a that belong to pool b once the weights are 1 to 9.
func (s *scene) moving(n int) (found []string) {
	s.weigh(1_000_000, 9_000_000)
	later := s.Server.table.Load().classes[0]
	s.weigh(5_000_000, 5_000_000)
	now := s.Server.table.Load().classes[0]
	for i := 0; len(found) < n; i++ {
		name := fmt.Sprint("moving-", i)
		key := hashOfName([]byte(name))
		if now.rank(key).home.id == "a" && later.rank(key).home.id == "b" {
			found = append(found, name)
		}
	}
	return found
}

// A conversation stays where it is for the sake of weights alone, if it is active and
// long and its engine has room.
func TestHolds(t *testing.T) {
	t.Parallel()
	const turns = longTurns
	one := func(levels fleet.EngineLevels) func(*scene, int) {
		return func(s *scene, engine int) {
			s.levels(func(pool, i int) fleet.EngineLevels {
				if pool == 0 && i == engine {
					return levels
				}
				return engineAt(0, 5)
			})
		}
	}
	for name, c := range map[string]struct {
		turns   int
		bytes   int // of its bodies
		between func(s *scene, engine int)
		want    hold
	}{
		"active and long":    {turns, 0, nil, held},
		"long by its body":   {1, longBytes, nil, held},
		"new":                {0, longBytes, nil, notMoved},
		"short":              {turns - 1, longBytes - 1, nil, notMoved},
		"idle":               {turns, longBytes, func(s *scene, _ int) { s.pass(activeFor); s.roomy() }, notMoved},
		"almost idle":        {turns, 0, func(s *scene, _ int) { s.pass(35); s.roomy() }, held},
		"a queue":            {turns, 0, one(engineAt(1, 5)), noRoom},
		"too many in flight": {turns, 0, one(engineAt(0, 50)), noRoom},
		"a queue not known":  {turns, 0, one(fleet.EngineLevels{InFlight: fleet.Known(5)}), noRoom},
		"no levels":          {turns, 0, func(s *scene, _ int) { s.pass(11) }, noRoom},
		"full a moment ago":  {turns, 0, func(s *scene, e int) { one(engineAt(9, 5))(s, e); s.roomy() }, noRoom},
		"priced as sick":     {turns, 0, one(fleet.EngineLevels{Queued: fleet.Known(0), Health: fleet.Known(0.9)}), noRoom},
		"unready":            {turns, 0, func(s *scene, e int) { s.pools[0].Engines[e].Readiness = fleet.Unready }, noRoom},
		"drains":             {turns, 0, func(s *scene, e int) { s.pools[0].Engines[e].Readiness = fleet.Draining }, noRoom},
		"was away": {turns, 0, func(s *scene, e int) {
			s.pools[0].Engines[e].Readiness = fleet.Unready
			s.inForce()
			s.pools[0].Engines[e].Readiness = fleet.Ready
		}, noRoom},
		"another is unready": {turns, 0, func(s *scene, e int) { s.pools[0].Engines[(e+1)%5].Readiness = fleet.Unready }, held},
		"a pool without room": {turns, 0, func(s *scene, _ int) {
			s.levels(func(pool, _ int) fleet.EngineLevels { return engineAt(float64(20*(1-pool)), 50) })
		}, noRoom},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := holding(t)
			session := s.moving(1)[0]
			var was fleet.EngineID
			for range c.turns {
				was = s.ask(session, c.bytes)
			}
			if c.between != nil {
				c.between(s, s.placeOf(was))
			}
			s.weigh(1_000_000, 9_000_000)
			got := s.ask(session, c.bytes)
			if stays := got == was; stays != (c.want == held) || c.want != held && poolOf(got) != "b" {
				t.Errorf("from %s to %s, want %v", was, got, c.want)
			}
			want := map[hold]uint64{c.want: 1}
			n := &s.counters
			if n.Held.Load() != want[held] || n.HeldNot.Load() != want[noRoom] || n.HeldEnough.Load() != want[timeUp] {
				t.Errorf("%d held, %d not, %d no more", n.Held.Load(), n.HeldNot.Load(), n.HeldEnough.Load())
			}
		})
	}
}

// placeOf is the place of an engine in its pool.
func (s *scene) placeOf(id fleet.EngineID) int {
	for _, p := range s.pools {
		for i, e := range p.Engines {
			if e.ID == id {
				return i
			}
		}
	}
	return 0
}

// Without a share a pool holds nobody.
func TestHoldsNobodyWithoutAShare(t *testing.T) {
	t.Parallel()
	s := holding(t)
	for _, session := range s.moving(20) {
		for range longTurns {
			s.ask(session)
		}
		s.weigh(0, 9_000_000)
		if got := s.ask(session); poolOf(got) != "b" {
			t.Errorf("%s is held at %s", session, got)
		}
		s.weigh(5_000_000, 5_000_000)
	}
}

// Conversations go one after the other between the hold and twice that after the plan's
// change, and have gone then, whatever the plan says meanwhile but that they stay; none
// comes back by itself.
func TestHoldsEnd(t *testing.T) {
	t.Parallel()
	s := holding(t)
	sessions := s.moving(200)
	for range longTurns {
		for _, session := range sessions {
			s.ask(session)
		}
	}
	s.weigh(1_000_000, 9_000_000)
	gone, at := map[string]bool{}, map[int]int{}
	for second := 2; second <= 2*holdFor+10; second += 2 {
		s.pass(1)
		s.roomy()
		s.weigh(1_000_000+uint32(second), 9_000_000)
		for _, session := range sessions {
			switch away := poolOf(s.ask(session)) == "b"; {
			case away && !gone[session]:
				gone[session] = true
				at[second/10]++
			case !away && gone[session]:
				t.Fatalf("%s comes back", session)
			}
		}
		if second < holdFor && len(gone) > 0 || second > 2*holdFor && len(gone) < len(sessions) {
			t.Fatalf("%d of %d gone after %d s", len(gone), len(sessions), second)
		}
	}
	for ten, n := range at {
		if n > 100 { // a quarter of them is 50
			t.Errorf("%d go in the %dth ten seconds", n, ten)
		}
	}
}

// Weights that come back within the hold have moved nobody who is held.
func TestWeightsComeBack(t *testing.T) {
	t.Parallel()
	s := holding(t)
	session := s.moving(1)[0]
	for range longTurns {
		s.ask(session)
	}
	was := s.ask(session)
	for second := range 6 * holdFor {
		s.pass(1)
		s.roomy()
		if second%(holdFor/2) == 0 {
			s.weigh([]uint32{1_000_000, 5_000_000}[second/(holdFor/2)%2], 9_000_000)
			if second/(holdFor/2)%2 == 1 {
				s.weigh(5_000_000, 5_000_000)
			}
		}
		if got := s.ask(session); got != was {
			t.Fatalf("goes to %s after %d s", got, second)
		}
	}
	if s.counters.Held.Load() == 0 {
		t.Error("never held: the test shows nothing")
	}
}

// What is lost at once is answered at once: an engine that is full lets go whom it holds,
// for good, be it by levels or by what has come since.
func TestAFullEngineLetsGo(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(*scene, *liveEngine){
		"a queue": func(s *scene, _ *liveEngine) {
			s.levels(func(pool, _ int) fleet.EngineLevels { return engineAt(float64(6*(1-pool)), 20) })
		},
		"what has come since": func(_ *scene, e *liveEngine) { e.open.Add(30) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := holding(t)
			session := s.moving(1)[0]
			was := s.ask(session)
			s.ask(session)
			s.weigh(1_000_000, 9_000_000)
			if got := s.ask(session); got != was {
				t.Fatalf("goes to %s, want held at %s", got, was)
			}
			live := s.Server.ledger.engines[was]
			fill(s, live)
			if got := s.ask(session); poolOf(got) != "b" {
				t.Errorf("is held at %s, which is full", got)
			}
			live.open.Store(0)
			for range 2 * staysAway {
				s.roomy()
			}
			if got := s.ask(session); poolOf(got) != "b" {
				t.Errorf("goes back to %s", got)
			}
		})
	}
}

// A conversation that was diverted since is not held where it was before.
func TestTheDivertedAreNotHeld(t *testing.T) {
	t.Parallel()
	s := holding(t)
	session := s.moving(1)[0]
	was := s.ask(session)
	s.ask(session)
	s.levels(func(pool, engine int) fleet.EngineLevels {
		if s.pools[pool].Engines[engine].ID == was {
			return engineAt(9, 5)
		}
		return engineAt(0, 5)
	})
	if got := s.ask(session); got == was {
		t.Fatalf("goes to %s, which is full", got)
	}
	for range 2 * staysAway {
		s.roomy()
	}
	s.weigh(1_000_000, 9_000_000)
	if got := s.ask(session); poolOf(got) != "b" {
		t.Errorf("is held at %s", got)
	}
}

// A held conversation's own engine is the first to try when the one where it is fails.
func TestTheOwnComesNext(t *testing.T) {
	t.Parallel()
	s := holding(t)
	for _, session := range s.moving(20) {
		for range longTurns {
			s.ask(session)
		}
		s.weigh(1_000_000, 9_000_000)
		table := s.Server.table.Load()
		table.tell = true
		d := table.decide(headOf(post("/", "x-session: "+session)), facts{model: "small"}, nil, 0)
		own := table.classes[0].rank(hashOfName([]byte(session))).own
		if d.hold != held || d.choice.engines[1] != own || d.choice.n < 3 || !strings.Contains(d.told, ", held") {
			t.Errorf("%v, then %v of %d, told %q", d.hold, d.choice.engines[1], d.choice.n, d.told)
		}
		s.weigh(5_000_000, 5_000_000)
	}
}

// Whoever is not remembered is decided as if nobody were held, whatever the levels.
func TestNewConversationsAreNotHeld(t *testing.T) {
	t.Parallel()
	luck := rand.New(rand.NewPCG(3, 3))
	with, without := holding(t), holding(t)
	without.hold = 0
	without.inForce()
	for i := range 400 {
		if i%20 == 0 {
			queues, a := [10]float64{}, uint32(luck.IntN(9_000_000))
			for k := range queues {
				queues[k] = float64(luck.IntN(2) * luck.IntN(12))
			}
			for _, s := range []*scene{with, without} {
				s.levels(func(pool, engine int) fleet.EngineLevels { return engineAt(queues[5*pool+engine], 5) })
				s.weigh(a, 9_000_000-a)
			}
		}
		session := fmt.Sprint("new-", i)
		if got, want := with.ask(session, 2*longBytes), without.ask(session, 2*longBytes); got != want {
			t.Fatalf("%s goes to %s, want %s", session, got, want)
		}
	}
}

// tenPoints is what a change of ten points costs: amber's half of the traffic becomes
// 40 %, at 60 % of what both pools can do, and amber may be weaker from then on.
type tenPoints struct {
	lost    int   // tokens that were prefilled again at another pool
	longest int   // queue
	amber   []int // conversations with a turn there, by ten seconds
	all     []int // and anywhere
}

// run adds what one seed shows.
func (p *tenPoints) run(seed uint64, hold time.Duration, slots int) {
	s := simulate(seed, 2, viewPool("amber", 5_000_000, 10), viewPool("blue", 5_000_000, 10))
	s.view.Hold, s.loyal = hold, true
	s.replan()
	s.talk(0.6 * 20 * simulatedSlots)
	s.run(120)
	pools := s.view.Classes[0].Pools
	pools[0].Weight, pools[1].Weight = 4_000_000, 6_000_000
	for _, e := range pools[0].Engines {
		s.engines[e.ID].slots = slots
	}
	s.replan()
	s.result = result{}
	at := map[*talkOf]string{}
	s.asked = func(c *talkOf, to fleet.EngineID) {
		at[c] = poolOf(to)
		if c.last != "" && poolOf(c.last) != at[c] {
			p.lost += c.said
		}
	}
	for i := range len(p.all) {
		s.run(10)
		p.all[i] += len(at)
		for _, pool := range at {
			p.amber[i] += strings.Count(pool, "a")
		}
		clear(at)
	}
	p.longest = max(p.longest, s.longest)
}

// replan puts the view in force at once everywhere.
func (s *simulation) replan() {
	for _, server := range s.servers {
		server.swapAt(NewTable(s.view), s.clock())
	}
}

// arrived is after how many seconds the shares are the plan's, by all that chance
// explains; infinite: not at all.
func (p *tenPoints) arrived() float64 {
	for i := range p.all {
		if math.Abs(zScore(p.amber[i], p.all[i], 0.4)) < 2 {
			return float64(10 * (i + 1))
		}
	}
	return math.Inf(1)
}

// Holding saves most of the prefill that a change of weights costs; the shares come to
// the plan's later, within twice the hold, and queues are no longer. Where the change
// answers a loss of capacity, queues are no longer either.
func TestWhatHoldingIsWorth(t *testing.T) {
	t.Parallel()
	measured := func(hold time.Duration, slots int) *tenPoints {
		p := &tenPoints{amber: make([]int, 12), all: make([]int, 12)}
		for seed := range uint64(3) {
			p.run(20+seed, hold, slots)
		}
		t.Logf("hold %v, amber's engines have %d slots: %d tokens prefilled again, the plan's shares after %.0f s, the longest queue %d", hold, slots, p.lost, p.arrived(), p.longest)
		return p
	}
	const hold = 2 * time.Minute
	none, some := measured(0, simulatedSlots), measured(hold, simulatedSlots)
	if some.lost > none.lost*6/10 {
		t.Errorf("%d tokens were prefilled again, without holding %d", some.lost, none.lost)
	}
	if none.arrived() > 20 || some.arrived() < 20 || some.arrived() > 2*hold.Seconds() {
		t.Errorf("the shares are the plan's after %.0f s, without holding %.0f s", some.arrived(), none.arrived())
	}
	if some.longest > none.longest+maxQueued {
		t.Errorf("the longest queue is %d, without holding %d", some.longest, none.longest)
	}
	const weak = simulatedSlots / 2
	none, some = measured(0, weak), measured(hold, weak)
	if some.longest > none.longest+maxQueued {
		t.Errorf("of weak engines the longest queue is %d, without holding %d", some.longest, none.longest)
	}
}

// A new table takes over the memory of the one before: it is large.
func TestHoldingTakesMemoryOnce(t *testing.T) {
	swap := func(hold time.Duration) float64 {
		v, l := twoPools(), &New(zap.NewNop()).ledger
		v.Hold = hold
		table := NewTable(v)
		return testing.AllocsPerRun(100, func() { l.adopt(table, epoch) })
	}
	if holds, none := swap(time.Minute), swap(0); holds > none {
		t.Errorf("%v allocations where conversations are held, else %v", holds, none)
	}
}

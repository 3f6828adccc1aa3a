package extproc

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

var epoch = time.Unix(1_000_000, 0)

// scene is a server of one class whose levels a test sets by hand.
type scene struct {
	*Server
	t     *testing.T
	pools []fleet.ViewPool
	now   time.Time
	round int64
	hold  time.Duration
}

func newScene(t *testing.T, pools ...fleet.ViewPool) *scene {
	t.Helper()
	s := &scene{Server: New(zap.NewNop()), t: t, pools: pools, now: epoch}
	s.inForce()
	return s
}

// inForce puts the pools as they are in force.
func (s *scene) inForce() {
	v := twoPools()
	v.Classes[0].Pools, v.Hold = s.pools, s.hold
	s.swapAt(NewTable(v), s.now)
}

// levels tells of each engine, a second after it was told last.
func (s *scene) levels(of func(pool, engine int) fleet.EngineLevels) {
	s.pass(1)
	s.round++
	l := &fleet.Levels{Round: s.round, Tick: 2 * time.Second}
	for i := range s.pools {
		l.Pools = append(l.Pools, levelsOf(&s.pools[i], func(j int) fleet.EngineLevels { return of(i, j) }))
	}
	sortPools(l)
	s.swapLevelsAt(l, 0, s.now)
}

// pass lets seconds pass.
func (s *scene) pass(seconds int) {
	for range seconds {
		s.now = s.now.Add(time.Second)
		s.refreshAt(s.now)
	}
}

// begin lets a request in, with a body of so many bytes if it says so, and returns where it goes and
// what ends it.
func (s *scene) begin(session string, bytes ...int) (fleet.EngineID, func()) {
	s.t.Helper()
	headers := []string{"x-session: " + session}
	for _, n := range bytes {
		headers = append(headers, fmt.Sprint("content-length: ", n))
	}
	x := exchange{table: s.Server.table.Load(), head: *headOf(post("/", headers...))}
	if s.settle(&x, facts{model: "small"}, nil); x.pick == nil {
		s.t.Fatalf("%s is refused", session)
	}
	return x.pick.id, func() { s.leave(&x) }
}

// ask is a request that ends at once.
func (s *scene) ask(session string, bytes ...int) fleet.EngineID {
	s.t.Helper()
	e, end := s.begin(session, bytes...)
	end()
	return e
}

// owned are sessions of an engine while none is full.
func (s *scene) owned(e fleet.EngineID, n int) []string {
	var found []string
	for i := 0; len(found) < n; i++ {
		name := fmt.Sprintf("%s-%d", e, i)
		c := s.Server.table.Load().routes[0].class
		if r := c.rank(hashOfName([]byte(name))); r.own.id == e {
			found = append(found, name)
		}
	}
	return found
}

func engineAt(queued, inFlight float64) fleet.EngineLevels {
	return fleet.EngineLevels{Queued: fleet.Known(queued), InFlight: fleet.Known(inFlight)}
}

// An engine is full by its queue or by what it has of its pool's requests; what is not
// known is no reason, and what has begun here since counts.
func TestFull(t *testing.T) {
	t.Parallel()
	unknown := fleet.EngineLevels{}
	for name, c := range map[string]struct {
		first, others fleet.EngineLevels // of ten engines
		begun         int                // requests at the first since
		want          bool
	}{
		"nothing known":                        {unknown, unknown, 0, false},
		"nothing known, many from here":        {unknown, unknown, 100, false},
		"idle":                                 {engineAt(0, 0), engineAt(0, 0), 0, false},
		"the first requests of an idle pool":   {engineAt(0, 0), engineAt(0, 0), 5, false},
		"a burst on an idle pool":              {engineAt(0, 0), engineAt(0, 0), 6, true},
		"a burst on a busy pool":               {engineAt(0, 25), engineAt(0, 25), 15, false},
		"a queue that passes":                  {engineAt(4, 30), engineAt(0, 30), 0, false},
		"a queue":                              {engineAt(6, 30), engineAt(0, 30), 0, true},
		"a queue, and nothing else known":      {fleet.EngineLevels{Queued: fleet.Known(6)}, unknown, 0, true},
		"a queue to which has come":            {engineAt(2, 30), engineAt(0, 30), 3, true},
		"no queue to which has come":           {engineAt(0, 30), engineAt(0, 30), 5, false},
		"queues everywhere":                    {engineAt(9, 40), engineAt(9, 40), 0, false},
		"queues everywhere, one of them worse": {engineAt(30, 60), engineAt(9, 40), 0, true},
		"within chance of its part":            {engineAt(0, 49), engineAt(0, 30), 0, false},
		"beyond chance":                        {engineAt(0, 56), engineAt(0, 30), 0, true},
		"beyond chance by what has begun":      {engineAt(0, 49), engineAt(0, 30), 9, true},
		"in flight alone known":                {fleet.EngineLevels{InFlight: fleet.Known(90)}, fleet.EngineLevels{InFlight: fleet.Known(30)}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, viewPool("a", 1, 10))
			s.levels(func(_, engine int) fleet.EngineLevels {
				if engine == 0 {
					return c.first
				}
				return c.others
			})
			p := s.Server.table.Load().pools[0]
			p.engines[0].live.open.Add(int64(c.begun))
			if got := p.full(&p.engines[0]); got != c.want {
				t.Errorf("full: %v, want %v", got, c.want)
			}
		})
	}
}

// Of what is in flight the control plane was told our part: it does not count twice.
func TestOwnRequestsCountOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 1, 2))
	e := s.pools[0].Engines[0].ID
	for _, name := range s.owned(e, 20) {
		s.begin(name)
	}
	s.Open()
	s.levels(func(_, engine int) fleet.EngineLevels { return engineAt(0, float64(20*(1-engine))) })
	p := s.Server.table.Load().pools[0]
	if n, known := p.engines[0].live.inFlight(); n != 20 || !known {
		t.Errorf("%v in flight, want the 20 that are", n)
	}
	s.begin(s.owned(e, 1)[0])
	if n, _ := p.engines[0].live.inFlight(); n != 21 {
		t.Errorf("%v in flight, want one more", n)
	}
}

// Levels that do not know yet that our own requests have ended make no others of them.
func TestOwnRequestsThatHaveEnded(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 1, 2))
	e := s.pools[0].Engines[0].ID
	var ends []func()
	for _, name := range s.owned(e, 20) {
		_, end := s.begin(name)
		ends = append(ends, end)
	}
	s.Open()
	for _, end := range ends {
		end()
	}
	s.Open()
	s.levels(func(_, engine int) fleet.EngineLevels { return engineAt(0, float64(20*(1-engine))) })
	p := s.Server.table.Load().pools[0]
	if n, _ := p.engines[0].live.inFlight(); n != 0 || p.full(&p.engines[0]) {
		t.Errorf("%v in flight, want none", n)
	}
	s.levels(func(_, engine int) fleet.EngineLevels {
		return engineAt(float64(12*(1-engine)), float64(20*(1-engine)))
	})
	if n := p.engines[0].live.waiting(); n != 0 || p.full(&p.engines[0]) {
		t.Errorf("%v wait, though more have ended since than waited", n)
	}
	s.Open()
	s.levels(func(_, engine int) fleet.EngineLevels { return engineAt(0, float64(20*(1-engine))) })
	if n, _ := p.engines[0].live.inFlight(); n != 20 {
		t.Errorf("%v in flight, want the others'", n)
	}
}

// A conversation is diverted while its engine is full, stays where it is when that has
// room again, and comes home after a while; conversations that are new meanwhile begin
// at home.
func TestTheDivertedStayDiverted(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 1, 10))
	own := s.pools[0].Engines[3].ID
	names := s.owned(own, 40)
	queue := func(n float64) {
		s.levels(func(_, engine int) fleet.EngineLevels {
			if engine == 3 {
				return engineAt(n, 30+n)
			}
			return engineAt(0, 30)
		})
	}
	queue(0)
	old, fresh := names[:20], names[20:]
	for _, name := range old {
		if got := s.ask(name); got != own {
			t.Fatalf("%s is at %s, want its own engine", name, got)
		}
	}
	queue(20)
	away := map[string]fleet.EngineID{}
	for _, name := range old {
		if away[name] = s.ask(name); away[name] == own {
			t.Errorf("%s is not diverted", name)
		}
	}
	queue(0)
	for _, name := range old {
		if got := s.ask(name); got != away[name] {
			t.Errorf("%s moves from %s to %s as soon as its engine has room", name, away[name], got)
		}
	}
	for _, name := range fresh {
		if got := s.ask(name); got != own {
			t.Errorf("%s, which is new, begins at %s", name, got)
		}
	}
	home := func() (n int) {
		for _, name := range old {
			switch s.ask(name) {
			case own:
				n++
			case away[name]:
			default:
				t.Errorf("%s is at a third engine", name)
			}
		}
		return n
	}
	for range staysAway - 2 {
		queue(0)
	}
	if n := home(); n != 0 {
		t.Errorf("%d are home early", n)
	}
	for range staysAway / 2 {
		queue(0)
	}
	if n := home(); n == 0 || n == len(old) {
		t.Errorf("%d of %d are home half-way: want them to come one by one", n, len(old))
	}
	for range staysAway {
		queue(0)
	}
	if n := home(); n != len(old) {
		t.Errorf("%d of %d came home", n, len(old))
	}
	if n := s.counters.ToAnotherEngine.Load(); n == 0 || s.ledger.diverted.kept.Load() == 0 {
		t.Errorf("%d diverted, %d remembered", n, s.ledger.diverted.kept.Load())
	}
}

// A diverted conversation whose new engine is full, too, moves on; where its own has
// room, it goes there and is not called back and forth.
func TestTheDivertedMoveOn(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 1, 10))
	own := s.pools[0].Engines[0].ID
	name := s.owned(own, 1)[0]
	full := func(ids ...fleet.EngineID) {
		s.levels(func(_, engine int) fleet.EngineLevels {
			for _, id := range ids {
				if id == s.pools[0].Engines[engine].ID {
					return engineAt(30, 60)
				}
			}
			return engineAt(0, 30)
		})
	}
	full(own)
	second := s.ask(name)
	full(own, second)
	third := s.ask(name)
	if third == own || third == second || second == own {
		t.Fatalf("%s, %s, %s: want three engines", own, second, third)
	}
	full(own)
	if got := s.ask(name); got != third {
		t.Errorf("back at %s from %s", got, third)
	}
	full(third)
	if got := s.ask(name); got != own {
		t.Errorf("at %s, want home", got)
	}
	full()
	if got := s.ask(name); got != own {
		t.Errorf("called away from home to %s", got)
	}
}

// Where there is no other pool, everybody stays at home, and who would leave is counted.
func TestNowhereToGo(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := newScene(t, viewPool("a", 1, 4), viewPool("c", 0, 4))
	s.levels(func(int, int) fleet.EngineLevels { return engineAt(12, 24) })
	for i := range n {
		name := fmt.Sprint("s-", i)
		c := s.Server.table.Load().routes[0].class.rank(hashOfName([]byte(name)))
		if got := s.ask(name); got != c.own.id {
			t.Errorf("%s is at %s, not at home", name, got)
		}
	}
	checkShare(t, "counted", int(s.counters.NoRoom.Load()), n, 0.5)
}

// Of a crowded pool as many go to another as are too many, the same ones each time; the
// rest stays where it is.
func TestACrowdedPoolIsLeft(t *testing.T) {
	t.Parallel()
	const n = 4000
	s := newScene(t, viewPool("a", 5, 10), viewPool("b", 5, 10), viewPool("c", 0, 10))
	home := map[string]fleet.EngineID{}
	for i := range n {
		name := fmt.Sprint("s-", i)
		home[name] = s.ask(name)
	}
	told := func() {
		s.levels(func(pool, _ int) fleet.EngineLevels {
			if pool == 0 {
				return engineAt(12, 48) // a quarter waits
			}
			return engineAt(0, 10)
		})
	}
	told()
	left := map[string]fleet.EngineID{}
	atA := 0
	for name, e := range home {
		got := s.ask(name)
		if poolOf(e) == "a" {
			atA++
		}
		switch {
		case got == e:
		case poolOf(e) == "a" && poolOf(got) == "b":
			left[name] = got
		default:
			t.Fatalf("%s moved from %s to %s", name, e, got)
		}
	}
	checkShare(t, "left", len(left), atA, 0.25)
	told()
	for name, e := range left {
		if got := s.ask(name); got != e {
			t.Errorf("%s moved on from %s to %s", name, e, got)
		}
	}
	if got := s.counters.ToAnotherPool.Load(); got != uint64(2*len(left)) {
		t.Errorf("%d counted, want %d", got, 2*len(left))
	}
}

// Two crowded pools do not swap their conversations.
func TestCrowdedPoolsAreAlike(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 5, 10), viewPool("b", 5, 10))
	s.levels(func(int, int) fleet.EngineLevels { return engineAt(12, 48) })
	for i := range 1000 {
		s.ask(fmt.Sprint("s-", i))
	}
	if got := s.counters.ToAnotherPool.Load(); got != 0 {
		t.Errorf("%d of 1000 went to the other crowded pool", got)
	}
}

// Replicas that hear the same levels send every key to the same engine, in whatever
// order they read their pools, and whether or not they have sent it there before.
func TestReplicasAgreeOnLevels(t *testing.T) {
	t.Parallel()
	one := newScene(t, viewPool("a", 4, 7), viewPool("b", 6, 13))
	other := newScene(t, viewPool("b", 6, 13), viewPool("a", 4, 7))
	told := func(s *scene) {
		s.levels(func(pool, engine int) fleet.EngineLevels {
			n := float64(len(s.pools[pool].Engines))
			if engine%3 == 0 {
				return engineAt(20, 50+n)
			}
			return engineAt(0, 30)
		})
	}
	told(one)
	told(other)
	diverted := 0
	ofOne, ofOther := one.Server.table.Load(), other.Server.table.Load()
	eachKey(func(key uint64) {
		a, b := ofOne.routes[0].class.rank(key), ofOther.routes[0].class.rank(key)
		first, detour := ofOne.place(&a, key%2 == 0) // the other one remembers nothing
		second, _ := ofOther.place(&b, false)
		if first.id != second.id {
			t.Fatalf("key %d: %s and %s", key, first.id, second.id)
		}
		if detour != direct {
			diverted++
		}
	})
	if diverted < keys/10 {
		t.Errorf("%d of %d keys diverted: the test shows little", diverted, keys)
	}
}

// Levels that are late count for nothing, like those of other engines.
func TestLevelsGrowStale(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 1, 2))
	own := s.pools[0].Engines[0].ID
	name := s.owned(own, 1)[0]
	queue := func(_, engine int) fleet.EngineLevels { return engineAt(30*float64(1-engine), 30) }
	s.levels(queue)
	if got := s.ask(name); got == own {
		t.Fatal("not diverted")
	}
	s.pass(staleTicks * 2)
	if got := s.ask(name); got == own || s.ledger.levels.stale.Load() != 0 {
		t.Error("levels five ticks old are forgotten")
	}
	s.pass(1 + 2*staysAway)
	if got := s.ask(name); got != own || s.ledger.levels.stale.Load() != 1 {
		t.Errorf("levels of long ago are believed; %d times stale", s.ledger.levels.stale.Load())
	}
	s.swapLevelsAt(&fleet.Levels{Round: s.round}, 0, s.now)
	if s.ledger.levels.known {
		t.Error("the same round again is news")
	}

	before := s.pools
	for i, engines := range []fleet.ViewPool{viewPool("a", 1, 3), viewPool("b", 1, 2)} {
		engines.ID = "a"
		s.pools = []fleet.ViewPool{engines}
		s.levels(queue)
		if s.ledger.levels.unused.Load() != uint64(i+1) || !s.ledger.levels.known {
			t.Error("levels of other engines are not counted")
		}
	}
	s.pools = before
	if got := s.ask(name); got != own {
		t.Error("levels of other engines are believed")
	}
}

// A hundred requests at once, of which the control plane has not heard: distinct
// conversations spread evenly, one that sends half of them does not have its engine
// overrun, and an engine that alone looks idle does not get them all.
func TestABurstOnFrozenLevels(t *testing.T) {
	t.Parallel()
	const engines, requests = 10, 100
	for name, c := range map[string]struct {
		levels  func(engine int) fleet.EngineLevels
		session func(i int) string
		most    int
	}{
		"distinct conversations": {
			func(int) fleet.EngineLevels { return engineAt(0, 0) },
			func(i int) string { return fmt.Sprint("s-", i) },
			int(bound(requests / engines)),
		},
		"one sends half": {
			func(int) fleet.EngineLevels { return engineAt(0, 0) },
			func(i int) string { return fmt.Sprint("s-", i*(i%2)) },
			int(bound(requests/engines)) + 1,
		},
		"one looks idle": {
			func(engine int) fleet.EngineLevels {
				return engineAt(float64(min(engine, 1)*20), float64(min(engine, 1)*50))
			},
			func(i int) string { return fmt.Sprint("s-", i) },
			requests * 4 / engines,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, viewPool("a", 1, engines))
			s.levels(func(_, engine int) fleet.EngineLevels { return c.levels(engine) })
			got := map[fleet.EngineID]int{}
			for i := range requests {
				e, _ := s.begin(c.session(i))
				got[e]++
			}
			for _, e := range s.pools[0].Engines {
				if n := got[e.ID]; n == 0 || n > c.most {
					t.Errorf("engine %s got %d of %d, want some and at most %d", e.ID, n, requests, c.most)
				}
			}
		})
	}
}

// An engine that drains gets nothing new, not even a retry, keeps what it has, and each
// of its conversations moves once: not again when it is gone.
func TestADrainedEngineGetsNothingNew(t *testing.T) {
	t.Parallel()
	s := newScene(t, viewPool("a", 5, 5), viewPool("b", 5, 5))
	drained := s.pools[0].Engines[2].ID
	names := s.owned(drained, 30)
	_, end := s.begin(names[0])
	others := s.owned(s.pools[1].Engines[0].ID, 30)

	s.pools = []fleet.ViewPool{viewPool("a", 5, 5), viewPool("b", 5, 5)}
	s.pools[0].Engines[2].Readiness = fleet.Draining
	s.inForce()
	moved := map[string]fleet.EngineID{}
	for _, name := range append(names, others...) {
		x := exchange{table: s.Server.table.Load(), head: *headOf(post("/", "x-session: "+name))}
		d := x.table.decide(&x.head, facts{model: "small"}, nil, 0)
		for _, e := range d.choice.engines[:d.choice.n] {
			if e.id == drained {
				t.Errorf("%s may go to the engine that drains", name)
			}
		}
		moved[name] = s.ask(name)
	}
	if got := openAt(s.Server, drained); got != 1 {
		t.Errorf("%d open at the engine that drains, want the one that was", got)
	}
	end()
	s.pools[0].Engines = append(s.pools[0].Engines[:2:2], s.pools[0].Engines[3:]...)
	s.inForce()
	for name, e := range moved {
		if got := s.ask(name); got != e {
			t.Errorf("%s moves again, from %s to %s", name, e, got)
		}
	}
}

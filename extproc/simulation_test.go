package extproc

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

// simulation is a pool of engines behind many Envoys, each with a weir-extproc of its
// own that hears late, and from elsewhere, how full the engines are. Nothing of it waits
// for a clock.
type simulation struct {
	random  *rand.Rand
	now     float64 // seconds
	events  events
	view    *fleet.View
	servers []*Server
	engines map[fleet.EngineID]*simulated

	told      []map[fleet.EngineID]uint64   // open requests, by what each weir-extproc reported last
	pages     map[fleet.EngineID][2]int     // queues, by the page that was read last
	blind     bool                          // no levels are published
	loyal     bool                          // a conversation keeps to one Envoy
	meanTurns float64                       // of a conversation; 0: 5
	asked     func(*talkOf, fleet.EngineID) // is told where each turn goes

	result
}

// result is what became of the requests.
type result struct {
	turns, followUps, kept int
	waited                 float64 // seconds in queues
	longest                int     // queue
}

func (r result) String() string {
	return fmt.Sprintf("%d turns, %.2f %% of follow-ups kept, %.3f s in queues, the longest %d", r.turns, 100*r.keptShare(), r.waited/float64(r.turns), r.longest)
}

func (r result) keptShare() float64 { return float64(r.kept) / float64(r.followUps) }

// simulated is an engine that runs so many requests at once.
type simulated struct {
	id      fleet.EngineID
	slots   int
	running int
	queue   []*turn
}

// turn is one request of a conversation.
type turn struct {
	of       *talkOf
	exchange exchange
	server   *Server
	arrived  float64
}

// talkOf is a conversation.
type talkOf struct {
	head  head
	left  int     // turns
	said  int     // tokens so far
	by    *Server // if it is loyal
	think float64
	last  fleet.EngineID
}

type event struct {
	at float64
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

const (
	simulatedSlots = 32
	meanService    = 8    // seconds
	meanTurn       = 1000 // tokens that a turn adds to its conversation
	simulatedTick  = 2    // seconds
)

// simulate makes pools of engines behind so many Envoys.
func simulate(seed uint64, envoys int, pools ...fleet.ViewPool) *simulation {
	s := &simulation{
		random:  rand.New(rand.NewPCG(seed, 1)),
		view:    twoPools(),
		engines: map[fleet.EngineID]*simulated{},
		pages:   map[fleet.EngineID][2]int{},
	}
	s.view.Classes[0].Pools = pools
	for _, p := range pools {
		for _, e := range p.Engines {
			s.engines[e.ID] = &simulated{id: e.ID, slots: simulatedSlots}
			s.every(1, func() { s.pages[e.ID] = [2]int{len(s.engines[e.ID].queue), s.pages[e.ID][0]} })
		}
	}
	for i := range envoys {
		server := New(zap.NewNop())
		server.swapAt(NewTable(s.view), s.clock())
		s.servers = append(s.servers, server)
		s.told = append(s.told, nil)
		s.every(1, func() { server.refreshAt(s.clock()) })
		s.every(1, func() { s.told[i] = opensOf(server) })
	}
	s.every(simulatedTick, s.publish)
	return s
}

func opensOf(server *Server) map[fleet.EngineID]uint64 {
	open := map[fleet.EngineID]uint64{}
	for _, o := range server.Open() {
		open[o.Engine] = o.Open
	}
	return open
}

func (s *simulation) clock() time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(s.now * float64(time.Second)))
}

func (s *simulation) after(seconds float64, do func()) {
	heap.Push(&s.events, event{s.now + seconds, do})
}

// every does something again and again, each time that many seconds later.
func (s *simulation) every(seconds float64, do func()) {
	var again func()
	again = func() { do(); s.after(seconds, again) }
	s.after(s.random.Float64()*seconds, again)
}

// run lets so many seconds pass.
func (s *simulation) run(seconds float64) {
	end := s.now + seconds
	for len(s.events) > 0 && s.events[0].at <= end {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	s.now = end
}

// publish has each weir-extproc hear, up to a second later, what was told and read.
func (s *simulation) publish() {
	if s.blind {
		return
	}
	levels := &fleet.Levels{Round: s.clock().UnixMilli(), Tick: simulatedTick * time.Second}
	for _, pool := range s.view.Classes[0].Pools {
		levels.Pools = append(levels.Pools, levelsOf(&pool, func(i int) fleet.EngineLevels {
			id, open := pool.Engines[i].ID, uint64(0)
			for _, told := range s.told {
				open += told[id]
			}
			return fleet.EngineLevels{
				Queued: fleet.Known(fleet.Rounded(float64(min(s.pages[id][0], s.pages[id][1])))), InFlight: fleet.Known(fleet.Rounded(float64(open))),
			}
		}))
	}
	for _, server := range s.servers {
		s.after(s.random.Float64(), func() { server.swapLevelsAt(levels, 0, s.clock()) })
	}
}

func (s *simulation) exponential(mean float64) float64 { return s.random.ExpFloat64() * mean }

// service is a log-normal time: most requests are short, a few very long.
func (s *simulation) service() float64 {
	const sigma = 0.8
	return meanService * math.Exp(sigma*s.random.NormFloat64()-sigma*sigma/2)
}

// talk begins conversations so that so many requests run at once.
func (s *simulation) talk(running float64) {
	const meanThink = 10
	meanTurns := cmp.Or(s.meanTurns, 5.0)
	rps := running / meanService
	name := 0
	var begin func()
	begin = func() {
		name++
		t := &talkOf{head: *headOf(post("/", fmt.Sprint("x-session: ", name))), left: 1 + int(s.exponential(meanTurns-0.5)), think: meanThink}
		s.ask(t)
		s.after(s.exponential(meanTurns/rps), begin)
	}
	s.after(0, begin)
}

// ask sends a conversation's next turn through any Envoy.
func (s *simulation) ask(t *talkOf) {
	server := s.servers[s.random.IntN(len(s.servers))]
	if s.loyal {
		t.by = cmp.Or(t.by, server)
		server = t.by
	}
	r := &turn{of: t, server: server, arrived: s.now}
	r.exchange = exchange{table: server.table.Load(), head: t.head}
	server.settle(&r.exchange, facts{model: "small"}, nil)
	to := r.exchange.pick.id
	s.turns++
	if s.asked != nil {
		s.asked(t, to)
	}
	if t.last != "" {
		s.followUps++
		if t.last == to {
			s.kept++
		}
	}
	t.last = to
	t.said += meanTurn
	e := s.engines[to]
	if e.running < e.slots {
		s.start(e, r)
		return
	}
	e.queue = append(e.queue, r)
	s.longest = max(s.longest, len(e.queue))
}

func (s *simulation) start(e *simulated, r *turn) {
	e.running++
	s.waited += s.now - r.arrived
	s.after(s.service(), func() {
		e.running--
		r.server.leave(&r.exchange)
		if len(e.queue) > 0 {
			next := e.queue[0]
			e.queue = e.queue[1:]
			s.start(e, next)
		}
		if r.of.left--; r.of.left > 0 {
			s.after(s.exponential(r.of.think), func() { s.ask(r.of) })
		}
	})
}

// detours sums the counts of all weir-extprocs.
func (s *simulation) detours() (engine, pool, nowhere uint64) {
	for _, server := range s.servers {
		engine += server.counters.ToAnotherEngine.Load()
		pool += server.counters.ToAnotherPool.Load()
		nowhere += server.counters.NoRoom.Load()
	}
	return engine, pool, nowhere
}

// warmed lets a minute pass and returns what becomes of the requests in the next ones.
func (s *simulation) warmed(minutes float64) result {
	s.run(60)
	s.result = result{}
	s.run(60 * minutes)
	return s.result
}

const twentyUsed = 0.8 * 20 * simulatedSlots // requests that run at once at twenty engines

// Below saturation bounded load costs next to no stickiness, though the Envoys share
// nothing and hear late, and it shortens the queues.
func TestBoundedLoadKeepsConversations(t *testing.T) {
	t.Parallel()
	simulated := func(blind bool) (result, uint64) {
		s := simulate(7, 12, viewPool("pool", 1, 20))
		s.blind = blind
		s.talk(twentyUsed)
		r := s.warmed(8)
		engine, _, _ := s.detours()
		return r, engine
	}
	bounded, diverted := simulated(false)
	blind, none := simulated(true)
	t.Logf("bounded: %v, %d diverted; blind: %v", bounded, diverted, blind)
	if bounded.keptShare() < 0.95 || blind.kept != blind.followUps {
		t.Errorf("kept %.3f of follow-ups, want 0.95, and without levels all: %.3f", bounded.keptShare(), blind.keptShare())
	}
	if diverted == 0 || none != 0 || bounded.waited/float64(bounded.turns) > 0.7*blind.waited/float64(blind.turns) {
		t.Errorf("%d and %d diverted, queues of %.0f s and %.0f s: want it to have done something", diverted, none, bounded.waited, blind.waited)
	}
}

// One engine of twenty that has become slow keeps what it can do, and the conversations
// of the others stay.
func TestOneEngineBecomesSlow(t *testing.T) {
	t.Parallel()
	simulated := func(blind bool) result {
		s := simulate(8, 12, viewPool("pool", 1, 20))
		s.blind = blind
		s.talk(0.9 * twentyUsed)
		s.run(60)
		s.engines[s.view.Classes[0].Pools[0].Engines[0].ID].slots = simulatedSlots / 8
		return s.warmed(8)
	}
	bounded, blind := simulated(false), simulated(true)
	t.Logf("bounded: %v; blind: %v", bounded, blind)
	if bounded.keptShare() < 0.95 {
		t.Errorf("kept %.3f of follow-ups, want 0.95", bounded.keptShare())
	}
	if bounded.longest > 40 || blind.longest < 5*bounded.longest {
		t.Errorf("the longest queue is %d, without levels %d: want it short", bounded.longest, blind.longest)
	}
}

// A pool that is given a fifth more than it can do passes the excess on, not all of it
// and not back and forth.
func TestAFullPoolSpills(t *testing.T) {
	t.Parallel()
	simulated := func(blind bool) (result, float64) {
		s := simulate(9, 12, viewPool("amber", 8_000_000, 10), viewPool("blue", 2_000_000, 10))
		s.blind = blind
		s.talk(1.2 / 0.8 * 10 * simulatedSlots)
		r := s.warmed(8)
		_, other, _ := s.detours()
		return r, float64(other) / float64(r.turns)
	}
	bounded, spilt := simulated(false)
	blind, _ := simulated(true)
	t.Logf("bounded: %v, %.3f to the other pool; blind: %v", bounded, spilt, blind)
	if spilt < 0.05 || spilt > 0.35 || bounded.keptShare() < 0.7 {
		t.Errorf("%.3f went to the other pool, %.3f of follow-ups kept", spilt, bounded.keptShare())
	}
	if bounded.waited*4 > blind.waited {
		t.Errorf("%.0f s in queues, without levels %.0f s", bounded.waited, blind.waited)
	}
}

package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/zap"

	"weir/extproc"
	"weir/extproc/penalty"
	"weir/fleet"
	"weir/signals"
)

// loops are both loops around two pools of four engines: weir-extproc's penalties, and
// the control plane's plans. Everything that decides is real; engines are a delay.
type loops struct {
	t       *testing.T
	fleet   *fleet.Fleet
	tracker *signals.Tracker
	plan    *fleet.Plan
	server  *extproc.Server
	asks    extprocv3.ExternalProcessorClient
	book    *penalty.Book
	luck    *rand.Rand
	now     float64
	slow    map[fleet.EngineID]float64
	coming  map[int][]func()
	issued  map[fleet.PoolID]uint64
	load    map[fleet.EngineID]*fleet.EngineLoad
	total   uint64 // requests, of this report
	rounds  []round
}

// round is what was planned and done from one tick to the next.
type round struct {
	planned float64 // share of pool "near"
	health  float64 // of it, as the plan knows
	sent    map[fleet.EngineID]float64
	all     float64
}

const loopStep = 0.25

func newLoops(t *testing.T, rps float64) *loops {
	profile := fleet.Profile{
		CapacityRps: 10, Reference: fleet.Tokens{Prompt: 1000, Output: 100}, OutputTokenCost: 1,
		TTFT: fleet.Curve{{Utilisation: 0, Seconds: 0.1}, {Utilisation: 1, Seconds: 0.2}},
	}
	f := &fleet.Fleet{
		FrontEnds: []fleet.FrontEnd{{ID: "here", Listen: "127.0.0.1:1", Demand: map[fleet.ClassID]float64{"chat": rps}}},
		Classes: []fleet.Class{{
			ID: "chat", Match: []fleet.Rule{{Path: "/"}}, Tokens: profile.Reference,
			Affinity: []fleet.AffinityKey{{Kind: fleet.AffinityHeader, Name: "x-session"}},
		}},
		Network: fleet.Network{RoundTripSeconds: map[fleet.Link]float64{{FrontEnd: "here", Pool: "near"}: 0.002, {FrontEnd: "here", Pool: "far"}: 0.08}},
		Options: options(),
	}
	for i, id := range []fleet.PoolID{"far", "near"} {
		p := fleet.Pool{ID: id, Region: string(id), Profile: profile}
		for e := range 4 {
			p.Engines = append(p.Engines, fleet.EngineID(fmt.Sprintf("10.0.%d.%d:80", i, e)))
		}
		f.Pools = append(f.Pools, p)
	}
	server := extproc.New(zap.NewNop())
	l := &loops{
		t: t, fleet: f, tracker: signals.NewTracker(f), server: server, asks: serve(t, server), book: penalty.NewBook(),
		luck: rand.New(rand.NewPCG(3, 3)), slow: map[fleet.EngineID]float64{}, coming: map[int][]func(){},
		issued: map[fleet.PoolID]uint64{}, load: map[fleet.EngineID]*fleet.EngineLoad{},
	}
	engines := map[fleet.PoolID][]fleet.EngineID{}
	for _, p := range f.Pools {
		engines[p.ID] = p.Engines
	}
	l.book.Set(date(0), engines)
	for i := range 2 {
		l.now = float64(i)
		l.probe()
	}
	l.tick()
	return l
}

func (l *loops) probe() {
	for _, p := range l.fleet.Pools {
		for _, e := range p.Engines {
			l.tracker.ObserveProbe(date(l.now), signals.Probe{Pool: p.ID, Engine: e, Answered: true})
		}
	}
}

// run lets time pass.
func (l *loops) run(until, rps float64) {
	for ; l.now < until; l.now += loopStep {
		at := int(math.Round(l.now / loopStep))
		if at%4 == 0 {
			l.probe()
			l.report()
		}
		if at%8 == 0 {
			l.tick()
		}
		for n := l.luck.ExpFloat64(); n < rps*loopStep; n += l.luck.ExpFloat64() {
			l.send()
		}
		for _, happens := range l.coming[at] {
			happens()
		}
		delete(l.coming, at)
		l.book.Step(date(l.now))
		l.penalise()
	}
}

func (l *loops) penalise() {
	all := map[fleet.EngineID]float64{}
	for _, p := range l.book.Penalties() {
		all[p.Engine] = p.Value
	}
	l.server.SetPenalties(all)
}

// send has a request of a new conversation come.
func (l *loops) send() {
	pick, _ := asked(l.t, l.asks, fmt.Sprint("s-", l.luck.Uint64()), 0)
	e := fleet.EngineID(pick)
	if e == "" {
		l.t.Fatalf("second %.2f: a request is refused", l.now)
	}
	pool, r := l.poolOf(e), &l.rounds[len(l.rounds)-1]
	l.issued[pool]++
	l.total++
	r.sent[e]++
	r.all++
	ttft := 0.15 * max(1, l.slow[e]) * math.Exp(0.2*l.luck.NormFloat64())
	began, late := date(l.now), false
	if ttft > 1 {
		l.later(1.1, func() { late = l.book.Waiting(e, began, 1.1, true) })
	}
	l.later(ttft, func() {
		if !late {
			l.book.Time(e, penalty.FirstToken, began, ttft)
		}
		l.loadOf(e).TTFT.Observe(ttft)
	})
	l.later(ttft+0.5, func() {
		l.book.Outcome(e, began, fleet.Answered)
		l.loadOf(e).Outcomes[fleet.Answered]++
	})
}

func (l *loops) later(seconds float64, what func()) {
	at := int(math.Ceil((l.now + seconds) / loopStep))
	l.coming[at] = append(l.coming[at], what)
}

func (l *loops) loadOf(e fleet.EngineID) *fleet.EngineLoad {
	if l.load[e] == nil {
		l.load[e] = &fleet.EngineLoad{Engine: e}
	}
	return l.load[e]
}

func (l *loops) poolOf(e fleet.EngineID) fleet.PoolID {
	if e[5] == '0' {
		return "far"
	}
	return "near"
}

// report sends what an Envoy and its weir-extproc counted in a second.
func (l *loops) report() {
	own := fleet.ClassLoad{Class: "chat", Arrivals: l.total}
	its := fleet.ClassLoad{Class: "chat"}
	for _, p := range l.fleet.Pools {
		its.Pools = append(its.Pools, fleet.PoolLoad{Pool: p.ID, Issued: l.issued[p.ID]})
		seen := fleet.PoolLoad{Pool: p.ID}
		for _, e := range p.Engines {
			if l.load[e] != nil {
				seen.Engines = append(seen.Engines, *l.load[e])
			}
		}
		own.Pools = append(own.Pools, seen)
	}
	r := fleet.LoadReport{FrontEnd: "here", Node: "here-1", Interval: time.Second}
	envoys, extprocs := r, r
	envoys.Role, envoys.Classes = fleet.RoleEnvoy, []fleet.ClassLoad{its}
	extprocs.Role, extprocs.Classes, extprocs.Penalties = fleet.RoleExtProc, []fleet.ClassLoad{own}, l.book.Penalties()
	l.tracker.ObserveLoad(date(l.now), envoys)
	l.tracker.ObserveLoad(date(l.now), extprocs)
	l.total = 0
	clear(l.issued)
	clear(l.load)
}

// tick plans and publishes.
func (l *loops) tick() {
	s := l.tracker.State(date(l.now), l.plan)
	s.ElapsedSeconds = 2
	plan, err := optimal(s)
	if err != nil {
		l.t.Fatal(err)
	}
	l.plan = plan
	l.server.Swap(extproc.NewTable(fleet.NewView(s, plan, "here")))
	l.server.SwapLevels(fleet.NewLevels(s, plan, date(l.now)), 0)
	r := round{health: s.Health("near"), sent: map[fleet.EngineID]float64{}}
	for _, share := range plan.Routes[0].Shares {
		if share.Pool == "near" {
			r.planned = share.Share
		}
	}
	l.rounds = append(l.rounds, r)
}

// sums adds up rounds: what was planned for the near pool, what it got, and what one of
// its engines got, as parts of all.
func sums(rounds []round, e fleet.EngineID) (planned, pool, engine, all float64) {
	for _, r := range rounds {
		planned += r.planned * r.all
		all += r.all
		engine += r.sent[e]
		for id, n := range r.sent {
			if id[5] == '1' {
				pool += n
			}
		}
	}
	return planned / all, pool / all, engine / all, all
}

// An engine of a pool that is nearly full becomes ten times slower. Its traffic goes
// within seconds, the plan knows within two ticks, and what the pool can carry no more
// goes to the other one: once, not twice, and without swinging. When it is well again,
// all is as before.
func TestBothLoopsSettle(t *testing.T) {
	t.Parallel()
	const rps = 34
	l := newLoops(t, rps)
	sick := fleet.EngineID("10.0.1.0:80")
	roundsUntil := func(seconds float64) int { l.run(seconds, rps); return len(l.rounds) }
	began := roundsUntil(30)
	l.slow[sick] = 10
	fell := roundsUntil(30 + 5*2)
	recovers := roundsUntil(80)
	delete(l.slow, sick)
	settled := roundsUntil(80 + 30)
	end := roundsUntil(150)
	for i, r := range l.rounds {
		_, pool, engine, _ := sums(l.rounds[i:i+1], sick)
		t.Logf("tick %d: planned %.2f, health %.2f; the pool got %.2f, the engine %.3f", i, r.planned, r.health, pool, engine)
	}

	before, _, whole, _ := sums(l.rounds[began-5:began], sick)
	heard := began
	for heard < fell && l.rounds[heard].health > 0.9 {
		heard++
	}
	if heard > began+3 { // the slow first tokens show in the second tick
		t.Errorf("the plan hears of it in tick %d after it began", heard-began)
	}
	planned, pool, engine, n := sums(l.rounds[fell:recovers], sick)
	if engine > whole/5 {
		t.Errorf("the sick engine gets %.3f of all, before it was %.3f", engine, whole)
	}
	if z := (pool - planned) / math.Sqrt(planned*(1-planned)/n); math.Abs(z) > 4 {
		t.Errorf("the pool gets %.3f of all where %.3f is planned: z = %.1f", pool, planned, z)
	}
	if planned > before-0.05 {
		t.Errorf("the pool is planned to get %.3f of all, before it was %.3f", planned, before)
	}
	low, high := 1.0, 0.0
	for _, r := range l.rounds[fell:recovers] {
		low, high = min(low, r.planned), max(high, r.planned)
	}
	if high-low > 0.15 {
		t.Errorf("the plan swings from %.2f to %.2f", low, high)
	}
	after, _, again, m := sums(l.rounds[settled:end], sick)
	if math.Abs(after-before) > 0.05 {
		t.Errorf("in the end the pool is planned to get %.3f of all, before it was %.3f", after, before)
	}
	if noise := 3 * math.Sqrt(whole/m); again < 0.9*whole-noise {
		t.Errorf("in the end the engine gets %.3f of all, before it was %.3f", again, whole)
	}
}

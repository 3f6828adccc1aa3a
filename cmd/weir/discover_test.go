package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"weir/config"
	"weir/control"
	"weir/fleet"
	"weir/signals"
	"weir/signals/discover"
)

const foundFleet = `
frontEnds:
  - {name: A, listen: 127.0.0.1:10001, demand: {chat: 10 rps}}
pools:
  - {name: P, models: [m], engineType: vllm, engines: {file: /nowhere, drain: 5s}, profile: {capacity: 10 rps, ttft: 200ms}}
classes:
  - {name: chat, match: [{model: m}]}
network: {roundTrip: {A: {P: 5ms}}}
`

// newFound is a control plane, not running, of a pool whose engines are found.
func newFound(t *testing.T, state string) *plane {
	t.Helper()
	f, err := config.Parse("fleet.yaml", []byte(foundFleet))
	if err != nil {
		t.Fatal(err)
	}
	return newPlane("fleet.yaml", beginning{fleet: f, text: foundFleet}, state, zap.NewNop())
}

// hear has a source speak, as the loop would hear it.
func (p *plane) hear(now time.Time, engines ...fleet.EngineID) {
	source := *p.found.Pools[0].Discovery
	p.book.Observe(now, &discover.Answer{Pool: "P", Source: source, Engines: engines})
	p.useFound()
}

// round is what the loop does each round, but for planning.
func (p *plane) round(t *testing.T, now time.Time, plan *fleet.Plan) *fleet.State {
	t.Helper()
	s := p.state(now, plan)
	if err := p.publish(s, plan); err != nil {
		t.Fatal(err)
	}
	return s
}

func planOf(share float64) *fleet.Plan {
	return &fleet.Plan{Status: fleet.Optimal, Routes: []fleet.Route{{
		FrontEnd: "A", Class: "chat", DemandRps: 10, Shares: []fleet.Share{{Pool: "P", Share: share, Rps: 10 * share}},
	}}}
}

// Ten thousand generations of engines leave nothing behind: no goroutine, no series, no
// memory, nothing in what is believed or served.
func TestChurnLeavesNothingBehind(t *testing.T) {
	p := newFound(t, "")
	ctx, stop := context.WithCancel(t.Context())
	var running errgroup.Group
	running.Go(func() error { return p.prober.Run(ctx) })
	running.Go(func() error { return p.scraper.Run(ctx) })
	registry := prometheus.NewPedanticRegistry()
	check(t, errors.Join(p.book.Counters.RegisterMetrics(registry), discover.RegisterSources(registry, p.loop.Latest),
		p.server.RegisterMetrics(registry), p.tracker.Counters.RegisterMetrics(registry)))
	const generations, alive = 10_000, 8
	now := time.Now()
	turn := func(from, n int) {
		for g := range n {
			var engines []fleet.EngineID
			for i := range alive {
				k := from + g + i // each engine lives for eight generations
				engines = append(engines, fleet.EngineID(fmt.Sprintf("127.%d.%d.%d:1", 1+k/62500, k/250%250, 1+k%250)))
			}
			now = now.Add(time.Second)
			p.hear(now, engines...)
			for _, e := range engines {
				p.tracker.ObserveProbe(now, signals.Probe{Pool: "P", Engine: e})
			}
			if s := p.state(now, planOf(1)); g%20 == 0 { // to publish takes longer than all else
				check(t, p.publish(s, planOf(1)))
			}
		}
	}
	turn(0, 100)
	before := take(t, registry)
	turn(100, generations)
	now = now.Add(time.Minute) // those that left last are gone
	s := p.round(t, now, planOf(1))
	if n := len(s.Fleet.Pools[0].Engines); n != alive || len(s.Pools["P"].Engines) != alive {
		t.Errorf("%d engines in the fleet, %d in what is believed, want %d", n, len(s.Pools["P"].Engines), alive)
	}
	if n := len(s.Pools["P"].ReadySince) + len(s.Pools["P"].Signals.Engines); n > 2*alive {
		t.Errorf("%d engines are remembered by their age or metrics", n)
	}
	left := func() string { return before.less(take(t, registry)) }
	deadline := time.Now().Add(20 * time.Second)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for left() != "" && time.Now().Before(deadline) {
		<-again.C
	}
	if what := left(); what != "" {
		t.Errorf("after %d generations there is more than before: %s", generations, what)
	}
	stop()
	check(t, running.Wait())
}

// amounts are what a process holds.
type amounts struct {
	goroutines, series int
	heap               uint64
}

func take(t *testing.T, r *prometheus.Registry) amounts {
	t.Helper()
	families, err := r.Gather()
	check(t, err)
	series := 0
	for _, f := range families {
		series += len(f.Metric)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return amounts{runtime.NumGoroutine(), series, m.HeapAlloc}
}

// less says what there is more of later; noise of connections that end is allowed for.
func (a amounts) less(later amounts) string {
	const connections, heap = 16, 4 << 20
	if later.goroutines > a.goroutines+connections || later.series > a.series || later.heap > a.heap+heap {
		return fmt.Sprintf("%+v, before %+v", later, a)
	}
	return ""
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// After a restart pools have the engines that they had, whatever their sources do.
func TestFoundEnginesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	first := newFound(t, "")
	first.keeper = control.NewKeeper(control.Store{Dir: dir}, zap.NewNop())
	now := time.Now()
	first.hear(now, "127.0.0.2:1", "127.0.0.1:1")
	first.round(t, now, planOf(1))
	ended, end := context.WithCancel(t.Context())
	end()
	check(t, first.keeper.Run(ended)) // saves what is pending

	second := newFound(t, dir)
	want := []fleet.EngineID{"127.0.0.1:1", "127.0.0.2:1"}
	s := second.state(now, nil)
	if diff := cmp.Diff(want, s.Fleet.Pools[0].Engines); diff != "" || s.Fleet.Pools[0].Awaited {
		t.Errorf("engines after a restart (-want +got):\n%s", diff)
	}
	second.hear(now)
	if diff := cmp.Diff(want, second.state(now, nil).Fleet.Pools[0].Engines); diff != "" {
		t.Errorf("engines when the source names none (-want +got):\n%s", diff)
	}
	view, err := savedView(dir, "A")
	check(t, err)
	if n := len(view.Class("chat").Pools); n != 1 || len(view.Class("chat").Pools[0].Engines) != 2 {
		t.Errorf("a static bootstrap has %d pools, want one with both engines", n)
	}
}

// An engine that leaves is there until its requests have ended.
func TestEnding(t *testing.T) {
	open := map[fleet.EngineID]float64{"busy": 2}
	s := &fleet.State{Pools: map[fleet.PoolID]fleet.PoolState{"P": {
		Engines: map[fleet.EngineID]fleet.Readiness{"busy": fleet.Draining, "idle": fleet.Draining, "dead": fleet.Unready, "serves": fleet.Ready},
		Signals: fleet.PoolSignals{Open: open},
	}}}
	known := ending(s)
	for e, want := range map[fleet.EngineID]discover.Ending{
		"busy": discover.Busy, "idle": discover.Idle, "dead": discover.Unready, "serves": discover.Busy, "unheard of": discover.Busy,
	} {
		if got := known("P", e); got != want {
			t.Errorf("%s: %v, want %v", e, got, want)
		}
	}
	s.Pools["P"] = fleet.PoolState{Engines: s.Pools["P"].Engines}
	if got := known("P", "idle"); got != discover.Busy {
		t.Errorf("where nobody reports what is open: %v, want busy", got)
	}
	if got := ending(nil)("P", "idle"); got != discover.Busy {
		t.Errorf("before the first round: %v, want busy", got)
	}
}

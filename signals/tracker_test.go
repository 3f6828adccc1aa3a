package signals

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"weir/fleet"
)

// testFleet has two front-ends, two classes and two pools of two engines.
func testFleet() *fleet.Fleet {
	return &fleet.Fleet{
		FrontEnds: []fleet.FrontEnd{
			{ID: "east", Demand: map[fleet.ClassID]float64{"chat": 7}},
			{ID: "west"},
		},
		Pools: []fleet.Pool{
			{ID: "big", Engines: []fleet.EngineID{"10.0.0.1:80", "10.0.0.2:80"}},
			{ID: "small", Engines: []fleet.EngineID{"10.0.0.3:80", "10.0.0.4:80"}},
		},
		Classes: []fleet.Class{{ID: "chat"}, {ID: "batch"}},
	}
}

// feed reports on behalf of nodes, one second at a time.
type feed struct {
	*Tracker
	now time.Time
}

func newFeed() *feed { return &feed{NewTracker(testFleet()), epoch} }

// seconds lets some seconds pass with one report of each kind a second, and asks
// for the state every other second, as the loop does.
func (f *feed) seconds(n int, reports ...fleet.LoadReport) {
	for range n {
		f.now = f.now.Add(time.Second)
		for _, r := range reports {
			r.Interval = time.Second
			f.ObserveLoad(f.now, r)
		}
		if f.now.Unix()%2 == 0 {
			f.State(f.now, nil)
		}
	}
}

func (f *feed) demand(frontEnd fleet.FrontEndID, class fleet.ClassID) fleet.Demand {
	return f.State(f.now, nil).Demand[fleet.Stream{FrontEnd: frontEnd, Class: class}]
}

func arrivals(frontEnd fleet.FrontEndID, node string, chat uint64) fleet.LoadReport {
	return fleet.LoadReport{
		FrontEnd: frontEnd, Node: node, Role: fleet.RoleExtProc,
		Classes: []fleet.ClassLoad{{Class: "chat", Arrivals: chat}},
	}
}

func issued(frontEnd fleet.FrontEndID, node string, load fleet.PoolLoad) fleet.LoadReport {
	if load.Pool == "" {
		load.Pool = "big"
	}
	return fleet.LoadReport{
		FrontEnd: frontEnd, Node: node, Role: fleet.RoleEnvoy,
		Classes: []fleet.ClassLoad{{Class: "chat", Pools: []fleet.PoolLoad{load}}},
	}
}

func TestDemand(t *testing.T) {
	type D = fleet.Demand
	idle := fleet.LoadReport{FrontEnd: "east", Node: "a", Role: fleet.RoleExtProc}
	for _, c := range []struct {
		name string
		do   func(*feed)
		want fleet.Demand // of chat at east
	}{
		{"nothing heard: declared", func(f *feed) {}, D{Rps: 7, Source: fleet.SourceDeclared}},
		{"arrivals rule over what Envoy issued", func(f *feed) {
			f.seconds(5, arrivals("east", "a", 20), issued("east", "a", fleet.PoolLoad{Issued: 25}))
		}, D{Rps: 20, Source: fleet.SourceArrivals}},
		{"nodes add up", func(f *feed) {
			f.seconds(5, arrivals("east", "a", 20), arrivals("east", "b", 11), arrivals("west", "c", 100))
		}, D{Rps: 31, Source: fleet.SourceArrivals}},
		{"a class without an entry is idle", func(f *feed) {
			f.seconds(5, idle)
		}, D{Rps: 0, Source: fleet.SourceArrivals}},
		{"Envoy stands in from the start", func(f *feed) {
			f.seconds(5, issued("east", "a", fleet.PoolLoad{Issued: 25}))
		}, D{Rps: 25, Source: fleet.SourceEnvoy}},
		{"one node stands in beside another's arrivals", func(f *feed) {
			f.seconds(5, arrivals("east", "a", 20), issued("east", "a", fleet.PoolLoad{Issued: 20}),
				issued("east", "b", fleet.PoolLoad{Issued: 9}))
		}, D{Rps: 29, Source: fleet.SourceEnvoy}},
		{"a silent ext_proc is believed for 5 s", func(f *feed) {
			f.seconds(20, arrivals("east", "a", 30), issued("east", "a", fleet.PoolLoad{Issued: 20}))
			f.seconds(5, issued("east", "a", fleet.PoolLoad{Issued: 10}))
		}, D{Rps: 30, Source: fleet.SourceArrivals}},
		{"then Envoy stands in, corrected for what was shed", func(f *feed) {
			f.seconds(20, arrivals("east", "a", 30), issued("east", "a", fleet.PoolLoad{Issued: 20}))
			f.seconds(8, issued("east", "a", fleet.PoolLoad{Issued: 20}))
			f.seconds(16, issued("east", "a", fleet.PoolLoad{Issued: 10}))
		}, D{Rps: 15, Source: fleet.SourceEnvoy}},
		{"an ext_proc that is back rules again", func(f *feed) {
			f.seconds(20, issued("east", "a", fleet.PoolLoad{Issued: 20}))
			f.seconds(1, arrivals("east", "a", 18), issued("east", "a", fleet.PoolLoad{Issued: 20}))
		}, D{Rps: 18, Source: fleet.SourceArrivals}},
		{"an ext_proc that its Envoy does not ask does not rule", func(f *feed) {
			f.seconds(20, arrivals("east", "a", 20), issued("east", "a", fleet.PoolLoad{Issued: 20}))
			f.seconds(8, arrivals("east", "a", 0), issued("east", "a", fleet.PoolLoad{Issued: 20}))
		}, D{Rps: 20, Source: fleet.SourceEnvoy}},
		{"nor does it once it is asked again", func(f *feed) {
			f.seconds(20, arrivals("east", "a", 20), issued("east", "a", fleet.PoolLoad{Issued: 20}))
			f.seconds(8, arrivals("east", "a", 0), issued("east", "a", fleet.PoolLoad{Issued: 20}))
			f.seconds(4, arrivals("east", "a", 20), issued("east", "a", fleet.PoolLoad{Issued: 20}))
		}, D{Rps: 20, Source: fleet.SourceArrivals}},
		{"retries alone are no sign of that", func(f *feed) {
			f.seconds(20, arrivals("east", "a", 20), issued("east", "a", fleet.PoolLoad{Issued: 170}))
		}, D{Rps: 20, Source: fleet.SourceArrivals}},
		{"a node that leaves is left out", func(f *feed) {
			f.seconds(20, arrivals("east", "a", 20), arrivals("east", "b", 20))
			f.seconds(6, arrivals("east", "a", 40))
		}, D{Rps: 40, Source: fleet.SourceArrivals}},
		{"a silent front-end keeps its last value", func(f *feed) {
			f.seconds(20, arrivals("east", "a", 20), arrivals("west", "c", 5))
			f.seconds(60, arrivals("west", "c", 5))
		}, D{Rps: 20, Source: fleet.SourceArrivals}},
		{"for a minute", func(f *feed) {
			f.seconds(20, arrivals("east", "a", 20), arrivals("west", "c", 5))
			f.seconds(61, arrivals("west", "c", 5))
		}, D{Rps: 7, Source: fleet.SourceDeclared}},
		{"all silent: the last values hold", func(f *feed) {
			f.seconds(20, arrivals("east", "a", 20), arrivals("west", "c", 5))
			f.seconds(3600)
		}, D{Rps: 20, Source: fleet.SourceArrivals}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFeed()
			c.do(f)
			if diff := cmp.Diff(c.want, f.demand("east", "chat"), noDoubt); diff != "" {
				t.Errorf("demand (-want +got):\n%s", diff)
			}
		})
	}
}

// noDoubt leaves the doubt of demands to its own tests.
var noDoubt = cmp.Transformer("doubtless", func(d fleet.Demand) string {
	return fmt.Sprint(d.Rps, " ", d.Source)
})

func TestStateNamesEveryStreamAndEngine(t *testing.T) {
	s := newFeed().State(epoch, nil)
	if got, want := len(s.Demand), 4; got != want {
		t.Errorf("%d streams, want %d", got, want)
	}
	for i := range s.Fleet.Pools {
		if p := &s.Fleet.Pools[i]; len(s.Pools[p.ID].Engines) != len(p.Engines) {
			t.Errorf("pool %q: engines %v, want all of %v", p.ID, s.Pools[p.ID].Engines, p.Engines)
		}
	}
}

func TestStateMapsAreFresh(t *testing.T) {
	f := newFeed()
	s := f.State(epoch, nil)
	clear(s.Demand)
	clear(s.Pools["big"].Engines)
	if again := f.State(epoch, nil); len(again.Demand) != 4 || len(again.Pools["big"].Engines) != 2 {
		t.Errorf("changing one state changed the next: %v", again)
	}
}

func TestCountsOfWhatIsRefused(t *testing.T) {
	load := func(change func(*fleet.LoadReport)) func(*feed) {
		return func(f *feed) {
			r := arrivals("east", "a", 1000)
			r.Interval = time.Second
			change(&r)
			f.ObserveLoad(f.now, r)
		}
	}
	pool := func(l fleet.PoolLoad) func(*feed) {
		return load(func(r *fleet.LoadReport) { *r = issued("east", "a", l); r.Interval = time.Second })
	}
	refused := func(t *Tracker) uint64 { return t.Counters.ReportsRefused.Load() }
	for _, c := range []struct {
		name    string
		do      func(*feed)
		counter func(*Tracker) uint64
	}{
		{"no node", load(func(r *fleet.LoadReport) { r.Node = "" }), refused},
		{"no interval", load(func(r *fleet.LoadReport) { r.Interval = 0 }), refused},
		{"negative interval", load(func(r *fleet.LoadReport) { r.Interval = -time.Second }), refused},
		{"one request in a nanosecond", load(func(r *fleet.LoadReport) { r.Classes[0].Arrivals, r.Interval = 1, 1 }), refused},
		{"interval beyond any report's", load(func(r *fleet.LoadReport) { r.Classes[0].Arrivals, r.Interval = 1, minInterval-1 }), refused},
		{"more in a short interval than an Envoy can", load(func(r *fleet.LoadReport) { r.Classes[0].Arrivals, r.Interval = maxRps/100+1, minInterval }), refused},
		{"interval of a day", load(func(r *fleet.LoadReport) { r.Interval = 24 * time.Hour }), refused},
		{"arrivals of a wrapped counter", load(func(r *fleet.LoadReport) { r.Classes[0].Arrivals = math.MaxUint64 }), refused},
		{"shed of a wrapped counter", load(func(r *fleet.LoadReport) { r.Classes[0].Shed = math.MaxUint64 }), refused},
		{"issued of a wrapped counter", pool(fleet.PoolLoad{Issued: math.MaxUint64}), refused},
		{"failed of a wrapped counter", pool(fleet.PoolLoad{Failed: math.MaxUint64}), refused},
		{"in flight of a wrapped counter", pool(fleet.PoolLoad{InFlight: math.MaxUint64}), refused},
		{
			"unknown front-end", load(func(r *fleet.LoadReport) { r.FrontEnd = "north" }),
			func(t *Tracker) uint64 { return t.Counters.ReportsUnknown.Load() },
		},
		{
			"unknown class", load(func(r *fleet.LoadReport) { r.Classes[0].Class = "gone" }),
			func(t *Tracker) uint64 { return t.Counters.ClassesUnknown.Load() },
		},
		{
			"probe of an unknown pool", func(f *feed) { f.ObserveProbe(f.now, Probe{Pool: "gone"}) },
			func(t *Tracker) uint64 { return t.Counters.ProbesUnknown.Load() },
		},
		{
			"probe of an unknown engine", func(f *feed) { f.ObserveProbe(f.now, Probe{Pool: "big", Engine: "gone"}) },
			func(t *Tracker) uint64 { return t.Counters.ProbesUnknown.Load() },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFeed()
			c.do(f)
			if got := c.counter(f.Tracker); got != 1 {
				t.Errorf("counted %d, want 1", got)
			}
			if got := f.demand("east", "chat").Rps; got != 7 && got != 0 {
				t.Errorf("demand %v RPS rests on what was refused", got)
			}
		})
	}
}

func TestNodesAreCapped(t *testing.T) {
	f := newFeed()
	for i := range maxNodes + 3 {
		r := arrivals("east", fmt.Sprint(i), 1)
		r.Interval = time.Second
		f.ObserveLoad(f.now, r)
	}
	if got, want := f.demand("east", "chat").Rps, float64(maxNodes); got != want {
		t.Errorf("demand %v RPS, want %v", got, want)
	}
	if got := f.Counters.NodesRefused.Load(); got != 3 {
		t.Errorf("%d nodes refused, want 3", got)
	}
	f.seconds(15, arrivals("east", "0", 1)) // the others fall silent and make room
	f.seconds(1, arrivals("east", "0", 1), arrivals("east", "new", 1))
	if got, want := f.demand("east", "chat").Rps, 2.0; got != want {
		t.Errorf("demand %v RPS after the others left, want %v", got, want)
	}
}

var (
	errRefused = errors.New("connection refused")
	errBusy    = errors.New("health check answered 503, want 200")
)

// probe gives outcomes to an engine: + ready, - no answer, ! an answer that it is
// not ready.
func (f *feed) probe(p fleet.PoolID, e fleet.EngineID, outcomes string) {
	for _, o := range outcomes {
		switch o {
		case '+':
			f.ObserveProbe(f.now, Probe{Pool: p, Engine: e})
		case '-':
			f.ObserveProbe(f.now, Probe{Pool: p, Engine: e, Err: errRefused})
		case '!':
			f.ObserveProbe(f.now, Probe{Pool: p, Engine: e, Err: errBusy, Answered: true})
		}
	}
}

func TestReadinessOfOneEngine(t *testing.T) {
	for outcomes, want := range map[string]fleet.Readiness{
		"":         fleet.Unknown,
		"+":        fleet.Ready,
		"-":        fleet.Unready,
		"+-":       fleet.Ready,
		"+--":      fleet.Unready,
		"+-+-+-":   fleet.Ready,
		"+--+":     fleet.Unready,
		"+--++":    fleet.Ready,
		"-+":       fleet.Unready,
		"-++":      fleet.Ready,
		"+-----++": fleet.Ready,
	} {
		t.Run(outcomes, func(t *testing.T) {
			f := newFeed()
			var got fleet.Readiness
			for _, o := range outcomes {
				f.probe("big", "10.0.0.1:80", string(o))
				got = f.State(f.now, nil).Readiness("big", "10.0.0.1:80")
			}
			if got != want {
				t.Errorf("after %q: %v, want %v", outcomes, got, want)
			}
		})
	}
}

func TestReadinessDoesNotDependOnWhenItIsAsked(t *testing.T) {
	f := newFeed()
	f.probe("big", "10.0.0.1:80", "+-----++")
	if got := f.State(f.now, nil).Readiness("big", "10.0.0.1:80"); got != fleet.Ready {
		t.Errorf("asked once at the end: %v, want ready", got)
	}
}

func TestTrafficOutvotesProbes(t *testing.T) {
	type want map[fleet.EngineID]fleet.Readiness
	both := func(r fleet.Readiness) want { return want{"10.0.0.1:80": r, "10.0.0.2:80": r} }
	for _, c := range []struct {
		name    string
		load    fleet.PoolLoad
		a, b    string // probes before and after the load was reported
		after   int    // seconds from the report to the state
		want    want
		doubted bool
	}{
		{"all fail, requests are answered", fleet.PoolLoad{Issued: 10}, "+--", "+--", 1, both(fleet.Ready), true},
		{"all fail, answers are old", fleet.PoolLoad{Issued: 10}, "+--", "+--", 6, both(fleet.Unready), false},
		{"all fail, requests too", fleet.PoolLoad{Issued: 10, Failed: 10}, "+--", "+--", 1, both(fleet.Unready), false},
		{"all fail, requests hang", fleet.PoolLoad{Issued: 10, InFlight: 10}, "+--", "+--", 1, both(fleet.Unready), false},
		{"all fail, no requests", fleet.PoolLoad{}, "+--", "+--", 1, both(fleet.Unready), false},
		{
			"one fails, the other answers",
			fleet.PoolLoad{Issued: 10},
			"+--", "+++", 1,
			want{"10.0.0.1:80": fleet.Unready, "10.0.0.2:80": fleet.Ready},
			false,
		},
		{"all say that they are not ready", fleet.PoolLoad{Issued: 10}, "+!!", "+!!", 1, both(fleet.Unready), false},
		{"one does not answer, the other is not ready", fleet.PoolLoad{Issued: 10}, "+--", "+!!", 1, both(fleet.Unready), false},
		{"reached again, and not ready", fleet.PoolLoad{Issued: 10}, "+--!", "+--!", 1, both(fleet.Unready), false},
		{"the second is a probe behind", fleet.PoolLoad{Issued: 10}, "+--", "+-", 1, both(fleet.Ready), true},
		{
			"what was never ready stays unready",
			fleet.PoolLoad{Issued: 10},
			"-", "+--", 1,
			want{"10.0.0.1:80": fleet.Unready, "10.0.0.2:80": fleet.Ready},
			true,
		},
		{"another pool's traffic proves nothing", fleet.PoolLoad{Pool: "small", Issued: 10}, "+--", "+--", 1, both(fleet.Unready), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFeed()
			f.probe("big", "10.0.0.1:80", c.a)
			f.probe("big", "10.0.0.2:80", c.b)
			f.seconds(1, issued("east", "a", c.load))
			f.seconds(c.after)
			before := f.Counters.PoolsDoubted.Load()
			got := f.State(f.now, nil).Pools["big"].Engines
			if diff := cmp.Diff(map[fleet.EngineID]fleet.Readiness(c.want), got); diff != "" {
				t.Errorf("readiness (-want +got):\n%s", diff)
			}
			if doubted := f.Counters.PoolsDoubted.Load() > before; doubted != c.doubted {
				t.Errorf("counted as doubted: %v, want %v", doubted, c.doubted)
			}
		})
	}
}

func TestTheOnlyEngineIsBelieved(t *testing.T) {
	for outcomes, want := range map[string]fleet.Readiness{"+!!": fleet.Unready, "+--": fleet.Ready} {
		f := newFeed()
		alone := testFleet()
		alone.Pools[1].Engines = alone.Pools[1].Engines[:1]
		f.SetFleet(alone)
		f.probe("small", "10.0.0.3:80", outcomes)
		f.seconds(1, issued("east", "a", fleet.PoolLoad{Pool: "small", Issued: 10}))
		if got := f.State(f.now, nil).Readiness("small", "10.0.0.3:80"); got != want {
			t.Errorf("after %q and answered requests: %v, want %v", outcomes, got, want)
		}
	}
}

func TestRequestsThatEndAreAnswers(t *testing.T) {
	f := newFeed()
	f.probe("big", "10.0.0.1:80", "+--")
	f.probe("big", "10.0.0.2:80", "+--")
	f.seconds(1, issued("east", "a", fleet.PoolLoad{Issued: 10, InFlight: 10}))
	f.seconds(1, issued("east", "a", fleet.PoolLoad{InFlight: 4}))
	if got := f.State(f.now, nil).Readiness("big", "10.0.0.1:80"); got != fleet.Ready {
		t.Errorf("six requests ended well, engine %v, want ready", got)
	}
}

func TestSetFleetKeepsWhatStillApplies(t *testing.T) {
	f := newFeed()
	f.seconds(20, arrivals("east", "a", 20), arrivals("west", "c", 5))
	f.probe("big", "10.0.0.1:80", "+")
	f.probe("small", "10.0.0.3:80", "-")
	next := testFleet()
	next.FrontEnds = append(next.FrontEnds[:1], fleet.FrontEnd{ID: "north", Demand: map[fleet.ClassID]float64{"chat": 2}})
	next.Classes = []fleet.Class{{ID: "chat"}, {ID: "code"}}
	next.FrontEnds[0].Demand["code"] = 3
	next.Pools[0].Engines = []fleet.EngineID{"10.0.0.1:80", "10.0.0.9:80"}
	next.Pools = next.Pools[:1]
	f.SetFleet(next)
	s := f.State(f.now, nil)
	wantDemand := map[fleet.Stream]fleet.Demand{
		{FrontEnd: "east", Class: "chat"}:  {Rps: 20, Source: fleet.SourceArrivals},
		{FrontEnd: "east", Class: "code"}:  {Rps: 3, Source: fleet.SourceDeclared},
		{FrontEnd: "north", Class: "chat"}: {Rps: 2, Source: fleet.SourceDeclared},
		{FrontEnd: "north", Class: "code"}: {Rps: 0, Source: fleet.SourceDeclared},
	}
	if diff := cmp.Diff(wantDemand, s.Demand, noDoubt); diff != "" {
		t.Errorf("demand (-want +got):\n%s", diff)
	}
	wantPools := map[fleet.PoolID]fleet.PoolState{"big": {Engines: map[fleet.EngineID]fleet.Readiness{
		"10.0.0.1:80": fleet.Ready, "10.0.0.9:80": fleet.Unknown,
	}}}
	if diff := cmp.Diff(wantPools, s.Pools, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

// TestStateIsAlwaysSound throws anything at the tracker: demand stays finite and
// bounded, every stream is named, and asking twice gives the same answer.
func TestStateIsAlwaysSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFeed()
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			f.now = f.now.Add(time.Duration(rapid.IntRange(-100, 20_000).Draw(t, "ms")) * time.Millisecond)
			if rapid.Bool().Draw(t, "probe") {
				f.ObserveProbe(f.now, anyProbe(t))
			} else {
				f.ObserveLoad(f.now, anyReport(t))
			}
			s := f.State(f.now, nil)
			for _, fe := range s.Fleet.FrontEnds {
				for _, c := range s.Fleet.Classes {
					d, ok := s.Demand[fleet.Stream{FrontEnd: fe.ID, Class: c.ID}]
					if !ok || !(d.Rps >= 0 && d.Rps <= 2*maxRps*maxCorrection*maxNodes) || d.Source == "" {
						t.Fatalf("demand of %s at %s: %+v", c.ID, fe.ID, d)
					}
				}
			}
			if diff := cmp.Diff(s, f.State(f.now, nil)); diff != "" {
				t.Fatalf("state asked twice:\n%s", diff)
			}
		}
	})
}

// TestAskingTwiceChangesNothing lets nodes jump and fall silent at different
// moments, so that the company in which a window is judged for a jump changes.
func TestAskingTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFeed()
		rps := rapid.SampledFrom([]uint64{0, 3, 10, 40})
		for range rapid.IntRange(4, 12).Draw(t, "phases") {
			var reports []fleet.LoadReport
			for _, node := range []string{"a", "b", "c"} {
				if rapid.Bool().Draw(t, "ext_proc speaks") {
					reports = append(reports, arrivals("east", node, rps.Draw(t, "arrivals")))
				}
				if rapid.Bool().Draw(t, "Envoy speaks") {
					reports = append(reports, issued("east", node, fleet.PoolLoad{Issued: rps.Draw(t, "issued")}))
				}
			}
			for range rapid.IntRange(1, 8).Draw(t, "seconds") {
				f.seconds(1, reports...)
				first := f.State(f.now, nil)
				if diff := cmp.Diff(first, f.State(f.now, nil)); diff != "" {
					t.Fatalf("state asked twice:\n%s", diff)
				}
			}
		}
	})
}

func anyProbe(t *rapid.T) Probe {
	p := Probe{
		Pool:   fleet.PoolID(rapid.SampledFrom([]string{"big", "small", "gone"}).Draw(t, "pool")),
		Engine: fleet.EngineID(rapid.SampledFrom([]string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"}).Draw(t, "engine")),
	}
	if rapid.Bool().Draw(t, "failed") {
		p.Err = errRefused
		p.Answered = rapid.Bool().Draw(t, "answered")
	}
	return p
}

func anyReport(t *rapid.T) fleet.LoadReport {
	count := rapid.OneOf(rapid.Uint64Range(0, 100), rapid.Uint64())
	r := fleet.LoadReport{
		FrontEnd: fleet.FrontEndID(rapid.SampledFrom([]string{"east", "west", "gone"}).Draw(t, "front-end")),
		Node:     rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "node"),
		Role:     rapid.SampledFrom([]fleet.Role{fleet.RoleEnvoy, fleet.RoleExtProc, ""}).Draw(t, "role"),
		Interval: time.Duration(rapid.OneOf(rapid.Int64Range(1, 5e9), rapid.Int64()).Draw(t, "interval")),
	}
	for range rapid.IntRange(0, 3).Draw(t, "classes") {
		r.Classes = append(r.Classes, fleet.ClassLoad{
			Class:    fleet.ClassID(rapid.SampledFrom([]string{"chat", "batch", "gone"}).Draw(t, "class")),
			Arrivals: count.Draw(t, "arrivals"),
			Pools: []fleet.PoolLoad{{
				Pool:   fleet.PoolID(rapid.SampledFrom([]string{"big", "gone"}).Draw(t, "to")),
				Issued: count.Draw(t, "issued"), Failed: count.Draw(t, "failures"), InFlight: count.Draw(t, "in flight"),
			}},
		})
	}
	return r
}

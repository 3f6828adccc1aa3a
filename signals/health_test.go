package signals

import (
	"math"
	"testing"
	"time"

	"weir/fleet"
)

// met is a report of a weir-extproc that has met engines of the pool "big" with so many
// requests each, and penalises some.
func met(frontEnd fleet.FrontEndID, node string, each uint64, penalties ...fleet.Penalty) fleet.LoadReport {
	load := fleet.PoolLoad{Pool: "big"}
	for _, e := range testFleet().Pool("big").Engines {
		if each > 0 {
			load.Engines = append(load.Engines, fleet.EngineLoad{Engine: e, Outcomes: fleet.Outcomes{fleet.Answered: each}})
		}
	}
	return fleet.LoadReport{
		FrontEnd: frontEnd, Node: node, Role: fleet.RoleExtProc, Penalties: penalties,
		Classes: []fleet.ClassLoad{{Class: "chat", Pools: []fleet.PoolLoad{load}}},
	}
}

func penalised(e fleet.EngineID, value float64) fleet.Penalty {
	return fleet.Penalty{Pool: "big", Engine: e, Value: value, Fault: "server_error"}
}

// A pool's health is the mean over its engines of what their front-ends' penalties leave,
// each by the requests that it sends there. Who sends none is not asked, and where nobody
// knows nothing is believed.
func TestHealth(t *testing.T) {
	first := testFleet().Pool("big").Engines[0]
	n := float64(len(testFleet().Pool("big").Engines))
	one := func(health float64) float64 { return math.Round(100*(n-1+health)/n) / 100 }
	for _, c := range []struct {
		name    string
		reports []fleet.LoadReport
		want    float64 // 0: unknown
	}{
		{"nobody tells", nil, 0},
		{"nobody sends anything", []fleet.LoadReport{met("east", "a", 0)}, 0},
		{"nobody sends anything, and one remembers", []fleet.LoadReport{met("east", "a", 0, penalised(first, 0.1))}, 0},
		{"all is well", []fleet.LoadReport{met("east", "a", 10)}, 1},
		{"one penalises one", []fleet.LoadReport{met("east", "a", 10, penalised(first, 0.1))}, one(0.1)},
		{"another does not", []fleet.LoadReport{met("east", "a", 10, penalised(first, 0.1)), met("west", "b", 10)}, one(0.55)},
		{"it sends three times as much", []fleet.LoadReport{met("east", "a", 10, penalised(first, 0.1)), met("east", "b", 30)}, one(0.775)},
		{"another sends nothing", []fleet.LoadReport{met("east", "a", 10, penalised(first, 0.1)), met("west", "b", 0)}, one(0.1)},
		{"an engine that the pool does not have", []fleet.LoadReport{met("east", "a", 10, penalised("10.9.9.9:80", 0.1))}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFeed()
			f.seconds(20, c.reports...)
			if got := f.State(f.now, nil).Pools["big"].Health; got != c.want {
				t.Errorf("health %v, want %v", got, c.want)
			}
		})
	}
}

// At night a pool is as well as by day: that few of its engines are met does not make
// the penalty of one the health of all.
func TestHealthAtNight(t *testing.T) {
	engines := testFleet().Pool("big").Engines
	n := float64(len(engines))
	f := newFeed()
	sick := penalised(engines[0], 0.05)
	f.seconds(20, met("east", "a", 10, sick))
	night := met("east", "a", 1, sick)
	night.Classes[0].Pools[0].Engines = night.Classes[0].Pools[0].Engines[:1]
	want := math.Round(100*(n-1+0.05)/n) / 100
	for range 120 {
		f.seconds(1, night)
		if got := f.State(f.now, nil).Pools["big"].Health; got != want {
			t.Fatalf("health %v at %v, want %v", got, f.now, want)
		}
	}
	f.seconds(120, met("east", "a", 0, sick))
	if got := f.State(f.now, nil).Pools["big"].Health; got != 0 {
		t.Errorf("health %v of a pool that nobody sends anything, want none", got)
	}
}

// Health follows penalties with the next state, and who falls silent is not asked.
func TestHealthFollows(t *testing.T) {
	first := testFleet().Pool("big").Engines[0]
	f := newFeed()
	sick, well := met("east", "a", 10, penalised(first, 0.05)), met("east", "a", 10)
	health := func() float64 { return f.State(f.now, nil).Pools["big"].Health }
	f.seconds(10, well)
	f.seconds(1, sick)
	if got := health(); got == 1 {
		t.Error("a penalty is not heard of within a second")
	}
	if got := f.State(f.now, nil).Pools["big"].Signals.Penalties; len(got) != 1 || got[0].Node != "a" || got[0].FrontEnd != "east" || got[0].Engine != first {
		t.Errorf("penalties %+v", got)
	}
	f.seconds(1, well)
	if got := health(); got != 1 {
		t.Errorf("health %v a second after the penalty", got)
	}
	f.seconds(1, sick)
	f.now = f.now.Add(clientSilent + time.Second)
	if got := health(); got != 0 {
		t.Errorf("health %v, though nobody speaks", got)
	}
}

// What is priced as health is not held against the profile, too: first tokens of
// penalised engines do not count, and the others are loaded more.
func TestHealthIsNotCountedTwice(t *testing.T) {
	first := testFleet().Pool("big").Engines[0]
	for _, penalises := range []bool{false, true} {
		f := newFeed()
		r := met("east", "a", 10)
		engines := r.Classes[0].Pools[0].Engines
		for i := range engines {
			for range 10 {
				engines[i].TTFT.Observe(map[bool]float64{true: 9, false: 0.1}[engines[i].Engine == first])
			}
		}
		if penalises {
			r.Penalties = []fleet.Penalty{penalised(first, 0.05)}
		}
		f.seconds(20, r, issued("east", "a", fleet.PoolLoad{Issued: 30}))
		p := f.State(f.now, nil).Pools["big"]
		if slow := p.Signals.TTFTSeconds.Value > 1; slow == penalises {
			t.Errorf("penalised %v: the pool's first tokens take %v s", penalises, p.Signals.TTFTSeconds.Value)
		}
		if !penalises {
			continue
		}
		all := newFeed()
		all.seconds(20, met("east", "a", 10), issued("east", "a", fleet.PoolLoad{Issued: 30}))
		whole := all.State(all.now, nil).Pools["big"].Signals.Load.Value
		if got := p.Signals.Load.Value; math.Abs(got-whole/p.Health) > 1e-9 || p.Health >= 1 {
			t.Errorf("a load of %v at a health of %v, and %v at 1", got, p.Health, whole)
		}
	}
}

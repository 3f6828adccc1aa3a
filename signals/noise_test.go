package signals

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"weir/fleet"
)

// Demand is stated with the error that it really has, one node or many, busy or not;
// save what false alarms of jumps add, when most of a window is forgotten by chance.
func TestDemandStatesItsNoise(t *testing.T) {
	for _, c := range []struct {
		name    string
		rps     float64
		clients int
		ticks   int
		want    float64
	}{
		{"a busy front-end", 200, 1, 8, 1.12},
		{"many nodes", 60, 12, 8, 1.12},
		{"a few requests a second", 3, 2, 8, 1.12},
		{"after two seconds", 50, 2, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all calibration
			for seed := range uint64(1500) {
				clients := simulate(seed, c.clients)
				for range c.ticks {
					tick(clients, c.rps)
				}
				all.add(mean(windowsOf(clients))-c.rps, noise(windowsOf(clients)))
			}
			all.check(t, c.want)
		})
	}
}

// Clients that come in bursts make demand less certain, and it says so, but for what
// it takes on trust from Poisson.
func TestBurstsAreNoise(t *testing.T) {
	const burst, rps, reports, lives = 9, 90, 10, 2000
	var misses, stated float64
	for seed := range uint64(lives) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w, now := &window{}, epoch
		for range reports {
			now = now.Add(time.Second)
			w.add(sample{now, time.Second, burst * poisson(rng, rps/burst)})
		}
		said := noise([]*window{w})
		misses += math.Pow(mean([]*window{w})-rps, 2)
		stated += said.Value * said.Value
	}
	want := (priorReports + burst*(reports-1.0)) / (priorReports + reports - 1) / burst
	// A sum of so many squares is within √(2 / lives) of itself, and so is the other.
	if got, most := stated/misses, 4*want*math.Sqrt(4.0/lives); math.Abs(got-want) > most {
		t.Errorf("stated² / miss² = %.3f, want %.3f ± %.3f", got, want, most)
	}
}

func TestNoiseOfNothing(t *testing.T) {
	if got := noise(nil); got != (fleet.StdErr{}) {
		t.Errorf("without a window %+v, want it unknown", got)
	}
	w := &window{{epoch, 10 * time.Second, 0}}
	if got, want := noise([]*window{w}), math.Sqrt(0.5)/10; !got.Known || !near(got.Value, want, 1e-9) {
		t.Errorf("none in ten seconds: %+v, want %v", got, want)
	}
}

// What the tracker believes of the network, of sizes and of a pool's speed scatters
// from one life to the next as much as it says.
func TestBeliefsStateTheirNoise(t *testing.T) {
	const lives = 1000
	link := fleet.Link{FrontEnd: "east", Pool: "big"}
	beliefs := map[string]func(s *fleet.State) (float64, fleet.StdErr){
		"round trip": func(s *fleet.State) (float64, fleet.StdErr) {
			noise, known := s.NetworkNoise[link]
			return s.Network[link], fleet.StdErr{Value: noise, Known: known}
		},
		"prompt": func(s *fleet.State) (float64, fleet.StdErr) {
			return s.Tokens["chat"].Mean.Prompt, s.Tokens["chat"].PromptStdErr
		},
		"output": func(s *fleet.State) (float64, fleet.StdErr) {
			return s.Tokens["chat"].Mean.Output, s.Tokens["chat"].OutputStdErr
		},
		"TTFT": func(s *fleet.State) (float64, fleet.StdErr) {
			r := s.Pools["big"].Signals.TTFTSeconds
			return r.Value, r.StdErr
		},
		"TBT": func(s *fleet.State) (float64, fleet.StdErr) {
			r := s.Pools["big"].Signals.TBTSeconds
			return r.Value, r.StdErr
		},
		"TTFT of an engine": func(s *fleet.State) (float64, fleet.StdErr) {
			r := s.Pools["big"].Signals.Seen["10.0.0.1:80"].TTFTSeconds
			return r.Value, r.StdErr
		},
		"TTFT of an engine by its page": func(s *fleet.State) (float64, fleet.StdErr) {
			r := s.Pools["big"].Signals.Engines["10.0.0.1:80"].TTFTSeconds
			return r.Value, r.StdErr
		},
	}
	said := map[string][]float64{}
	stated := map[string][]fleet.StdErr{}
	for seed := range uint64(lives) {
		s := noisyLife(rand.New(rand.NewPCG(seed, 4)), fleet.Options{})
		for name, belief := range beliefs {
			value, err := belief(s)
			said[name], stated[name] = append(said[name], value), append(stated[name], err)
		}
	}
	for name := range beliefs {
		t.Run(name, func(t *testing.T) {
			var all calibration
			sum := 0.0
			for _, x := range said[name] {
				sum += x
			}
			for i, x := range said[name] {
				all.add(x-sum/lives, stated[name][i])
			}
			all.check(t, 1)
		})
	}
}

// Where what is declared rules, there is no noise, whatever is measured.
func TestADeclaredFleetStandsStill(t *testing.T) {
	s := noisyLife(rand.New(rand.NewPCG(9, 9)), fleet.Options{DeclaredOnly: true})
	want := fleet.Demand{Rps: 7, Source: fleet.SourceDeclared}
	if got := s.Demand[fleet.Stream{FrontEnd: "east", Class: "chat"}]; got != want {
		t.Errorf("demand %+v, want %+v", got, want)
	}
	if len(s.Tokens) > 0 || s.CapacityFactor("big") != 1 {
		t.Errorf("sizes %v and factor %v, want what is declared", s.Tokens, s.CapacityFactor("big"))
	}
	if got := s.RoundTripNoise(fleet.Link{FrontEnd: "east", Pool: "big"}); got != 0 {
		t.Errorf("a noise of %v s of a round trip that is declared", got)
	}
}

// noisyLife is a minute of a tracker that hears of one pool, at four requests a second.
func noisyLife(rng *rand.Rand, o fleet.Options) *fleet.State {
	f := serviceFleet()
	f.Options = o
	f.Class("chat").Tokens = fleet.Tokens{Prompt: 500, Output: 500}
	tracker, now := NewTracker(f), epoch
	for second := range 60 {
		now = now.Add(time.Second)
		n := uint64(poisson(rng, 4))
		e := fleet.EngineLoad{Engine: "10.0.0.1:80"}
		tokens := fleet.TokenLoad{Requests: n}
		for range n {
			e.TTFT.Observe(0.1 + timed(rng, 0.3))
			e.TBT.Observe(timed(rng, 0.02))
			tokens.Prompt += timed(rng, 2000)
			tokens.Output += timed(rng, 100)
		}
		r := fleet.LoadReport{
			FrontEnd: "east", Node: "a", Role: fleet.RoleExtProc, Interval: time.Second,
			Classes: []fleet.ClassLoad{{Class: "chat", Arrivals: n, Tokens: tokens, Pools: []fleet.PoolLoad{{Pool: "big", Engines: []fleet.EngineLoad{e}}}}},
		}
		if second%6 == 0 {
			r.RoundTrips = []fleet.RoundTrip{{Pool: "big", Count: 1, Seconds: 0.04 + 0.002*rng.NormFloat64()}}
		}
		tracker.ObserveLoad(now, r)
		tracker.ObserveSample(pageOf(now, &e.TTFT))
	}
	return tracker.State(now, nil)
}

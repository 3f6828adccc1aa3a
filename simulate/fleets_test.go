package simulate

import (
	"fmt"
	"math"
	"time"

	"weir/fleet"
)

// scenario is a fleet and what is asked of it.
type scenario struct {
	name    string
	fleet   *fleet.Fleet
	engines map[fleet.PoolID]Engine
	mix     Mix
	traffic traffic
	seconds float64
}

// warmUp is the time that the loop gets to find its way, seconds.
const warmUp = 60

// config is the scenario under a seed.
func (s *scenario) config(seed uint64) (Config, error) {
	w, err := s.traffic.of(s.mix, 0, seed)
	return Config{
		Fleet: s.fleet, Engines: s.engines, Workload: w, Seed: seed,
		Seconds: s.seconds, WarmUpSeconds: warmUp, DrainSeconds: 600,
		Delays: Delays{NetworkNoise: 0.05, ControlWay: 0.05, Planning: 0.02},
	}, err
}

func options() fleet.Options {
	return fleet.Options{
		Policy: "optimal", Tick: 2 * time.Second, Headroom: 0.1, ChurnSeconds: 0.005, ChurnHalving: time.Minute, MinShare: 0.001,
	}
}

// addPool adds a pool of n machines.
func (s *scenario) addPool(id fleet.PoolID, region string, m machine, n int) {
	p := fleet.Pool{ID: id, Region: region, Models: []string{"m"}, EngineType: "vllm", Profile: m.profile}
	for i := range n {
		p.Engines = append(p.Engines, fleet.EngineID(fmt.Sprintf("10.0.%d.%d:8000", len(s.fleet.Pools), i)))
	}
	s.fleet.Pools = append(s.fleet.Pools, p)
	s.engines[id] = m.Engine
}

// ask adds the demand of a class at the front-end that was added last.
func (s *scenario) ask(class int, rps, phase, swing float64) {
	i := len(s.fleet.FrontEnds) - 1
	fe := &s.fleet.FrontEnds[i]
	if fe.Demand == nil {
		fe.Demand = map[fleet.ClassID]float64{}
	}
	fe.Demand[s.fleet.Classes[class].ID] = rps
	s.mix.Sources = append(s.mix.Sources, Source{FrontEnd: i, Class: class, Rps: rps, Phase: phase, Swing: swing})
}

func newScenario(name string, k traffic, seconds float64, classes ...fleet.Class) *scenario {
	for i := range classes {
		classes[i].Requires.Models = []string{"m"}
		classes[i].Weights = fleet.LatencyWeight{TTFT: 1, TBT: 1}
	}
	return &scenario{
		name: name + ", " + k.name, traffic: k, seconds: seconds, engines: map[fleet.PoolID]Engine{},
		fleet: &fleet.Fleet{
			Classes: classes, Options: options(), Network: fleet.Network{Measured: true, RoundTripSeconds: map[fleet.Link]float64{}},
		},
	}
}

// theTalk is the talk's example: A is asked for 90 % of what its pool can do, B for 120
// of 100, C for 40 of 80. Rates are scaled so that pool A's 100 are what its engines do
// of this traffic.
func theTalk(k traffic, seconds float64) (*scenario, error) {
	s := newScenario("talk", k, seconds, fleet.Class{ID: "chat"})
	s.fleet.Options.Headroom = 0 // the talk's numbers leave none at B
	weaker := talkGPU
	weaker.CapacityRps *= 0.8
	large, err := k.fitted(talkGPU, 5*talkGPU.CapacityRps)
	if err != nil {
		return nil, err
	}
	small, err := k.fitted(weaker, 5*talkGPU.CapacityRps)
	if err != nil {
		return nil, err
	}
	s.addPool("A", "one", large, 2)
	s.addPool("B", "two", large, 2)
	s.addPool("C", "three", small, 2)
	s.fleet.Classes[0].Tokens = large.profile.Reference
	for _, fe := range []struct {
		id   fleet.FrontEndID
		rps  float64
		trip [3]float64 // seconds
	}{
		{"A", 90, [3]float64{0.002, 0.080, 0.120}},
		{"B", 120, [3]float64{0.080, 0.002, 0.060}},
		{"C", 40, [3]float64{0.120, 0.060, 0.002}},
	} {
		s.fleet.FrontEnds = append(s.fleet.FrontEnds, fleet.FrontEnd{ID: fe.id})
		s.ask(0, fe.rps/50*large.profile.CapacityRps, 0, 0)
		for j, trip := range fe.trip {
			s.fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: fe.id, Pool: s.fleet.Pools[j].ID}] = trip
		}
	}
	return s, nil
}

// region is a place with a front-end and a pool.
type region struct {
	name      string
	continent string
	lat, lon  float64 // degrees
	gpu       Engine
	engines   int
	asked     float64 // of what its own pool can do
}

// regions are asked for more than they have in five places, and for less in the
// others; 70 % of all there is.
var regions = []region{
	{"dublin", "eu", 53.3, -6.3, a100, 4, 0.60},
	{"frankfurt", "eu", 50.1, 8.7, h100, 3, 1.10},
	{"iowa", "na", 41.6, -93.6, h100, 4, 0.30},
	{"montreal", "na", 45.5, -73.6, a100, 4, 0.40},
	{"mumbai", "asia", 19.1, 72.9, l40s, 4, 1.50},
	{"oregon", "na", 45.8, -119.7, h100, 3, 0.60},
	{"paris", "eu", 48.9, 2.4, h100, 2, 0.70},
	{"saopaulo", "sa", -23.5, -46.6, l40s, 5, 1.20},
	{"singapore", "asia", 1.4, 103.8, a100, 4, 1.10},
	{"stockholm", "eu", 59.3, 18.1, a100, 5, 0.25},
	{"tokyo", "asia", 35.7, 139.7, h100, 3, 0.60},
	{"virginia", "na", 38.9, -77.5, b200, 2, 1.05},
}

// trip is the round trip between two regions in seconds: light in glass on a way 1.4
// times the shortest, and 2 ms in buildings. Virginia–Frankfurt comes to 93 ms.
func (r *region) trip(to *region) float64 {
	const (
		earth = 6371.0    // km
		light = 200_000.0 // km/s
		rad   = math.Pi / 180
	)
	a := math.Pow(math.Sin((to.lat-r.lat)*rad/2), 2) +
		math.Cos(r.lat*rad)*math.Cos(to.lat*rad)*math.Pow(math.Sin((to.lon-r.lon)*rad/2), 2)
	return 0.002 + 2*1.4*2*earth*math.Asin(math.Sqrt(a))/light
}

// theWorld is twelve regions on four continents with four kinds of engines. A third of
// what Europeans ask must stay in Europe. The day takes 20 minutes, and demand swings
// by a fifth with the sun.
func theWorld(k traffic, seconds float64) (*scenario, error) {
	s := newScenario("world", k, seconds, fleet.Class{ID: "chat"}, fleet.Class{ID: "chat-eu", Requires: fleet.Requirements{Regions: []string{"eu"}}})
	s.mix.Day = 1200
	machines := map[float64]machine{}
	for i := range regions {
		r := &regions[i]
		m, known := machines[r.gpu.CapacityRps]
		if !known {
			var err error
			if m, err = k.fitted(r.gpu, 170); err != nil {
				return nil, err
			}
			machines[r.gpu.CapacityRps] = m
		}
		s.addPool(fleet.PoolID(r.name), r.continent, m, r.engines)
		s.fleet.Classes[0].Tokens, s.fleet.Classes[1].Tokens = m.profile.Reference, m.profile.Reference
	}
	for i := range regions {
		r := &regions[i]
		id := fleet.FrontEndID(r.name)
		s.fleet.FrontEnds = append(s.fleet.FrontEnds, fleet.FrontEnd{ID: id})
		rps := r.asked * float64(r.engines) * machines[r.gpu.CapacityRps].profile.CapacityRps
		if r.continent == "eu" {
			s.ask(1, rps/3, r.lon/360, 0.2)
			rps *= 2.0 / 3
		}
		s.ask(0, rps, r.lon/360, 0.2)
		for j := range regions {
			s.fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: id, Pool: fleet.PoolID(regions[j].name)}] = r.trip(&regions[j])
		}
	}
	return s, nil
}

// used is what is asked of all that the fleet's engines can do.
func (s *scenario) used() float64 {
	can := 0.0
	for i := range s.fleet.Pools {
		p := &s.fleet.Pools[i]
		can += float64(len(p.Engines)) * p.Profile.CapacityRps
	}
	return s.mix.Rps() / can
}

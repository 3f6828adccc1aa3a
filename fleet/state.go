package fleet

import "time"

// State is what is believed at one moment: the whole input of a plan, the
// previous plan included, so that the same state gives the same plan.
type State struct {
	Fleet   *Fleet
	Demand  map[Stream]Demand
	Pools   map[PoolID]PoolState // a missing pool is one that nothing is known of
	Network map[Link]float64     // measured round trips in seconds; a missing link has its declared one
	// NetworkNoise holds the standard errors of Network, seconds; a missing link's is
	// not known.
	NetworkNoise map[Link]float64
	NetworkAt    map[Link]time.Time         // when Network was last measured
	Tokens       map[ClassID]TokenBelief    // measured sizes of requests; a missing class has its declared one
	Previous     *Plan                      // nil: none
	Brakes       []Brake                    // what operators have put on by hand, by target; its drains are in Pools
	Nodes        map[FrontEndID][]NodeShare // the Envoys of a front-end that are heard of, by name
	Sources      map[PoolID]SourceState     // of pools whose engines are discovered
	// Retries are decided beside the plan and told with it; a missing stream has the
	// fleet file's budget.
	Retries  map[Stream]Retries
	Attempts map[Stream]Attempts // a missing stream's are not known
	// ElapsedSeconds is the time since the previous plan was made; 0: not known.
	ElapsedSeconds float64
}

// Stream is the traffic of one class at one front-end.
type Stream struct {
	FrontEnd FrontEndID
	Class    ClassID
}

// Demand is what clients ask for, and how that is known.
type Demand struct {
	Rps    float64
	Source Source
	At     time.Time // when it was last told; zero: it is declared
	// StdErrRps is what chance does to Rps: how many requests come in a moment.
	StdErrRps StdErr
	// DoubtRps is by how much Rps may be too high for want of time to measure it
	// in. Nothing is refused for the sake of demand that is in doubt.
	DoubtRps float64
}

// Source says where a belief comes from.
type Source string

// The sources of a belief, best first.
const (
	SourceArrivals Source = "arrivals" // counted by weir-extproc, before shedding, without retries
	SourceEnvoy    Source = "envoy"    // Envoy's load reports, standing in
	SourceDeclared Source = "declared" // the fleet file: the prior
)

// PoolState is what is believed of a pool.
type PoolState struct {
	Engines        map[EngineID]Readiness // a missing engine is Unknown
	ReadySince     map[EngineID]time.Time // engines that were seen to become ready; the others are taken to be old
	Health         float64                // 0 < health ≤ 1 scales the capacity; 0 stands for unknown, taken as 1
	CapacityFactor float64                // 0.3–1.1: the evidence against the profile; 0 stands for unknown, taken as 1
	Signals        PoolSignals
	History        []Span // what it showed at the loads that it had, oldest first
}

// Readiness is what health checks say of an engine.
type Readiness int

// Unknown is never taken for Unready: nothing was heard yet.
const (
	Unknown Readiness = iota
	Ready
	Unready
	Draining // ready, and about to leave: it ends what it has and gets nothing new
)

func (r Readiness) String() string {
	return [...]string{"unknown", "ready", "unready", "draining"}[r]
}

// Serves says whether an engine may be given requests.
func (r Readiness) Serves() bool { return r == Unknown || r == Ready }

// Readiness returns what is known of an engine of a pool.
func (s *State) Readiness(p PoolID, e EngineID) Readiness { return s.Pools[p].Engines[e] }

// ReadyEngines counts the engines of a pool that may be given traffic: all but
// those known to be unready, or draining.
func (s *State) ReadyEngines(p *Pool) int {
	n := 0
	for _, e := range p.Engines {
		if s.Readiness(p.ID, e).Serves() {
			n++
		}
	}
	return n
}

// Replicas is how many fresh replicas a pool is worth: ready engines × health ×
// capacity factor.
func (s *State) Replicas(p *Pool) float64 {
	return float64(s.ReadyEngines(p)) * s.Health(p.ID) * s.CapacityFactor(p.ID)
}

// Health is the share of a pool's capacity that its health leaves.
func (s *State) Health(p PoolID) float64 { return orOne(s.Pools[p].Health) }

// CapacityFactor is what the evidence makes of a pool's profile.
func (s *State) CapacityFactor(p PoolID) float64 { return orOne(s.Pools[p].CapacityFactor) }

func orOne(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}

// RoundTrip is the network's round trip of a link in seconds, measured where
// the fleet says so and a measurement exists, else declared.
func (s *State) RoundTrip(l Link) float64 {
	if rtt, ok := s.Network[l]; ok && s.Fleet.Network.Measured {
		return rtt
	}
	return s.Fleet.Network.RoundTripSeconds[l]
}

// RoundTripNoise is the standard error of a link's round trip in seconds; 0 where it
// is declared, or its noise is not known.
func (s *State) RoundTripNoise(l Link) float64 {
	if !s.Fleet.Network.Measured {
		return 0
	}
	return s.NetworkNoise[l]
}

// Role says which of the two xDS clients of a node is speaking.
type Role string

// The roles, as they stand in a node's metadata.
const (
	RoleEnvoy   Role = "envoy"
	RoleExtProc Role = "extproc"
)

// LoadReport is what one xDS client counted since its last report.
type LoadReport struct {
	FrontEnd FrontEndID
	Node     string
	Role     Role
	Interval time.Duration
	Classes  []ClassLoad // a class without an entry was idle, not unknown
	// RoundTrips are from weir-extproc; a pool without an entry was not measured.
	RoundTrips []RoundTrip
	Open       []EngineOpen // from weir-extproc, at the end of the interval; an engine without an entry has none
	Penalties  []Penalty    // likewise
}

// ClassLoad is one class's part of a report.
type ClassLoad struct {
	Class    ClassID
	Arrivals uint64     // from weir-extproc: requests that clients asked for, before shedding
	Shed     uint64     // from weir-extproc
	Tokens   TokenLoad  // from weir-extproc
	Pools    []PoolLoad // what they count is from Envoy, their engines from weir-extproc
}

// PoolLoad counts the requests that an Envoy sent to a pool, its retries included.
type PoolLoad struct {
	Pool     PoolID
	Issued   uint64
	Failed   uint64
	InFlight uint64
	Engines  []EngineLoad // those that had attempts, by address
}

// Declared is the state before anything was heard: the file's demand and network,
// every engine taken as able to serve.
func Declared(f *Fleet) *State {
	s := &State{Fleet: f, Demand: map[Stream]Demand{}}
	for _, fe := range f.FrontEnds {
		for class, rps := range fe.Demand {
			s.Demand[Stream{fe.ID, class}] = Demand{Rps: rps, Source: SourceDeclared}
		}
	}
	return s
}

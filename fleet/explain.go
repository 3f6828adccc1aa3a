package fleet

// Explanation says why a plan is as it is. All seconds are per request.
type Explanation struct {
	Streams []StreamWhy `json:"streams"` // by front-end, then class
	Pools   []PoolWhy   `json:"pools"`   // by ID
}

// StreamWhy says why a class at a front-end goes where it goes.
type StreamWhy struct {
	FrontEnd  FrontEndID `json:"frontEnd"`
	Class     ClassID    `json:"class"`
	DemandRps float64    `json:"demandRps"`
	ShedRps   float64    `json:"shedRps"`
	// MarginalSeconds is what one more request costs the whole fleet: its own latency
	// and what it adds to that of others; while requests are refused, the price of that.
	MarginalSeconds float64     `json:"marginalSeconds"`
	Options         []OptionWhy `json:"options"` // all eligible pools, by ID
	Limit           string      `json:"limit"`   // what the limit of its class does; empty: it has none
}

// OptionWhy is what the next request to a pool would cost: network, engine, price,
// move and limits. By how much it is worse is that cost less that of the dearest pool
// in use; all pools in use cost alike, but for traffic that stays where it was.
type OptionWhy struct {
	Pool           PoolID  `json:"pool"`
	Share          float64 `json:"share"`
	NetworkSeconds float64 `json:"networkSeconds"`
	EngineSeconds  float64 `json:"engineSeconds"` // on an idle replica, and by how much it delays others or takes their place
	PriceSeconds   float64 `json:"priceSeconds"`
	MoveSeconds    float64 `json:"moveSeconds"`  // what moving a request here must gain; 0 where it is already
	LimitSeconds   float64 `json:"limitSeconds"` // what operators' limits make of it
	WorseSeconds   float64 `json:"worseSeconds"` // below 0: more would come if moving cost nothing
	Why            string  `json:"why"`
}

// Cost is what the next request to the pool would cost, seconds.
func (o *OptionWhy) Cost() float64 {
	return o.NetworkSeconds + o.EngineSeconds + o.PriceSeconds + o.MoveSeconds + o.LimitSeconds
}

// PoolWhy says what a pool's capacity is worth.
type PoolWhy struct {
	Pool        PoolID   `json:"pool"`
	CapacityRps float64  `json:"capacityRps"`
	Rps         float64  `json:"rps"`
	Utilisation float64  `json:"utilisation"`
	Binds       bool     `json:"binds"`  // it is full
	Limits      []string `json:"limits"` // of the file, and brakes
	// ReplicaGain is what one more replica would save: request-seconds a second, which
	// by Little's law is requests in flight. It overstates what many more would save.
	ReplicaGain float64 `json:"replicaGain"`
	// ReplicaGainSeconds is that per admitted request of the whole fleet.
	ReplicaGainSeconds float64 `json:"replicaGainSeconds"`
}

// ReplicaGain is what one more replica of a pool would save by a plan, request-seconds
// a second; 0 where no engine of the pool is ready.
func (s *State) ReplicaGain(q *PoolPlan) float64 {
	p := s.Fleet.Pool(q.Pool)
	if p == nil {
		return 0
	}
	n := s.ReadyEngines(p)
	if n == 0 {
		return 0
	}
	return q.PriceSeconds * q.CapacityRps / float64(n)
}

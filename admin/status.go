package admin

import (
	"slices"
	"time"

	"weir/fleet"
)

// Status is what `weir status` shows. Its JSON form is a stable interface; null
// stands for what is not known.
type Status struct {
	Attention        []string     `json:"attention"`    // what somebody should look at; empty: all is well
	FleetProblem     string       `json:"fleetProblem"` // why the fleet file is not in force as it is; empty: it is
	StateProblem     string       `json:"stateProblem"` // why plans are not kept over a restart; empty: they are
	Brakes           []Brake      `json:"brakes"`       // that operators have put on
	SharedNodes      []string     `json:"sharedNodes"`  // node ids that several clients of one role use
	Plan             PlanStatus   `json:"plan"`
	Policies         fleet.Choice `json:"policies"`
	Shadow           *Shadow      `json:"shadow"` // null: there is none, or it has done nothing yet
	FrontEnds        []FrontEnd   `json:"frontEnds"`
	Pools            []Pool       `json:"pools"`
	Profiles         []Profile    `json:"profiles"`  // of pools, that are not true any more, cannot all be judged, or for which a fitted one stands in
	Penalties        []Penalty    `json:"penalties"` // not more than a hundred
	UnknownFrontEnds []Unknown    `json:"unknownFrontEnds"`
}

// PlanStatus is the plan in force and how it came about.
type PlanStatus struct {
	Status          fleet.Status `json:"status"` // empty: there is no plan
	Why             string       `json:"why"`
	Policy          string       `json:"policy"`          // that made it; empty: not known
	MeanSeconds     *float64     `json:"meanSeconds"`     // that the plan expects of a mean request
	AgeSeconds      *float64     `json:"ageSeconds"`      // since it was made; null: by an earlier process
	RoundAgeSeconds *float64     `json:"roundAgeSeconds"` // since the loop's last round
	Unpublished     string       `json:"unpublished"`     // why the fleet could not be told; empty: it was
}

// Shadow is what the second policy made of a round.
type Shadow struct {
	Policy     string            `json:"policy"`
	AgeSeconds float64           `json:"ageSeconds"` // since the round
	Why        string            `json:"why"`        // why it has no plan; empty: it has
	Difference *fleet.Difference `json:"difference"` // between its plan and that in force; null: it has none
}

// FrontEnd is one front-end: who is connected, and what its clients ask for.
type FrontEnd struct {
	FrontEnd   fleet.FrontEndID `json:"frontEnd"`
	Envoys     int              `json:"envoys"`     // connected
	ExtProcs   int              `json:"extProcs"`   // connected
	Unpaired   int              `json:"unpaired"`   // Envoys whose weir-extproc is not connected
	Behind     int              `json:"behind"`     // clients that have not taken all that they were sent
	LagSeconds float64          `json:"lagSeconds"` // for how long the slowest is behind
	Nacks      []Nack           `json:"nacks"`      // not more than a few
	Holds      []Hold           `json:"holds"`      // not more than a few
	Streams    []Stream         `json:"streams"`
}

// Nack is a client that refused something and has not taken its successor.
type Nack struct {
	Node  string     `json:"node"`
	Role  fleet.Role `json:"role"`
	Type  string     `json:"type"`
	Error string     `json:"error"`
}

// Hold is a client some of whose routes wait behind a NACK.
type Hold struct {
	Node string     `json:"node"`
	Role fleet.Role `json:"role"`
	By   string     `json:"by"`
}

// Stream is a class at a front-end.
type Stream struct {
	Class     fleet.ClassID `json:"class"`
	DemandRps float64       `json:"demandRps"`
	Source    fleet.Source  `json:"source"`
	ShedRps   float64       `json:"shedRps"`
	Retries   Retries       `json:"retries"`
}

// Retries is the budget of a class at each Envoy of a front-end, and why it is so.
type Retries struct {
	Percent float64  `json:"percent"` // of the requests in flight
	Floor   uint32   `json:"floor"`   // retries at once, however little is in flight
	RoomRps *float64 `json:"roomRps"` // that engines have room for, from the whole front-end; null: not measured
	Short   bool     `json:"short"`   // more fails than there is room for
	Why     string   `json:"why"`
}

// Pool is one pool: its engines, and what the plan gives it.
type Pool struct {
	Pool     fleet.PoolID    `json:"pool"`
	Engines  int             `json:"engines"`
	Ready    int             `json:"ready"`
	Unready  int             `json:"unready"`
	Draining int             `json:"draining"` // the rest is unknown
	Failing  *float64        `json:"failing"`  // part of the attempts there that fail, 0–1; null: there are none
	Source   *Source         `json:"source"`   // null: they stand in the fleet file
	Plan     *fleet.PoolPlan `json:"plan"`     // null: it has none
}

// Unknown is a front-end that does not exist and has clients all the same. They
// get nothing.
type Unknown struct {
	FrontEnd fleet.FrontEndID `json:"frontEnd"`
	Clients  int              `json:"clients"`
}

// Bounds of the lists whose content clients choose.
const (
	maxNacks   = 10 // of one front-end; as many holds
	maxUnknown = 100
)

// newStatus sums up the last round and the connected clients, which are sorted by
// front-end, node and role.
func newStatus(now time.Time, r fleet.Round, clients []fleet.Client, fleetProblem, stateProblem string) *Status {
	s := &Status{
		FleetProblem:     fleetProblem,
		StateProblem:     stateProblem,
		Brakes:           []Brake{},
		SharedNodes:      sharedNodes(now, clients),
		Plan:             newPlanStatus(now, r),
		Policies:         r.Choice,
		Shadow:           newShadow(now, r.Shadow),
		FrontEnds:        []FrontEnd{},
		Pools:            []Pool{},
		Profiles:         []Profile{},
		Penalties:        []Penalty{},
		UnknownFrontEnds: unknown(clients),
	}
	if r.State != nil {
		s.Brakes = newBrakes(now, r, r.Brakes).Brakes
		for i := range r.State.Fleet.FrontEnds {
			s.FrontEnds = append(s.FrontEnds, newFrontEnd(r, r.State.Fleet.FrontEnds[i].ID, clients))
		}
		for i := range r.State.Fleet.Pools {
			s.Pools = append(s.Pools, newPool(r, &r.State.Fleet.Pools[i]))
			s.Penalties = append(s.Penalties, newPenalties(&r.State.Fleet.Pools[i], r.State)...)
		}
	}
	s.Attention = s.attention(r)
	s.Penalties = s.Penalties[:min(len(s.Penalties), maxPenalties)]
	return s
}

// sharedNodes names the ids that were copied: what their clients count is taken for
// that of one. A client that reconnects is there twice for a moment only.
func sharedNodes(now time.Time, clients []fleet.Client) []string {
	shared := []string{}
	settled := func(c *fleet.Client) bool { return c.Known && now.Sub(c.Connected) > lagPatience }
	for i := 1; i < len(clients); i++ {
		a, b := &clients[i-1], &clients[i]
		same := a.FrontEnd == b.FrontEnd && a.Node == b.Node && a.Role == b.Role
		if same && settled(a) && settled(b) && !slices.Contains(shared, a.Node) {
			shared = append(shared, a.Node)
		}
	}
	return shared
}

func newPlanStatus(now time.Time, r fleet.Round) PlanStatus {
	p := PlanStatus{Unpublished: r.Unpublished, RoundAgeSeconds: since(now, r.At)}
	if err := planned(r); err != nil {
		p.Why = err.Error()
		return p
	}
	p.Status, p.Why, p.MeanSeconds = r.Plan.Status, r.Plan.Why, &r.Plan.MeanSeconds
	p.Policy = r.Plan.Policy
	p.AgeSeconds = since(now, r.Planned)
	return p
}

func newShadow(now time.Time, sh *fleet.Shadow) *Shadow {
	if sh == nil {
		return nil
	}
	return &Shadow{sh.Policy, max(0, now.Sub(sh.At).Seconds()), sh.Why, sh.Difference}
}

// since is the time in seconds from then, nil where that is not known.
func since(now, then time.Time) *float64 {
	if then.IsZero() {
		return nil
	}
	age := max(0, now.Sub(then).Seconds())
	return &age
}

func newFrontEnd(r fleet.Round, id fleet.FrontEndID, clients []fleet.Client) FrontEnd {
	f := FrontEnd{FrontEnd: id, Nacks: []Nack{}, Holds: []Hold{}, Streams: []Stream{}}
	unpaired := map[string]bool{} // by node; an Envoy is sorted before its weir-extproc
	for i := range clients {
		if c := &clients[i]; c.Known && c.FrontEnd == id {
			f.add(c)
			unpaired[c.Node] = c.Role == fleet.RoleEnvoy
		}
	}
	for _, lonely := range unpaired {
		if lonely {
			f.Unpaired++
		}
	}
	for i := range r.State.Fleet.Classes {
		f.Streams = append(f.Streams, newStream(r, fleet.Stream{FrontEnd: id, Class: r.State.Fleet.Classes[i].ID}))
	}
	return f
}

func (f *FrontEnd) add(c *fleet.Client) {
	if c.Role == fleet.RoleExtProc {
		f.ExtProcs++
	} else {
		f.Envoys++
	}
	if !c.UpToDate() {
		f.Behind++
		f.LagSeconds = max(f.LagSeconds, c.LagSeconds())
	}
	if c.HeldBy != "" && len(f.Holds) < maxNacks {
		f.Holds = append(f.Holds, Hold{c.Node, c.Role, c.HeldBy})
	}
	for _, d := range c.Types {
		if d.Error != "" && len(f.Nacks) < maxNacks {
			f.Nacks = append(f.Nacks, Nack{c.Node, c.Role, d.Type, d.Error})
		}
	}
}

func newStream(r fleet.Round, id fleet.Stream) Stream {
	d := r.State.Demand[id]
	s := Stream{Class: id.Class, DemandRps: d.Rps, Source: d.Source, Retries: newRetries(r.State, id)}
	if r.Plan != nil {
		if route := r.Plan.Route(id); route != nil {
			s.ShedRps = route.ShedRps
		}
	}
	return s
}

func newRetries(s *fleet.State, id fleet.Stream) Retries {
	d := s.RetriesOf(id)
	out := Retries{Percent: d.Percent, Floor: d.Floor, Short: d.Short, Why: d.Why}
	if _, measured := s.Attempts[id]; measured {
		out.RoomRps = &d.RoomRps
	}
	return out
}

func newPool(r fleet.Round, p *fleet.Pool) Pool {
	out := Pool{Pool: p.ID, Engines: len(p.Engines), Source: newSource(r, p)}
	for _, e := range p.Engines {
		switch r.State.Readiness(p.ID, e) {
		case fleet.Ready:
			out.Ready++
		case fleet.Unready:
			out.Unready++
		case fleet.Draining:
			out.Draining++
		}
	}
	if failed := r.State.Pools[p.ID].Signals.Failed; !failed.At.IsZero() {
		out.Failing = &failed.Value
	}
	if r.Plan != nil {
		out.Plan = r.Plan.Pool(p.ID)
	}
	return out
}

// unknown counts the clients of front-ends that do not exist.
func unknown(clients []fleet.Client) []Unknown {
	found := []Unknown{}
	for _, c := range clients {
		n := len(found)
		switch {
		case c.Known:
		case n > 0 && found[n-1].FrontEnd == c.FrontEnd:
			found[n-1].Clients++
		case n < maxUnknown:
			found = append(found, Unknown{c.FrontEnd, 1})
		}
	}
	return found
}

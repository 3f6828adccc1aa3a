package fleet

import (
	"fmt"
	"math"
	"time"
)

// RetryBackOffSeconds bounds what the first retry of a request waits before it is
// sent: so long or less, drawn evenly.
const RetryBackOffSeconds = 0.025

const (
	// A budget replaces the one in force if it is as much larger, or smaller: less is the
	// noise of what it is reckoned from. What is too much is taken back sooner.
	budgetRise, budgetFall = 1.25, 0.9
	// calmBelow is how far failures must fall below what there is room for until a
	// shortage of it is taken to be over.
	calmBelow = 0.8
	// deathSigmas and deathSpare are what chance may add to the requests that are in
	// flight at an engine when it dies.
	deathSigmas, deathSpare = 4, 4
	// burstSeconds is how much of the room may be taken at once, as time, and burstPart the
	// part of what pools have left that even the smallest stream may take so: a burst finds
	// engines that have it to spare.
	burstPart    = 0.5
	burstSeconds = 3
)

// RetryBudget bounds the retries of a class at one Envoy.
type RetryBudget struct {
	Percent float64 // of the requests in flight
	Floor   uint32  // retries allowed at once however little is in flight
}

// Attempts are a stream's requests at engines, as its front-end measures them.
type Attempts struct {
	At       time.Time // when they were last told; zero: nothing is known
	Rps      float64   // that its Envoys issue, retries included
	Failed   float64   // the part of them, 0–1, that engines refuse, fail or lose
	InFlight float64   // at all its Envoys together, mean
	Busiest  float64   // the part of those, 0–1, at the Envoy that has most of them
	Whole    float64   // the part of the answers, 0–1, that come in one piece: their headers come at their end
}

// Retries is what was decided for the retries of a stream, and why.
type Retries struct {
	RetryBudget
	RoomRps float64 // retries per second, of all its Envoys together, that engines have room for
	Short   bool    // more fails than there is room for
	Why     string
	At      time.Time // of the attempts that it was decided by; zero: of none, it is the fleet file's
}

// RetryBudgets decides the budgets of all streams that a plan routes, from what its
// pools have left. Before are those in force: one that differs from them by chance
// alone stays, and so does that of a stream whose attempts are not known any more. It is
// pure.
//
// Envoy counts a retry against the budget from when it begins to wait until its
// headers have come: hold seconds. So a budget of c at once lets c / hold retries pass
// in a second, whatever else Envoy has in flight; and since it is told as a part of
// what it has in flight, which long streams inflate, the part is
//
//	percent = 100 × room × hold / inFlight          at most the fleet file's retryPercent
//	room    = demand × Σ landing(p) × spare(p) / Σ streams' demand × landing(p)      RPS
//	spare   = (capacity − planned) × (1 − failed)   RPS of the pool, after headroom
//	hold    = back-off + round trip + whole × inFlight / rps of attempts             seconds
//
// where landing(p) is the part of its retries that go to pool p. Both room and what is
// in flight are of the front-end: its Envoys all have the same percentage. Engines that
// hold back the headers of streams are retried at less than the room, never at more.
//
// The floor is for the death of an engine, which loses in a moment all that it has in
// flight: that, at the busiest Envoy, and what chance adds. Requests may come in a burst,
// of which the mean tells nothing: where there is room, some seconds of it may be taken at
// once. The rest stands when the fleet is full too. But as a rate it is far more than there is room for; so where more
// fails, and for longer, than the death of one engine explains, the floor is what
// retries of one engine's requests hold: rate × hold.
func RetryBudgets(s *State, p *Plan, before map[Stream]Retries) map[Stream]Retries {
	b := budgeting{state: s, plan: p, ready: map[PoolID]int{}, pressure: map[PoolID]float64{}}
	for i := range s.Fleet.Pools {
		b.ready[s.Fleet.Pools[i].ID] = s.ReadyEngines(&s.Fleet.Pools[i])
	}
	landings := make([][]landing, len(p.Routes))
	for i := range p.Routes {
		landings[i] = b.land(&p.Routes[i])
		for _, l := range landings[i] {
			b.pressure[l.pool] += p.Routes[i].admittedRps() * l.part
		}
	}
	out := make(map[Stream]Retries, len(p.Routes))
	for i := range p.Routes {
		st := Stream{p.Routes[i].FrontEnd, p.Routes[i].Class}
		out[st] = b.decide(&p.Routes[i], landings[i], before[st])
	}
	return out
}

// budgeting is a plan, and where the retries of its streams would go.
type budgeting struct {
	state    *State
	plan     *Plan
	ready    map[PoolID]int     // engines
	pressure map[PoolID]float64 // RPS: of all streams, if every request were tried again
}

// landing is the part of a stream's retries that go to a pool.
type landing struct {
	pool PoolID
	part float64
}

func (r *Route) admittedRps() float64 { return max(0, r.DemandRps-r.ShedRps) }

// land says where the retries of a route go: to its other pools by their shares, or to
// the other engines of its only pool; if that has one engine alone, to pools that may
// serve it and have no share.
func (b *budgeting) land(r *Route) []landing {
	var out []landing
	for _, p := range r.Shares {
		part := 0.0
		for _, q := range r.Shares {
			if q.Pool != p.Pool && q.Share < 1 {
				part += q.Share * p.Share / (1 - q.Share)
			}
		}
		if part > 0 {
			out = append(out, landing{p.Pool, part})
		}
	}
	if len(out) > 0 || len(r.Shares) == 0 {
		return out
	}
	only := r.Shares[0].Pool
	if b.ready[only] != 1 {
		return []landing{{only, 1}}
	}
	return b.elsewhere(r, only)
}

func (b *budgeting) elsewhere(r *Route, only PoolID) []landing {
	c := b.state.Fleet.Class(r.Class)
	var out []landing
	for i := range b.state.Fleet.Pools {
		if p := &b.state.Fleet.Pools[i]; c != nil && p.ID != only && c.Eligible(p) && b.ready[p.ID] > 0 {
			out = append(out, landing{pool: p.ID})
		}
	}
	for i := range out {
		out[i].part = 1 / float64(len(out))
	}
	return out
}

// spareRps is what a pool has left, by its plan and by what it answers.
func (b *budgeting) spareRps(id PoolID) float64 {
	q := b.plan.Pool(id)
	if q == nil {
		return 0
	}
	return max(0, q.CapacityRps-q.Rps) * (1 - b.state.Pools[id].Signals.Failed.Value)
}

// roomRps is how many retries of a route there is room for. Streams that share a pool
// get parts of it by the retries that they would send there.
func (b *budgeting) roomRps(r *Route, to []landing) float64 {
	if r.ShedRps > 0 {
		return 0
	}
	room := 0.0
	for _, l := range to {
		if own := r.admittedRps() * l.part; own > 0 {
			room += b.spareRps(l.pool) * own / b.pressure[l.pool]
		}
	}
	return room
}

// burstRps is what a burst of a route's retries may have for a moment.
func (b *budgeting) burstRps(r *Route, to []landing, room float64) float64 {
	if r.ShedRps > 0 {
		return 0
	}
	most := 0.0
	for _, l := range to {
		most += l.part * b.spareRps(l.pool)
	}
	return max(room, burstPart*most)
}

// decide makes one stream's budget.
func (b *budgeting) decide(r *Route, to []landing, before Retries) Retries {
	most := RetryBudget{b.state.Fleet.Options.RetryPercent, uint32(b.state.Fleet.Options.RetryFloor)}
	a := b.state.Attempts[Stream{r.FrontEnd, r.Class}]
	if a.At.IsZero() {
		return unmeasured(before, most)
	}
	d := Retries{RoomRps: b.roomRps(r, to), At: a.At}
	failing, engine := a.Failed*a.Rps, b.largestEngine(r)
	limit := max(d.RoomRps, engine*a.Rps)
	if before.Short {
		limit *= calmBelow
	}
	d.Short = failing > limit
	hold := holdSeconds(r, &a)
	d.Percent = percent(r, d.RoomRps*hold, a.InFlight, most.Percent)
	floor := max(dies(a.InFlight*a.Busiest*engine), math.Round(burstSeconds*b.burstRps(r, to, d.RoomRps)*a.Busiest))
	switch {
	case d.Short:
		floor = max(1, math.Round(a.Rps*engine*hold*a.Busiest))
	case r.DemandRps <= 0: // as for the percentage
		floor = float64(most.Floor)
	}
	d.Floor = uint32(min(floor, float64(most.Floor)))
	d.RetryBudget = settled(before, d.RetryBudget, most)
	d.Why = d.why(r, failing)
	return d
}

// unmeasured is the budget of a stream whose attempts are not known. One that was
// measured keeps what it has: when a front-end is not heard of, something is amiss, and
// the most that the file allows would be let loose just then.
func unmeasured(before Retries, most RetryBudget) Retries {
	if before.At.IsZero() {
		return Retries{RetryBudget: most, Why: "the fleet file's: nothing is measured yet"}
	}
	before.RetryBudget = before.atMost(most)
	before.Why = "kept: nothing is measured any more"
	return before
}

// atMost is the budget, or the part of it that is allowed.
func (b RetryBudget) atMost(most RetryBudget) RetryBudget {
	return RetryBudget{min(b.Percent, most.Percent), min(b.Floor, most.Floor)}
}

// percent makes so many retries at once a part of what is in flight. Where nothing is
// asked for there is nothing to save.
func percent(r *Route, atOnce, inFlight, most float64) float64 {
	switch {
	case r.DemandRps <= 0:
		return most
	case atOnce <= 0:
		return 0
	}
	return min(most, 100*atOnce/inFlight) // of nothing: the most
}

// largestEngine is the part of a route's requests that one engine has at most.
func (b *budgeting) largestEngine(r *Route) float64 {
	most := 0.0
	for _, s := range r.Shares {
		most = max(most, s.Share/float64(max(1, b.ready[s.Pool])))
	}
	return most
}

// dies is how many requests an engine may have in flight that has so many in the mean.
func dies(mean float64) float64 { return math.Ceil(mean + deathSigmas*math.Sqrt(mean) + deathSpare) }

// holdSeconds is for how long a retry counts against the budget, in the mean.
func holdSeconds(r *Route, a *Attempts) float64 {
	hold := RetryBackOffSeconds / 2
	for _, s := range r.Shares {
		hold += s.Share * s.NetworkSeconds
	}
	if a.Rps > 0 {
		hold += a.Whole * a.InFlight / a.Rps // Little's law; of attempts that fail it is short
	}
	return hold
}

// settled is a budget that differs from the one in force by more than a step, rounded
// to two digits, or that one as far as it is allowed.
func settled(before Retries, next, most RetryBudget) RetryBudget {
	if before.Why == "" {
		before.RetryBudget = RetryBudget{-1, math.MaxUint32}
	}
	if near(before.Percent, next.Percent) {
		next.Percent = before.Percent
	}
	if near(float64(before.Floor), float64(next.Floor)) {
		next.Floor = before.Floor
	}
	next = next.atMost(most)
	if next.Percent > 0 {
		digit := math.Pow(10, math.Floor(math.Log10(next.Percent))-1)
		next.Percent = math.Floor(next.Percent/digit+1e-6) * digit
	}
	return next
}

func near(before, next float64) bool {
	return before == next || before > 0 && next > 0 && next < before*budgetRise && next > before*budgetFall
}

func (d *Retries) why(r *Route, failingRps float64) string {
	switch {
	case d.Short:
		return fmt.Sprintf("%.1f rps fail and there is room for %.1f: one engine's requests", failingRps, d.RoomRps)
	case r.DemandRps <= 0:
		return "idle: the most that the fleet file allows"
	case r.ShedRps > 0:
		return "the plan sheds: what one engine has in flight"
	case d.RoomRps == 0:
		return "no pool has room: what one engine has in flight"
	}
	return fmt.Sprintf("room for %.1f rps", d.RoomRps)
}

// RetriesOf are the retries of a stream in force: decided, else the fleet file's.
func (s *State) RetriesOf(st Stream) Retries {
	if d, ok := s.Retries[st]; ok {
		return d
	}
	o := &s.Fleet.Options
	return Retries{
		RetryBudget: RetryBudget{o.RetryPercent, uint32(o.RetryFloor)},
		Why:         "the fleet file's: nothing is decided yet",
	}
}

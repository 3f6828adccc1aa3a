package admin

import (
	"fmt"
	"math"
	"strings"

	"weir/fleet"
)

// keptPin is by how much a share may miss its pin and count as kept.
const keptPin = 0.001

// effect says what a brake did in the last round, or why it did nothing.
func effect(r fleet.Round, b *fleet.Brake) string {
	if r.State == nil || !r.At.After(b.Since) && !fleet.SameBrake(r.State.Brakes, b) {
		return "given, in force from the next round on"
	}
	switch b.Kind {
	case fleet.BrakeDrain:
		return drainEffect(r.State, b)
	case fleet.BrakeFreeze:
		return freezeEffect(r)
	}
	switch {
	case r.Plan != nil && !fleet.SameBrake(r.Plan.Brakes, b):
		return "it waits for a new plan, the last one being held"
	case b.Kind == fleet.BrakePin:
		return pinEffect(r, b)
	}
	return limitEffect(r, b)
}

const gone = "no effect: the fleet file does not name it any more"

// drainEffect counts what the drained engines still have to end.
func drainEffect(s *fleet.State, b *fleet.Brake) string {
	draining, open, known := 0, 0.0, false
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		for _, e := range p.Engines {
			if b.Pool != p.ID && b.Engine != e {
				continue
			}
			if s.Readiness(p.ID, e) == fleet.Draining {
				draining++
			}
			if by := s.Pools[p.ID].Signals.Open; by != nil {
				open, known = open+by[e], true
			}
		}
	}
	switch {
	case draining == 0:
		return "no effect: no engine of it is ready or in the fleet file"
	case !known:
		return fmt.Sprintf("%d draining", draining)
	}
	return fmt.Sprintf("%d draining, %.0f requests open", draining, open)
}

// freezeEffect names what the plan that stays has of brakes that are not in force any
// more.
func freezeEffect(r fleet.Round) string {
	if r.Plan == nil {
		return ""
	}
	var over []string
	for i := range r.Plan.Brakes {
		if b := &r.Plan.Brakes[i]; !fleet.SameBrake(r.Brakes, b) {
			over = append(over, b.BrakeTarget.String()+(&Brake{Brake: *b}).Amount())
		}
	}
	if over == nil {
		return ""
	}
	return "the plan that stays still has the " + strings.Join(over, ", the ")
}

// limitEffect says what is refused of the class.
func limitEffect(r fleet.Round, b *fleet.Brake) string {
	if r.State.Fleet.Class(b.Class) == nil {
		return gone
	}
	if r.Plan == nil {
		return ""
	}
	demand, shed := 0.0, 0.0
	for i := range r.Plan.Routes {
		if route := &r.Plan.Routes[i]; route.Class == b.Class {
			rps := asked(r, route)
			demand, shed = demand+rps, shed+rps*(1-route.Admitted())
		}
	}
	if shed == 0 {
		return fmt.Sprintf("refuses nothing: %.4g RPS are asked for", demand)
	}
	return fmt.Sprintf("%.4g of %.4g RPS are refused", shed, demand)
}

// asked is what a route is asked for: of a held plan the fractions stay, not the demand.
func asked(r fleet.Round, route *fleet.Route) float64 {
	if d, ok := r.State.Demand[fleet.Stream{FrontEnd: route.FrontEnd, Class: route.Class}]; ok && r.Plan.Status == fleet.Held {
		return d.Rps
	}
	return route.DemandRps
}

// missedFor says why a pool gets more or less of a class than is pinned to it.
func missedFor(r fleet.Round, c fleet.ClassID, b *fleet.Brake, got float64) string {
	if got < b.Share {
		if isFull(r.Plan, b.Pool) {
			return ", the pool being full"
		}
		return ""
	}
	ready, room := false, false
	for i := range r.State.Fleet.Pools {
		p := &r.State.Fleet.Pools[i]
		if p.ID != b.Pool && r.State.Fleet.Class(c).Eligible(p) && r.State.ReadyEngines(p) > 0 {
			ready, room = true, room || !isFull(r.Plan, p.ID)
		}
	}
	switch {
	case !ready:
		return ", no other pool being ready"
	case !room:
		return ", the others being full"
	}
	return ""
}

// isFull says whether a plan leaves a pool no capacity.
func isFull(p *fleet.Plan, id fleet.PoolID) bool {
	q := p.Pool(id)
	return q != nil && q.Utilisation >= 1-1e-6
}

// pinEffect says where a pin is not kept, and what it does to the pool.
func pinEffect(r fleet.Round, b *fleet.Brake) string {
	pool := r.State.Fleet.Pool(b.Pool)
	switch {
	case pool == nil || r.State.Fleet.FrontEnd(b.FrontEnd) == nil || b.Class != "" && r.State.Fleet.Class(b.Class) == nil:
		return gone
	case r.State.ReadyEngines(pool) == 0:
		return fmt.Sprintf("no effect: no engine of %q is ready", b.Pool)
	case r.Plan == nil:
		return ""
	}
	var missed []string
	for i := range r.Plan.Routes {
		route := &r.Plan.Routes[i]
		st := fleet.Stream{FrontEnd: route.FrontEnd, Class: route.Class}
		pin := r.State.PinOf(st, b.Pool)
		if pin == nil || pin.BrakeTarget != b.BrakeTarget || !r.State.Fleet.Class(st.Class).Eligible(pool) {
			continue
		}
		if got := route.ShareOf(b.Pool); math.Abs(got-b.Share) > keptPin {
			missed = append(missed, fmt.Sprintf("%s/%s gets %.1f %%%s", st.FrontEnd, st.Class, 100*got, missedFor(r, st.Class, b, got)))
		}
	}
	var out []string
	if missed != nil {
		out = append(out, "not kept: "+strings.Join(missed, ", "))
	}
	if q := r.Plan.Pool(b.Pool); q != nil && (missed != nil || q.Utilisation > 1+1e-6) {
		out = append(out, fmt.Sprintf("the pool is asked for %.0f %% of its capacity", 100*q.Utilisation))
	}
	return strings.Join(out, "; ")
}

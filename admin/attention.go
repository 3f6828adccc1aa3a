package admin

import (
	"cmp"
	"fmt"
	"time"

	"weir/fleet"
)

const (
	// lagPatience is how long a client may be behind: resources are taken in well
	// under a second, and a roll-out waits for a silent one up to ten.
	lagPatience = 15 * time.Second
	// roundPatience is how long a round may take beyond three ticks; the solver
	// stops at five seconds.
	roundPatience = 10 * time.Second
	maxAttention  = 100
	// muchFailing is the part of a pool's attempts that engines do not fail by chance.
	muchFailing = 0.2
)

// attention lists what somebody should look at.
func (s *Status) attention(r fleet.Round) []string {
	a := list{}
	if s.FleetProblem != "" {
		a.add("the fleet file is refused and the last one stays: %s", s.FleetProblem)
	}
	if s.StateProblem != "" {
		a.add("plans are not kept, a restart begins with an older one: %s", s.StateProblem)
	}
	for _, node := range s.SharedNodes {
		a.add("node id %q is used by several Envoys: give each its own, their requests are counted as those of one", node)
	}
	s.Plan.attention(r, &a)
	brakesInForce(s.Brakes, &a)
	policiesByCommand(r.Choice, &a)
	if r.State != nil {
		for i := range s.FrontEnds {
			s.FrontEnds[i].attention(r.State.Fleet.Options.DeclaredOnly, &a)
		}
		staleSignals(r.State, &a)
	}
	for i := range s.Pools {
		s.Pools[i].attention(&a)
	}
	s.penalties(&a)
	for _, u := range s.UnknownFrontEnds {
		a.add("unknown front-end %q (clients: %d): it gets nothing; add it to the fleet file or correct node.cluster", u.FrontEnd, u.Clients)
	}
	if more := len(a) - maxAttention; more > 0 {
		a = append(a[:maxAttention], fmt.Sprintf("and %d more", more))
	}
	return a
}

// staleSignals names the engines whose metrics are not believed: one line a pool, or
// one for the fleet if it is all of them, since then the fault is most likely here.
func staleSignals(s *fleet.State, a *list) {
	var lines list
	stale, all := 0, 0
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		n, why := 0, ""
		for id, e := range s.Pools[p.ID].Signals.Engines {
			all++
			if e.Why != "" && s.Readiness(p.ID, id).Serves() {
				n, why = n+1, e.Why
			}
		}
		if n > 0 {
			lines.add("pool %q: the metrics of %d of %d engines are not believed: %s", p.ID, n, len(p.Engines), why)
		}
		stale += n
	}
	if all > 1 && stale == all {
		lines = nil
		lines.add("the metrics of all %d engines are not believed: look at the network of the control plane, and at its clock", all)
	}
	*a = append(*a, lines...)
}

// policiesByCommand tells of policies that stand in for those of the fleet file.
func policiesByCommand(c fleet.Choice, a *list) {
	const ends = "until that changes"
	if c.Policy.ByCommand() {
		a.add("policy %q is in force by command, and not %q as the fleet file says, %s: `weir policy %s` ends it", c.Policy.Name, c.Policy.File, ends, c.Policy.File)
	}
	if c.Shadow.ByCommand() {
		name, file := cmp.Or(c.Shadow.Name, fleet.NoPolicy), cmp.Or(c.Shadow.File, fleet.NoPolicy)
		a.add("the shadow is %q by command, and not %q as the fleet file says, %s: `weir policy --shadow %s` ends it", name, file, ends, file)
	}
}

type list []string

func (l *list) add(format string, values ...any) { *l = append(*l, fmt.Sprintf(format, values...)) }

func (p *PlanStatus) attention(r fleet.Round, a *list) {
	switch p.Status {
	case "":
		a.add("%s", p.Why)
	case fleet.Held:
		a.add("the last plan is held: %s", p.Why)
	case fleet.Shedding:
		a.add("the plan sheds: %s", p.Why)
	case fleet.Routed:
		if p.Why != "" {
			a.add("policy %q heeds no capacity: %s", p.Policy, p.Why)
		}
	}
	if p.Unpublished != "" {
		a.add("the plan does not reach the fleet: %s", p.Unpublished)
	}
	if p.RoundAgeSeconds == nil {
		return
	}
	if age := seconds(*p.RoundAgeSeconds); age > 3*r.State.Fleet.Options.Tick+roundPatience {
		a.add("the loop is stuck: its last round began %v ago", age)
	}
}

func (f *FrontEnd) attention(declaredOnly bool, a *list) {
	switch {
	case f.Envoys == 0:
		a.add("front-end %q: no Envoy is connected", f.FrontEnd)
	case f.Unpaired > 0:
		a.add("front-end %q: %d of %d Envoys without a weir-extproc connected", f.FrontEnd, f.Unpaired, f.Envoys)
	}
	if lag := seconds(f.LagSeconds); lag > lagPatience {
		a.add("front-end %q: %d of %d clients behind, for %v", f.FrontEnd, f.Behind, f.Envoys+f.ExtProcs, lag)
	}
	for _, n := range f.Nacks {
		a.add("front-end %q: %s %q refuses %s: %s", f.FrontEnd, n.Role, n.Node, n.Type, n.Error)
	}
	for _, h := range f.Holds {
		a.add("front-end %q: routes of %s %q are held by %s", f.FrontEnd, h.Role, h.Node, h.By)
	}
	for _, st := range f.Streams {
		st.attention(f, declaredOnly, a)
	}
}

// attention tells of demand that is not measured although it could be.
func (st *Stream) attention(f *FrontEnd, declaredOnly bool, a *list) {
	switch {
	case st.Source == fleet.SourceEnvoy:
		a.add("front-end %q: class %q: weir-extprocs do not report arrivals, what Envoys issue stands in", f.FrontEnd, st.Class)
	case st.Source == fleet.SourceDeclared && f.ExtProcs > 0 && !declaredOnly:
		a.add("front-end %q: class %q: nobody reports load, the declared demand rules", f.FrontEnd, st.Class)
	}
}

func (p *Pool) attention(a *list) {
	if p.Source != nil && p.Source.Problem != "" {
		a.add("pool %q: its engines come from %s: %s", p.Pool, p.Source.From, p.Source.Problem)
	}
	if p.Failing != nil && *p.Failing > muchFailing {
		a.add("pool %q: %.0f %% of the attempts there fail", p.Pool, 100**p.Failing)
	}
	switch unknown := p.Engines - p.Ready - p.Unready - p.Draining; {
	case p.Engines == 0:
	case p.Unready+p.Draining == p.Engines:
		a.add("pool %q: none of %d engines is ready", p.Pool, p.Engines)
	case p.Unready > 0:
		a.add("pool %q: %d of %d engines not ready", p.Pool, p.Unready, p.Engines)
	case unknown > 0:
		a.add("pool %q: nothing is known of %d of %d engines", p.Pool, unknown, p.Engines)
	}
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond)
}

package solver

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/fleet"
)

// WhatIf is a change that somebody imagines. Its texts are those of the command line.
type WhatIf struct {
	Drain    []string // POOL: no engine of it serves
	Lose     []string // REGION: all its pools are lost
	Demand   []string // FRONTEND[/CLASS]=+30%, =-10% or =120rps
	Replicas []string // POOL=+2, =-1 or =8
	Policy   string   // how to plan; empty: as the fleet says
}

// Empty says whether nothing is imagined.
func (w *WhatIf) Empty() bool {
	return len(w.Drain)+len(w.Lose)+len(w.Demand)+len(w.Replicas) == 0 && w.Policy == ""
}

// Apply returns the state as it would be. What it is given stays as it is.
func (w *WhatIf) Apply(s *fleet.State) (*fleet.State, error) {
	out := *s
	f := *s.Fleet
	f.Pools = slices.Clone(f.Pools)
	out.Fleet, out.Pools, out.Demand = &f, maps.Clone(s.Pools), maps.Clone(s.Demand)
	if out.Pools == nil {
		out.Pools = map[fleet.PoolID]fleet.PoolState{}
	}
	if w.Policy != "" {
		if err := fleet.CheckPolicy(w.Policy); err != nil {
			return nil, err
		}
		f.Options.Policy = w.Policy
	}
	for _, step := range []struct {
		texts []string
		do    func(*fleet.State, string) error
	}{{w.Replicas, scale}, {w.Drain, drain}, {w.Lose, lose}, {w.Demand, reask}} {
		for _, text := range step.texts {
			if err := step.do(&out, text); err != nil {
				return nil, err
			}
		}
	}
	return &out, nil
}

func drain(s *fleet.State, name string) error {
	p := s.Fleet.Pool(fleet.PoolID(name))
	if p == nil {
		return fmt.Errorf("drain %q: there is no such pool; name one of %s", name, poolNames(s.Fleet))
	}
	unready(s, p)
	return nil
}

func lose(s *fleet.State, region string) error {
	var regions []string
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		if p.Region == region {
			unready(s, p)
		}
		if p.Region != "" {
			regions = append(regions, p.Region)
		}
	}
	if !slices.Contains(regions, region) {
		slices.Sort(regions)
		return fmt.Errorf("lose %q: no pool is in that region; name one of %s", region, strings.Join(slices.Compact(regions), ", "))
	}
	return nil
}

func unready(s *fleet.State, p *fleet.Pool) {
	st := s.Pools[p.ID]
	st.Engines = map[fleet.EngineID]fleet.Readiness{}
	for _, e := range p.Engines {
		st.Engines[e] = fleet.Unready
	}
	s.Pools[p.ID] = st
}

// reask changes what clients ask for at a front-end.
func reask(s *fleet.State, text string) error {
	name, change, ok := strings.Cut(text, "=")
	frontEnd, class, one := strings.Cut(name, "/")
	if !ok || s.Fleet.FrontEnd(fleet.FrontEndID(frontEnd)) == nil {
		return fmt.Errorf("demand %q: write FRONTEND=+30%% or FRONTEND/CLASS=120rps, of a front-end of the fleet", text)
	}
	if one && s.Fleet.Class(fleet.ClassID(class)) == nil {
		return fmt.Errorf("demand %q: there is no class %q; name one of %s", text, class, classNames(s.Fleet))
	}
	factor, rps, err := demandChange(change)
	if err != nil {
		return fmt.Errorf("demand %q: %w", text, err)
	}
	if rps >= 0 && !one {
		return fmt.Errorf("demand %q: a rate is that of one class: write FRONTEND/CLASS=%s", text, change)
	}
	for at, d := range s.Demand {
		if string(at.FrontEnd) == frontEnd && (!one || string(at.Class) == class) {
			d.Rps, d.DoubtRps = d.Rps*factor, d.DoubtRps*factor
			s.Demand[at] = d
		}
	}
	if rps >= 0 {
		at := fleet.Stream{FrontEnd: fleet.FrontEndID(frontEnd), Class: fleet.ClassID(class)}
		s.Demand[at] = fleet.Demand{Rps: rps, Source: fleet.SourceDeclared}
	}
	return nil
}

// demandChange reads +30%, -10% or 120rps: a factor, or a rate of at least 0.
func demandChange(text string) (factor, rps float64, err error) {
	const most = 1e6
	number, relative := strings.CutSuffix(text, "%")
	number = strings.TrimSpace(strings.TrimSuffix(number, "rps"))
	v, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !(v >= -most && v <= most):
		return 0, 0, fmt.Errorf("%q is no change: write it like +30%%, -10%% or 120rps", text)
	case relative && v < -100:
		return 0, 0, fmt.Errorf("%q takes off more than there is", text)
	case relative:
		return 1 + v/100, -1, nil
	case v < 0 || !strings.HasSuffix(text, "rps"):
		return 0, 0, fmt.Errorf("%q is no change: write it like +30%%, -10%% or 120rps", text)
	}
	return 1, v, nil
}

// maxReplicas bounds what anybody imagines.
const maxReplicas = 10_000

// scale changes how many replicas a pool has. New ones are ready at once.
func scale(s *fleet.State, text string) error {
	name, change, ok := strings.Cut(text, "=")
	p := s.Fleet.Pool(fleet.PoolID(name))
	n, err := strconv.Atoi(change)
	if !ok || p == nil || err != nil {
		return fmt.Errorf("replicas %q: write POOL=+2, POOL=-1 or POOL=8, of one of %s", text, poolNames(s.Fleet))
	}
	if strings.HasPrefix(change, "+") || strings.HasPrefix(change, "-") {
		n += len(p.Engines)
	}
	if n < 1 || n > maxReplicas {
		return fmt.Errorf("replicas %q: %d replicas are not possible: 1 to %d; to take a pool away, drain it", text, n, maxReplicas)
	}
	p.Engines = slices.Clone(p.Engines[:min(n, len(p.Engines))])
	for len(p.Engines) < n {
		p.Engines = append(p.Engines, fleet.EngineID(fmt.Sprintf("new-replica-%d", len(p.Engines)+1)))
	}
	return nil
}

func poolNames(f *fleet.Fleet) string {
	var names []string
	for i := range f.Pools {
		names = append(names, string(f.Pools[i].ID))
	}
	return strings.Join(names, ", ")
}

func classNames(f *fleet.Fleet) string {
	var names []string
	for i := range f.Classes {
		names = append(names, string(f.Classes[i].ID))
	}
	return strings.Join(names, ", ")
}

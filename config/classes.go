package config

import (
	"fmt"
	"slices"
	"strings"

	"weir/fleet"
)

// ownClusters stand in each Envoy's bootstrap; a class becomes a cluster beside
// them.
var ownClusters = []fleet.ClassID{"xds", "weir_ext_proc"}

func (r *reader) classes(n node) {
	for i, item := range n.someOf(maxClasses) {
		r.class(item, i)
	}
	r.residency()
}

func (r *reader) class(n node, i int) {
	before := r.doc.faults()
	m := n.thing("class", i, "name", "match", "aliases", "requires", "priority", "tokens", "weights", "affinity")
	c := fleet.Class{
		ID:       fleet.ClassID(m.name()),
		Requires: requirements(m.at("requires")),
		Weights:  latencyWeight(m.at("weights")),
		Priority: m.at("priority").integer(0, -maxPriority, maxPriority),
		Affinity: affinity(m.at("affinity")),
	}
	if size := m.at("tokens"); size.present() {
		c.Tokens, _ = tokens(size, "prompt", "output", "cached")
	}
	aliases := m.at("aliases").aliases()
	c.Match = r.match(m.must("match"), c.ID, aliases)
	if r.fleet.Class(c.ID) != nil {
		m.at("name").wrong("give it another name", "there is a class of this name already")
	}
	if slices.Contains(ownClusters, c.ID) {
		m.at("name").wrong("give it another name", "every Envoy has a cluster of this name already")
	}
	if r.doc.faults() == before {
		known(aliases, &c)
		r.servable(m, &c)
	}
	r.fleet.Classes = append(r.fleet.Classes, c)
}

func requirements(n node) fleet.Requirements {
	m := n.mapping("models", "capabilities", "labels", "regions")
	return fleet.Requirements{
		Models:       texts(m.at("models").someOf(maxListed)),
		Capabilities: texts(m.at("capabilities").list(maxListed)),
		Labels:       m.at("labels").labels(),
		Regions:      texts(m.at("regions").someOf(maxListed)),
	}
}

func latencyWeight(n node) fleet.LatencyWeight {
	m := n.mapping("ttft", "tbt")
	return fleet.LatencyWeight{
		TTFT: m.at("ttft").number(defaultLatencyWeight, 0, maxLatencyWeight),
		TBT:  m.at("tbt").number(defaultLatencyWeight, 0, maxLatencyWeight),
	}
}

// servable checks a sound class against the pools.
func (r *reader) servable(m mapping, c *fleet.Class) {
	if len(c.Models()) == 0 {
		m.wrong("name one in match or in requires.models", "it names no model")
		return
	}
	if r.doubtful || len(r.fleet.Pools) == 0 {
		return
	}
	pools := r.eligible(c)
	if len(pools) == 0 {
		nearest, missing := r.nearest(c)
		m.wrong("give a pool all that the class asks for, or ask for less",
			"no pool can serve it: the nearest, pool %q, %s", nearest, strings.Join(missing, ", "))
		return
	}
	known := func(p *fleet.Pool) bool { return len(p.Profile.TBT) > 0 }
	unlike := slices.IndexFunc(pools, func(p *fleet.Pool) bool { return known(p) != known(pools[0]) })
	if unlike > 0 {
		m.wrong("give tbt to both or to neither; without it a pool would look like one that decodes in no time",
			"of its pools %q and %q only one has a tbt", pools[0].ID, pools[unlike].ID)
	}
}

func (r *reader) eligible(c *fleet.Class) []*fleet.Pool {
	var out []*fleet.Pool
	for i := range r.fleet.Pools {
		if p := &r.fleet.Pools[i]; c.Eligible(p) {
			out = append(out, p)
		}
	}
	return out
}

// nearest returns the pool that lacks the fewest of a class's requirements.
func (r *reader) nearest(c *fleet.Class) (pool fleet.PoolID, missing []string) {
	for i := range r.fleet.Pools {
		p := &r.fleet.Pools[i]
		if m := lacks(c, p); missing == nil || len(m) < len(missing) {
			pool, missing = p.ID, m
		}
	}
	return pool, missing
}

// lacks puts into words why a pool is not eligible; it is empty exactly where
// [fleet.Class.Eligible] holds.
func lacks(c *fleet.Class, p *fleet.Pool) []string {
	var out []string
	for _, m := range c.Models() {
		if !slices.Contains(p.Models, m) {
			out = append(out, fmt.Sprintf("lacks the model %q", m))
		}
	}
	for _, x := range c.Requires.Capabilities {
		if !slices.Contains(p.Capabilities, x) {
			out = append(out, fmt.Sprintf("lacks the capability %q", x))
		}
	}
	for _, name := range sortedKeys(c.Requires.Labels) {
		want := c.Requires.Labels[name]
		if got, ok := p.Labels[name]; !ok || got != want {
			out = append(out, fmt.Sprintf("is not labelled %s: %s", name, want))
		}
	}
	if regions := c.Requires.Regions; len(regions) > 0 && !slices.Contains(regions, p.Region) {
		out = append(out, fmt.Sprintf("is in region %q", p.Region))
	}
	return out
}

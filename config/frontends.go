package config

import (
	"weir/fleet"
)

func (r *reader) frontEnds(n node) {
	for i, item := range n.someOf(maxFrontEnds) {
		r.frontEnd(item, i)
	}
}

func (r *reader) frontEnd(n node, i int) {
	m := n.thing("front-end", i, "name", "listen", "demand")
	f := fleet.FrontEnd{
		ID:     fleet.FrontEndID(m.name()),
		Listen: r.listen(m),
		Demand: r.demand(m.at("demand")),
	}
	if r.fleet.FrontEnd(f.ID) != nil {
		m.at("name").wrong("give it another name", "there is a front-end of this name already")
	}
	r.fleet.FrontEnds = append(r.fleet.FrontEnds, f)
}

// listen reads a listener's address. Front-ends on machines of their own may all
// listen on every address, so that only a named address is taken once.
func (r *reader) listen(m mapping) string {
	n := m.must("listen")
	n.key = ""
	a, ok := n.address("listen", "0.0.0.0:8080")
	if !ok {
		return ""
	}
	s := a.String()
	owner, taken := r.listens[s]
	switch {
	case a.Addr().IsUnspecified():
	case taken:
		n.wrong("give each its own port", "listen %q is where %s listens already", s, owner)
	default:
		r.listens[s] = m.of
	}
	return s
}

func (r *reader) demand(n node) map[fleet.ClassID]float64 {
	demand := map[fleet.ClassID]float64{}
	for _, e := range n.entries(maxClasses) {
		id := fleet.ClassID(e.name)
		if len(r.fleet.Classes) > 0 && r.fleet.Class(id) == nil {
			e.key.wrong("name a class of this file", "there is no class %q", id)
		}
		demand[id] = e.value.rps(0, maxRps)
	}
	return demand
}

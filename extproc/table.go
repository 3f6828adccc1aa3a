package extproc

import (
	"encoding/base64"

	"weir/fleet"
)

// Table is a [fleet.View] made ready to decide by. It never changes.
type Table struct {
	routes     []route
	unreadable *class // where requests go whose model cannot be read; nil: they are refused
	wanted     wanted
	bodyLimit  int64 // bytes
}

// class is a traffic class with all that a decision needs, hashes included.
type class struct {
	id       fleet.ClassID
	admitted float64
	salt     uint64 // of admission, so that it is independent of the choice of an engine
	affinity []source
	pools    []pool // those that have engines to give traffic to
}

// source is one place that may name the conversation.
type source struct {
	kind   fleet.AffinityKind
	header string
	field  int // of wanted.fields
}

type pool struct {
	hash    uint64
	weight  float64
	engines []engine
}

type engine struct {
	id   fleet.EngineID
	pick []byte // as Envoy's stateful session reads it
	hash uint64
}

// NewTable makes a table of what a front-end is told. Engines that are known to
// be unready are left out.
func NewTable(v *fleet.View) *Table {
	t := &Table{bodyLimit: v.BodyLimit}
	classes := make(map[fleet.ClassID]*class, len(v.Classes))
	for i := range v.Classes {
		classes[v.Classes[i].ID] = t.newClass(&v.Classes[i])
	}
	for _, r := range v.Routes {
		c := classes[r.Class]
		if c == nil { // answered with a clear 503, as no pool serves it
			c = t.newClass(&fleet.ViewClass{ID: r.Class})
			classes[r.Class] = c
		}
		t.routes = append(t.routes, route{r.Rule, c})
	}
	t.unreadable = classes[v.Unreadable]
	return t
}

func (t *Table) newClass(v *fleet.ViewClass) *class {
	c := &class{id: v.ID, admitted: v.Admitted, salt: hashOf("admission", string(v.ID))}
	for _, k := range v.Affinity {
		c.affinity = append(c.affinity, t.newSource(k))
	}
	for i := range v.Pools {
		if p := newPool(&v.Pools[i]); len(p.engines) > 0 {
			c.pools = append(c.pools, p)
		}
	}
	return c
}

func (t *Table) newSource(k fleet.AffinityKey) source {
	s := source{kind: k.Kind}
	switch k.Kind {
	case fleet.AffinityHeader:
		s.header = k.Name
	case fleet.AffinityBody:
		s.field = t.wanted.add(k.Name)
	case fleet.AffinityFingerprint:
		t.wanted.fingerprint = true
	}
	return s
}

func newPool(v *fleet.ViewPool) pool {
	p := pool{hash: hashOf("pool", string(v.ID)), weight: float64(v.Weight)}
	if v.Weight == 0 {
		p.weight = noShare
	}
	for _, e := range v.Engines {
		if e.Readiness != fleet.Unready {
			p.engines = append(p.engines, newEngine(e.ID))
		}
	}
	return p
}

func newEngine(id fleet.EngineID) engine {
	pick := base64.StdEncoding.AppendEncode(nil, []byte(id))
	return engine{id: id, pick: pick, hash: hashOf("engine", string(id))}
}

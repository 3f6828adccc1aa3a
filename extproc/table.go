package extproc

import (
	"cmp"
	"encoding/base64"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// Table is a [fleet.View] made ready to decide by. It never changes, save for what is
// known of the engines in it at each moment: how full they are.
type Table struct {
	routes     []route
	unreadable *class // where requests go whose model cannot be read; nil: they are refused
	wanted     wanted
	bodyLimit  int64 // bytes
	classes    []*class
	pools      []*pool
	clock      *atomic.Int64        // Unix seconds, near enough
	diverted   *memory[uint64]      // nil: diversions are not remembered
	talks      *recent              // conversations that were let in; nil: they are not remembered
	refused    *recent              // and those that were not
	tenant     string               // header that names the tenant; empty: none does
	places     *memory[lastTurn]    // nil: nobody is held
	hold       float64              // seconds that a conversation stays at least that the weights move; 0: nobody does
	tell       bool                 // clients are told of decisions
	plan       string               // version of what the table is made of
	sources    []string             // of affinity keys, as the fleet file writes them; the first: none of them
	keys       []prometheus.Counter // of each source; the server's that it decides for
}

// class is a traffic class with all that a decision needs, hashes included.
type class struct {
	id       fleet.ClassID
	admitted float64
	salt     uint64 // of admission, so that it is independent of the choice of an engine
	affinity []source
	headers  *headerSources // those of a class with the same sources
	follows  bool           // it wants to know who made a response
	pools    []share        // those that have engines to give traffic to
	tally    *tally
}

// share is what the plan gives a class of a pool.
type share struct {
	pool   *pool
	weight float64
}

// pool is shared by the classes that see it alike.
type pool struct {
	id      fleet.PoolID
	hash    uint64
	listed  []fleet.ViewEngine // all of them, in the order in which levels come
	print   uint64             // of these
	engines []engine           // those that serve, by address
	hashes  []uint64           // of these
	state   atomic.Pointer[poolState]
}

type engine struct {
	id    fleet.EngineID
	pick  string // as Envoy's stateful session reads it
	hash  uint64
	pool  *pool
	place int // among the pool's engines
	live  *liveEngine
}

// NewTable makes a table of what a front-end is told. Engines that are known to
// be unready, or that drain, are left out.
func NewTable(v *fleet.View) *Table {
	t := &Table{bodyLimit: v.BodyLimit, tell: v.TellDecision, tenant: v.TenantHeader, plan: v.Plan, hold: v.Hold.Seconds(), sources: []string{randomSource}, clock: &atomic.Int64{}}
	classes := make(map[fleet.ClassID]*class, len(v.Classes))
	pools := map[fleet.PoolID]*pool{}
	for i := range v.Classes {
		classes[v.Classes[i].ID] = t.newClass(&v.Classes[i], pools)
	}
	for _, r := range v.Routes {
		c := classes[r.Class]
		if c == nil { // answered with a clear 503, as no pool serves it
			c = t.newClass(&fleet.ViewClass{ID: r.Class}, nil)
			classes[r.Class] = c
		}
		t.routes = append(t.routes, route{r.Rule, c})
		t.wanted.features = t.wanted.features || r.Rule.Body.Any()
	}
	t.unreadable = classes[v.Unreadable]
	return t
}

// newClass adds a class. Pools are those that classes before it have.
func (t *Table) newClass(v *fleet.ViewClass, pools map[fleet.PoolID]*pool) *class {
	c := &class{id: v.ID, admitted: v.Admitted, salt: hashOf("admission", string(v.ID)), tally: &tally{}}
	t.classes = append(t.classes, c)
	for _, k := range v.Affinity {
		c.affinity = append(c.affinity, t.newSource(k))
		c.follows = c.follows || k.Kind == fleet.AffinityPrevious
	}
	c.headers = t.headerSources(c)
	for i := range v.Pools {
		weight := float64(v.Pools[i].Weight)
		if weight == 0 {
			weight = noShare
		}
		if p := t.poolOf(&v.Pools[i], pools); len(p.engines) > 0 {
			c.pools = append(c.pools, share{p, weight})
		}
	}
	// The heaviest first: most others then need no logarithm to be ranked behind.
	slices.SortStableFunc(c.pools, func(a, b share) int { return cmp.Compare(b.weight, a.weight) })
	return c
}

// poolOf returns a pool that another class has already, if that one sees the same
// engines alike: the endpoints of classes do not change all at one moment.
func (t *Table) poolOf(v *fleet.ViewPool, pools map[fleet.PoolID]*pool) *pool {
	if known := pools[v.ID]; known != nil && slices.Equal(known.listed, v.Engines) {
		return known
	}
	p := newPool(v)
	pools[v.ID] = p
	t.pools = append(t.pools, p)
	return p
}

func newPool(v *fleet.ViewPool) *pool {
	p := &pool{id: v.ID, hash: hashOf("pool", string(v.ID)), listed: v.Engines}
	ids := make([]fleet.EngineID, len(v.Engines))
	for i, e := range v.Engines {
		ids[i] = e.ID
		if e.Readiness.Serves() {
			p.engines = append(p.engines, newEngine(e.ID, p))
		}
	}
	p.print = fleet.FingerprintOf(ids)
	slices.SortFunc(p.engines, func(a, b engine) int { return cmp.Compare(a.id, b.id) })
	for i := range p.engines {
		p.engines[i].place = i
		p.hashes = append(p.hashes, p.engines[i].hash)
	}
	p.refresh(time.Time{})
	return p
}

func newEngine(id fleet.EngineID, p *pool) engine {
	pick := base64.StdEncoding.EncodeToString([]byte(id))
	return engine{id: id, pick: pick, hash: hashOf("engine", string(id)), pool: p, live: newLiveEngine(id, p.id)}
}

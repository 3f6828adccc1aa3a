package signals

import (
	"cmp"
	"math"
	"slices"
	"time"

	"weir/fleet"
)

const (
	// clientSilent is how far a client may lag behind the newest report of its
	// front-end before it is left out: two to five reporting intervals.
	clientSilent = 5 * time.Second
	// frontEndSilent is how far a front-end may lag behind the newest report of
	// the fleet before its declared demand rules again.
	frontEndSilent = time.Minute
	// maxNodes bounds the Envoys tracked per front-end.
	maxNodes = 512
	// A correction needs enough requests to mean something, and is bounded: 10
	// is nine of ten requests shed, 0.2 five attempts a request.
	correctionRps                = 2
	attemptsPerRequest           = 9 // three of a client, each tried three times by Envoy
	minCorrection, maxCorrection = 0.2, 10
)

// frontEnd is what its nodes reported.
type frontEnd struct {
	heard      time.Time // of its newest report
	nodes      []*node   // by id, so that sums are the same each time
	covered    coverage  // by their reports so far; nobody is counted in it
	correction map[fleet.ClassID]float64
}

// node is one Envoy with the weir-extproc beside it.
type node struct {
	id       string
	extProc  client
	envoy    client
	inFlight map[route]uint64   // at the Envoy's last report
	open     []fleet.EngineOpen // at the weir-extproc's
	attempts []*attempts        // by class and pool

	penalties []fleet.Penalty // at the weir-extproc's
	sent      sent            // by the weir-extproc's word
}

// route is the way of a class's requests to a pool.
type route struct {
	class fleet.ClassID
	pool  fleet.PoolID
}

// client is one of a node's two reporters.
type client struct {
	heard   time.Time
	windows map[fleet.ClassID]*window
}

func newFrontEnd() *frontEnd {
	return &frontEnd{correction: map[fleet.ClassID]float64{}}
}

// node returns the node of that id, making room for a new one; nil means that
// the front-end has too many.
func (f *frontEnd) node(id string) *node {
	i, ok := f.find(id)
	if ok {
		return f.nodes[i]
	}
	f.nodes = slices.DeleteFunc(f.nodes, func(n *node) bool {
		return f.heard.Sub(n.heard()) > slowWindow
	})
	if len(f.nodes) >= maxNodes {
		return nil
	}
	i, _ = f.find(id)
	f.nodes = slices.Insert(f.nodes, i, &node{id: id, sent: sent{}})
	return f.nodes[i]
}

func (f *frontEnd) find(id string) (int, bool) {
	return slices.BinarySearchFunc(f.nodes, id, func(n *node, id string) int {
		return cmp.Compare(n.id, id)
	})
}

func (n *node) heard() time.Time { return latest(n.extProc.heard, n.envoy.heard) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (n *node) client(role fleet.Role) *client {
	if role == fleet.RoleExtProc {
		return &n.extProc
	}
	return &n.envoy
}

// observe adds a report. Every class of the fleet gets a sample: one without an
// entry was idle.
func (c *client) observe(now time.Time, classes []fleet.Class, r fleet.LoadReport) {
	counts := map[fleet.ClassID]float64{}
	for i := range r.Classes {
		counts[r.Classes[i].Class] += requests(r.Role, &r.Classes[i])
	}
	c.heard = now
	if c.windows == nil {
		c.windows = map[fleet.ClassID]*window{}
	}
	for i := range classes {
		id := classes[i].ID
		if c.windows[id] == nil {
			c.windows[id] = &window{}
		}
		c.windows[id].add(sample{end: now, span: r.Interval, count: counts[id]})
	}
}

// requests is what a class's entry says of demand.
func requests(role fleet.Role, c *fleet.ClassLoad) float64 {
	if role == fleet.RoleExtProc {
		return float64(c.Arrivals)
	}
	issued := 0.0
	for _, p := range c.Pools {
		issued += float64(p.Issued)
	}
	return issued
}

// fresh says whether the client is heard of about as lately as its front-end.
func (c *client) fresh(frontEnd time.Time) bool {
	return !c.heard.IsZero() && frontEnd.Sub(c.heard) <= clientSilent
}

// demand is what a class's clients ask for; false means that nobody said, as
// when the class is new. Each window is judged for a jump in one company alone, so
// that asking again changes nothing.
func (f *frontEnd) demand(class fleet.ClassID) (fleet.Demand, bool) {
	var counted, standIns, arrivals, issued []*window
	var at time.Time
	for _, n := range f.nodes {
		switch {
		case n.extProc.fresh(f.heard) && !n.bypassed(class):
			at = latest(at, n.extProc.heard)
			counted = n.extProc.collect(counted, class)
			if n.paired() {
				arrivals = n.extProc.collect(arrivals, class)
				issued = n.envoy.collect(issued, class)
			}
		case n.envoy.fresh(f.heard):
			at = latest(at, n.envoy.heard)
			standIns = n.envoy.collect(standIns, class)
		}
	}
	d := fleet.Demand{Rps: level(counted), Source: fleet.SourceArrivals, At: at}
	d.DoubtRps, d.StdErrRps = doubt(counted), noise(counted)
	f.correct(class, mean(arrivals), level(issued))
	if len(standIns) > 0 {
		correction := cmp.Or(f.correction[class], 1)
		d.Rps += level(standIns) * correction
		d.DoubtRps += doubt(standIns) * correction
		more := noise(standIns)
		d.StdErrRps = fleet.StdErr{Value: math.Hypot(d.StdErrRps.Value, correction*more.Value), Known: more.Known}
		d.Source = fleet.SourceEnvoy
	}
	return d, len(counted)+len(standIns) > 0
}

// bypassed says whether the node's Envoy goes on without its weir-extproc, which is
// there and counts nothing: after a restart Envoy is slow to trust it again. Retries,
// the client's and Envoy's, explain nine requests for each arrival and no more.
func (n *node) bypassed(class fleet.ClassID) bool {
	arrived, issued := n.extProc.windows[class], n.envoy.windows[class]
	if !n.paired() || arrived == nil || issued == nil {
		return false
	}
	arrivals, _ := arrived.split()
	attempts, _ := issued.split()
	return attempts.count >= jumpCount && attempts.count > attemptsPerRequest*arrivals.count
}

// paired says whether the node's two clients speak of the same time.
func (n *node) paired() bool { return n.extProc.heard.Sub(n.envoy.heard).Abs() <= fastWindow }

// correct learns how many arrivals stand behind one request that Envoy issued:
// more than one where requests are shed, fewer where Envoy retries.
func (f *frontEnd) correct(class fleet.ClassID, arrivalsRps, issuedRps float64) {
	if issuedRps >= correctionRps {
		f.correction[class] = min(max(arrivalsRps/issuedRps, minCorrection), maxCorrection)
	}
}

func (c *client) collect(ws []*window, class fleet.ClassID) []*window {
	if w := c.windows[class]; w != nil {
		return append(ws, w)
	}
	return ws
}

// retain forgets the classes, and the ways of their requests, that the fleet does not
// name.
func (f *frontEnd) retain(t *Tracker) {
	unknown := func(id fleet.ClassID) bool { return t.classes[id] == nil }
	deleteKeys(f.correction, unknown)
	for _, n := range f.nodes {
		deleteKeys(n.extProc.windows, unknown)
		deleteKeys(n.envoy.windows, unknown)
		n.attempts = slices.DeleteFunc(n.attempts, func(a *attempts) bool { return !t.knows(a.way) })
	}
}

func deleteKeys[K comparable, V any](m map[K]V, drop func(K) bool) {
	for k := range m {
		if drop(k) {
			delete(m, k)
		}
	}
}

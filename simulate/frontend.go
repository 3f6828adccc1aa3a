package simulate

import (
	"math"
	"slices"

	"weir/extproc/gate"
	"weir/fleet"
)

const (
	reportEvery = 1.0 // seconds: what the control plane asks for
	// Envoy's log tells of attempts that last each second, and hands entries on
	// within a tenth of one.
	logEvery, logLag = 1.0, 0.1
	// A front-end measures its way to each pool so often, in the mean.
	roundTripEvery = 7.5
)

// frontEnd is an Envoy with a weir-extproc beside it.
type frontEnd struct {
	id        fleet.FrontEndID
	roundTrip []float64 // by pool
	choices   []choice  // by class: what it was last told
	crowd     crowd
	gates     []gate.Gate // by class
	admission *fleet.Admission
	coming    fifo[word]
	classes   []counts // by class
	notes     []note   // what the log will tell
	spare     []note
	round     uint64
	touched   []int32 // engines of the report that is made
	engines   []engineCounts
}

// word is what the control plane tells a front-end each round.
type word struct {
	choices   []choice
	levels    *fleet.Levels
	admission *fleet.Admission
}

// counts are a class's since the last report, but for what is in flight.
type counts struct {
	arrivals, shed   uint64
	issued, inFlight []uint64 // by pool
}

// note is what the log tells of a request once its time has come.
type note struct {
	at     float64
	class  int32
	engine int32
	pool   int32
	ttft   float64 // seconds
	ends   bool    // it ended; else it had its first token
	gap    float64 // seconds between tokens; 0: it had one token
	tokens fleet.TokenLoad
}

type engineCounts struct {
	ttft, tbt fleet.Buckets
	outcomes  fleet.Outcomes
	noted     bool
}

func newFrontEnd(f *fleet.Fleet, fe *fleet.FrontEnd, replicas int) *frontEnd {
	out := &frontEnd{id: fe.ID, classes: make([]counts, len(f.Classes)), gates: make([]gate.Gate, len(f.Classes)), engines: make([]engineCounts, replicas)}
	out.crowd = newCrowd(len(f.Pools), replicas, f.Options.Hold.Seconds())
	for i := range out.classes {
		out.classes[i].issued = make([]uint64, len(f.Pools))
		out.classes[i].inFlight = make([]uint64, len(f.Pools))
	}
	for i := range f.Pools {
		out.roundTrip = append(out.roundTrip, f.Network.RoundTripSeconds[fleet.Link{FrontEnd: fe.ID, Pool: f.Pools[i].ID}])
	}
	return out
}

// install makes the oldest word under way the one to go by.
func (f *frontEnd) install(w *world) {
	next := f.coming.pop()
	f.choices, f.admission = next.choices, next.admission
	f.crowd.adopt(f.choices)
	f.crowd.learn(w.now, next.levels, w.Fleet, &w.numbers)
}

func (f *frontEnd) send(j *job, pool int32) {
	f.classes[j.Class].issued[pool]++
	f.classes[j.Class].inFlight[pool]++
	f.crowd.engines[j.engine].open++
}

// noteFirst notes a first token: the log tells of it when the attempt has lasted
// another whole second.
func (f *frontEnd) noteFirst(j *job, pool int32) {
	ttft := j.seen - j.arrived
	f.notes = append(f.notes, note{
		at: j.arrived + logEvery*math.Ceil(ttft/logEvery) + logLag, class: int32(j.Class), engine: j.engine, pool: pool, ttft: ttft,
	})
}

// finish notes the end of a request.
func (f *frontEnd) finish(now float64, j *job, pool int32) {
	f.classes[j.Class].inFlight[pool]--
	f.crowd.engines[j.engine].open--
	n := note{at: now + logLag, class: int32(j.Class), engine: j.engine, pool: pool, ends: true}
	n.tokens = fleet.TokenLoad{Requests: 1, Prompt: float64(j.Prompt), Output: float64(j.Output), Cached: float64(j.cached)}
	if j.Output > 1 {
		n.gap = (now - j.seen) / float64(j.Output-1)
	}
	f.notes = append(f.notes, n)
}

// envoy is what its Envoy reports.
func (f *frontEnd) envoy(of *fleet.Fleet) fleet.LoadReport {
	r := fleet.LoadReport{FrontEnd: f.id, Node: string(f.id) + "-1", Role: fleet.RoleEnvoy, Interval: seconds(reportEvery)}
	for i := range f.classes {
		c := &f.classes[i]
		load := fleet.ClassLoad{Class: of.Classes[i].ID}
		for p := range c.issued {
			if c.issued[p] > 0 || c.inFlight[p] > 0 {
				load.Pools = append(load.Pools, fleet.PoolLoad{Pool: of.Pools[p].ID, Issued: c.issued[p], InFlight: c.inFlight[p]})
			}
		}
		clear(c.issued)
		if len(load.Pools) > 0 {
			r.Classes = append(r.Classes, load)
		}
	}
	return r
}

// extProc is what its weir-extproc reports.
func (f *frontEnd) extProc(now float64, w *world) fleet.LoadReport {
	r := fleet.LoadReport{FrontEnd: f.id, Node: string(f.id) + "-1", Role: fleet.RoleExtProc, Interval: seconds(reportEvery)}
	due := f.read(now)
	for i := range f.classes {
		c := &f.classes[i]
		load := fleet.ClassLoad{Class: w.Fleet.Classes[i].ID, Arrivals: c.arrivals, Shed: c.shed}
		c.arrivals, c.shed = 0, 0
		f.sum(&load, int32(i), due, w)
		if load.Arrivals > 0 || load.Tokens.Requests > 0 || len(load.Pools) > 0 {
			r.Classes = append(r.Classes, load)
		}
	}
	r.RoundTrips, r.Open = f.trips(w), f.open(w)
	f.round++
	return r
}

// open counts the open requests at each engine, and notes what was told.
func (f *frontEnd) open(w *world) (out []fleet.EngineOpen) {
	for i := range f.crowd.engines {
		e := &f.crowd.engines[i]
		if e.tell() > 0 {
			out = append(out, fleet.EngineOpen{Pool: w.Fleet.Pools[w.poolOf[i]].ID, Engine: w.replicas[i].id, Open: uint64(e.open)})
		}
	}
	return out
}

// read takes the notes whose time has come.
func (f *frontEnd) read(now float64) []note {
	due := f.spare[:0]
	left := f.notes[:0]
	for _, n := range f.notes {
		if n.at <= now {
			due = append(due, n)
		} else {
			left = append(left, n)
		}
	}
	f.notes, f.spare = left, due
	return due
}

// sum adds up what the log told of a class.
func (f *frontEnd) sum(load *fleet.ClassLoad, class int32, due []note, w *world) {
	f.touched = f.touched[:0]
	for i := range due {
		n := &due[i]
		if n.class != class {
			continue
		}
		e := &f.engines[n.engine]
		if !e.noted {
			*e = engineCounts{noted: true}
			f.touched = append(f.touched, n.engine)
		}
		e.add(n, &load.Tokens)
	}
	slices.Sort(f.touched)
	for _, number := range f.touched {
		e := &f.engines[number]
		pool := w.Fleet.Pools[w.poolOf[number]].ID
		if n := len(load.Pools); n == 0 || load.Pools[n-1].Pool != pool {
			load.Pools = append(load.Pools, fleet.PoolLoad{Pool: pool})
		}
		p := &load.Pools[len(load.Pools)-1]
		p.Engines = append(p.Engines, fleet.EngineLoad{Engine: w.replicas[number].id, Outcomes: e.outcomes, TTFT: e.ttft, TBT: e.tbt})
		*e = engineCounts{}
	}
}

func (e *engineCounts) add(n *note, tokens *fleet.TokenLoad) {
	if !n.ends {
		e.ttft.Observe(n.ttft)
		return
	}
	e.outcomes[fleet.Answered]++
	if n.gap > 0 {
		e.tbt.Observe(n.gap)
	}
	tokens.Requests++
	tokens.Prompt += n.tokens.Prompt
	tokens.Output += n.tokens.Output
	tokens.Cached += n.tokens.Cached
}

// trips are the round trips that were measured since the last report: each pool's in
// its turn, once every few reports.
func (f *frontEnd) trips(w *world) []fleet.RoundTrip {
	var out []fleet.RoundTrip
	for p := range f.roundTrip {
		luck := w.luck(6, hashOf("front-end", string(f.id)), uint64(p), f.round)
		if unit(luck) < reportEvery/roundTripEvery {
			trip := f.roundTrip[p]
			if noise := w.Delays.NetworkNoise; noise > 0 {
				trip *= math.Exp(noise * normal(mix(luck)) / math.Sqrt2) // of two ways
			}
			out = append(out, fleet.RoundTrip{Pool: w.Fleet.Pools[p].ID, Count: 1, Seconds: trip})
		}
	}
	return out
}

package simulate

import (
	"math"

	"weir/fleet"
	"weir/signals"
)

// eventKind says what is due.
type eventKind uint8

// Kinds of events of the world. What they concern is a request's place, or the number
// of a front-end, replica or fault.
const (
	opens       eventKind = iota // a request of Workload.Next comes to its front-end
	follows                      // a next turn does
	reaches                      // a request comes to its engine
	returns                      // an answer's last token comes to its client
	reports                      // a front-end's Envoy and weir-extproc report
	hears                        // the control plane gets the oldest report under way
	looks                        // an engine is probed and its page is read
	learns                       // the control plane gets what was seen of it
	ticks                        // the control plane plans
	installs                     // a front-end gets its oldest view under way
	breaks                       // a fault begins
	beginsCount                  // measuring begins
	endsCount                    // measuring ends
	endsPart                     // one part of the run ends
	gatesStep                    // gates are brought up to date
)

// world is the state of a run.
type world struct {
	*Config
	now       float64
	jobs      *jobs
	events    timers
	due       *agenda // of replicas
	replicas  []*replica
	numbers   numbers
	poolOf    []int32 // by replica
	frontEnds []*frontEnd
	plane     plane
	tally     tally
	parts     parts
	stopped   error // by who watches
}

func newWorld(c *Config) *world {
	w := &world{Config: c, jobs: newJobs(), numbers: numbers{map[fleet.PoolID]int32{}, map[fleet.EngineID]int32{}}}
	for i := range c.Fleet.Pools {
		p := &c.Fleet.Pools[i]
		e := c.Engines[p.ID]
		w.numbers.pools[p.ID] = int32(i)
		for _, id := range p.Engines {
			w.numbers.engines[id] = int32(len(w.replicas))
			w.replicas = append(w.replicas, newReplica(&e, id, w.jobs))
			w.poolOf = append(w.poolOf, int32(i))
		}
	}
	w.due = newAgenda(len(w.replicas))
	for i := range c.Fleet.FrontEnds {
		w.frontEnds = append(w.frontEnds, newFrontEnd(c.Fleet, &c.Fleet.FrontEnds[i], len(w.replicas)))
	}
	w.plane = newPlane(c.Fleet, signals.NewTracker(c.Fleet), len(w.replicas))
	w.tally = newTally(len(c.Fleet.FrontEnds), len(c.Fleet.Pools))
	w.parts = newParts(c.Parts, c.Seconds, len(c.Fleet.Pools))
	return w
}

// luck draws the same number for the same seed and things, whatever the policy.
func (w *world) luck(things ...uint64) uint64 {
	h := mix(w.Seed)
	for _, x := range things {
		h = mix(h ^ x)
	}
	return h
}

// begin makes the first plan and sets what happens of its own accord.
func (w *world) begin() error {
	if err := w.start(); err != nil {
		return err
	}
	for i := range w.frontEnds {
		w.events.push(unit(w.luck(1, uint64(i))), reports, int32(i))
	}
	for i := range w.replicas {
		w.events.push(unit(w.luck(2, uint64(i))), looks, int32(i))
	}
	for i := range w.Faults {
		w.events.push(w.Faults[i].At, breaks, int32(i))
	}
	w.events.push(0, gatesStep, 0)
	w.events.push(w.WarmUpSeconds, beginsCount, 0)
	w.events.push(w.Seconds, endsCount, 0)
	for i := range w.parts.all {
		w.events.push(w.parts.all[i].At+w.parts.seconds, endsPart, int32(i))
	}
	w.warm()
	w.open()
	return nil
}

// warm fills the engines' caches with what was said before the run.
func (w *world) warm() {
	for _, r := range w.Workload.Past() {
		f := w.frontEnds[r.FrontEnd]
		if number := f.crowd.place(0, &f.choices[r.Class], r.Key, bytesPerToken*r.Prompt); number != none {
			w.replicas[number].cache.add(r.Context)
		}
	}
}

// open lets the next request of the workload come.
func (w *world) open() {
	if r, ok := w.Workload.Next(); ok {
		w.come(&r, opens)
	}
}

// come lets a request come unless the run has ended by then.
func (w *world) come(r *Request, kind eventKind) {
	if r.At < w.Seconds {
		at := max(w.now, r.At)
		w.events.push(at, kind, w.jobs.add(*r, w.luck(r.Key, uint64(r.Turn))))
	}
}

// run lets things happen until every request has been answered and none will come, or
// time is up.
func (w *world) run() {
	for w.stopped == nil && (w.now <= w.Seconds || w.tally.underWay() > 0) {
		if !w.next(w.Seconds + w.DrainSeconds) {
			break
		}
	}
	w.now = max(w.now, w.Seconds)
	for _, r := range w.replicas {
		r.advance(w.now)
	}
}

// next lets the next thing happen; false means that it would be later than end.
func (w *world) next(end float64) bool {
	at, replica := w.events.next(), w.due.next()
	switch {
	case min(at, replica) > end:
		return false
	case replica <= at:
		w.now = replica
		w.step(w.due.first())
	default:
		w.now = at
		w.happen(w.events.pop())
	}
	return true
}

func (w *world) happen(e timer) {
	switch e.kind {
	case opens:
		w.arrive(e.what)
		w.open()
	case follows:
		w.arrive(e.what)
	case reaches:
		w.reach(e.what)
	case returns:
		w.finish(e.what)
	case reports:
		w.report(e.what)
	case hears:
		w.hear()
	case looks:
		w.look(e.what)
	case learns:
		w.learn(e.what)
	case ticks:
		w.tick()
	case installs:
		w.frontEnds[e.what].install(w)
	case breaks:
		w.shatter(&w.Faults[e.what])
	case beginsCount:
		w.workByPool(w.tally.began)
	case endsCount:
		w.workByPool(w.tally.ended)
	case gatesStep:
		w.stepGates()
	case endsPart:
		w.endPart(int(e.what))
	}
}

// arrive is a request at its front-end.
func (w *world) arrive(id int32) {
	j := w.jobs.at(id)
	j.arrived = w.now
	f := w.frontEnds[j.FrontEnd]
	choice := &f.choices[j.Class]
	admitted := f.admits(j, choice, w.ongoing(j))
	if j.engine = none; admitted {
		j.engine = f.crowd.place(w.now, choice, j.Key, bytesPerToken*j.Prompt)
		admitted = j.engine != none
	}
	f.classes[j.Class].arrivals++
	w.tally.arrive(w.measures(j))
	w.parts.arrive(j, admitted)
	if !admitted {
		f.classes[j.Class].shed++
		w.tally.refuse(w.measures(j))
		w.goOn(j)
		w.jobs.drop(id)
		return
	}
	pool := w.poolOf[j.engine]
	f.send(j, pool)
	w.events.push(w.now+w.way(j, pool, 3), reaches, id)
}

// measures says whether the request counts.
func (w *world) measures(j *job) bool { return j.arrived >= w.WarmUpSeconds }

// way is how long one way to a pool takes for a request, seconds.
func (w *world) way(j *job, pool int32, draw uint64) float64 {
	way := w.frontEnds[j.FrontEnd].roundTrip[pool] / 2
	if w.Delays.NetworkNoise > 0 {
		way *= math.Exp(w.Delays.NetworkNoise * normal(mix(j.luck+draw)))
	}
	return way
}

// reach is a request at its engine.
func (w *world) reach(id int32) {
	number := w.jobs.at(id).engine
	r := w.replicas[number]
	r.arrive(w.now, id)
	w.due.set(number, r.next())
	w.tally.reach(w.jobs.at(id), r, w.measures(w.jobs.at(id)))
	if w.measures(w.jobs.at(id)) {
		w.tally.priceSeconds += w.Fleet.Pools[w.poolOf[number]].PriceSeconds
	}
}

// step does what is due at a replica.
func (w *world) step(number int32) {
	r := w.replicas[number]
	id, what := r.step(w.now)
	w.due.set(number, r.next())
	j := w.jobs.at(id)
	pool := w.poolOf[number]
	switch what {
	case firstToken:
		j.seen = w.now + w.way(j, pool, 4)
		w.frontEnds[j.FrontEnd].noteFirst(j, pool)
	case ended:
		j.left = w.now
		w.tally.sojourns += w.now - j.reached
		w.events.push(max(j.seen, w.now+w.way(j, pool, 5)), returns, id)
	}
}

// finish is an answer that is whole at its client.
func (w *world) finish(id int32) {
	j := w.jobs.at(id)
	w.frontEnds[j.FrontEnd].finish(w.now, j, w.poolOf[j.engine])
	w.tally.finish(w.now, j, w.link(j), w.measures(j))
	w.parts.finish(w.now, j)
	w.goOn(j)
	w.jobs.drop(id)
}

// goOn lets the next turn come.
func (w *world) goOn(j *job) {
	if next, ok := w.Workload.After(&j.Request, w.now); ok {
		w.come(&next, follows)
	}
}

func (w *world) shatter(f *Fault) {
	for i, r := range w.replicas {
		if w.Fleet.Pools[w.poolOf[i]].ID == f.Pool {
			r.slow = f.Slow
		}
	}
}

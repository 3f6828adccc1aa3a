package simulate

import (
	"cmp"
	"fmt"
	"time"

	"weir/fleet"
	"weir/signals"
	"weir/signals/dialect"
	"weir/signals/scrape"
)

const (
	defaultTick = 2.0 // seconds, where the fleet does not say
	lookEvery   = 1.0 // seconds between two probes, and two scrapes, of an engine
)

// plane is the control plane.
type plane struct {
	tracker *signals.Tracker
	plan    *fleet.Plan // in force
	planned float64     // when it was made
	mail    fifo[fleet.LoadReport]
	seen    []scrape.Sample // by replica, on its way
	pages   []page          // by replica, as last read
	rounds  int
	held    int // rounds without a new plan
}

// page is what an engine's page said when it was last read.
type page struct {
	told
	output float64
	at     time.Time
}

func newPlane(f *fleet.Fleet, t *signals.Tracker, replicas int) plane {
	return plane{tracker: t, seen: make([]scrape.Sample, replicas), pages: make([]page, replicas)}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// start probes every engine, as the loop does before its first plan, and has all
// front-ends begin with that.
func (w *world) start() error {
	for i := range w.replicas {
		w.probe(int32(i))
	}
	plan, err := w.Policy(w.plane.tracker.State(date(0), nil))
	if err != nil {
		return fmt.Errorf("no first plan: %w", err)
	}
	w.plane.plan = plan
	w.publish(w.plane.tracker.State(date(0), nil))
	for _, f := range w.frontEnds {
		f.install(w)
	}
	w.events = timers{} // nothing of it is under way
	w.events.push(w.tickSeconds(), ticks, 0)
	return nil
}

func (w *world) tickSeconds() float64 {
	return cmp.Or(max(0, w.Fleet.Options.Tick.Seconds()), defaultTick)
}

func (w *world) probe(number int32) {
	p := signals.Probe{Pool: w.Fleet.Pools[w.poolOf[number]].ID, Engine: w.replicas[number].id, Answered: true}
	w.plane.tracker.ObserveProbe(date(w.now), p)
}

// report sends off both reports of a front-end.
func (w *world) report(number int32) {
	f := w.frontEnds[number]
	for _, r := range []fleet.LoadReport{f.envoy(w.Fleet), f.extProc(w.now, w)} {
		w.plane.mail.push(r)
		w.events.push(w.now+w.Delays.ControlWay, hears, 0)
	}
	f.crowd.tick(w.now, w.tickSeconds())
	w.events.push(w.now+reportEvery, reports, number)
}

func (w *world) hear() { w.plane.tracker.ObserveLoad(date(w.now), w.plane.mail.pop()) }

// look reads an engine's page.
func (w *world) look(number int32) {
	r := w.replicas[number]
	r.advance(w.now)
	was, is := &w.plane.pages[number], page{told: r.told, output: r.outputTokens(), at: date(w.now)}
	s := &w.plane.seen[number]
	*s = scrape.Sample{Pool: w.Fleet.Pools[w.poolOf[number]].ID, Engine: r.id, Dialect: "vllm"}
	s.Values.Running, s.Values.Waiting = dialect.Is(float64(r.told.running)), dialect.Is(float64(r.told.queued))
	s.Values.KVUsage = dialect.Is(min(1, r.heldTokens()/float64(r.KVTokens)))
	s.Values.PromptTokens, s.Values.GeneratedTokens = dialect.Is(is.promptTokens), dialect.Is(is.output)
	if !was.at.IsZero() {
		s.Over = is.at.Sub(was.at)
		s.Window.TTFT = dialect.Histogram{Count: dialect.Is(is.ttftCount - was.ttftCount), Sum: dialect.Is(is.ttftSum - was.ttftSum)}
		s.Window.TBT = dialect.Histogram{Count: dialect.Is(is.tokenCount - was.tokenCount), Sum: dialect.Is(is.tokenTime - was.tokenTime)}
	}
	*was = is
	w.events.push(w.now+w.Delays.ControlWay, learns, number)
	w.events.push(w.now+lookEvery, looks, number)
}

func (w *world) learn(number int32) {
	s := w.plane.seen[number]
	s.At, s.ReadAt = date(w.now), date(w.now)
	w.plane.tracker.ObserveSample(s)
	w.probe(number)
}

// tick observes, plans and publishes, as the loop does, without its guards. A plan
// that cannot be made leaves the last one in force.
func (w *world) tick() {
	p := &w.plane
	s := p.tracker.State(date(w.now), p.plan)
	s.ElapsedSeconds = w.now - p.planned
	p.rounds++
	if plan, err := w.Policy(s); err != nil {
		p.held++
	} else {
		w.tally.replan(p.plan, plan, w.now >= w.WarmUpSeconds && w.now < w.Seconds)
		p.plan, p.planned = plan, w.now
	}
	w.publish(s)
	w.events.push(w.now+w.tickSeconds(), ticks, 0)
	if w.Watch != nil {
		w.stopped = w.Watch(w.now)
	}
}

// publish tells every front-end its part of the plan in force, and how full the
// engines are.
func (w *world) publish(s *fleet.State) {
	levels, admissions := fleet.NewLevels(s, w.plane.plan, date(w.now)), fleet.NewAdmissions(s, w.plane.plan)
	for i, f := range w.frontEnds {
		v := fleet.NewView(s, w.plane.plan, f.id)
		choices := make([]choice, len(w.Fleet.Classes))
		for k := range w.Fleet.Classes {
			choices[k] = newChoice(v.Class(w.Fleet.Classes[k].ID), &w.numbers)
		}
		f.coming.push(word{choices, levels, admissions[f.id]})
		w.events.push(w.now+w.Delays.Planning+w.Delays.ControlWay, installs, int32(i))
	}
}

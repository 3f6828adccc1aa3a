package simulate

import (
	"slices"
	"time"

	"weir/extproc/gate"
	"weir/fleet"
)

// gateEvery is how often weir-extproc brings its gates up to date.
const gateEvery = 100 * time.Millisecond

// admits says whether a request may enter: the gate of its class decides, which goes by
// the plan's fraction and, between two plans, by what can be served.
func (f *frontEnd) admits(j *job, c *choice, ongoing bool) bool {
	kind := gate.Fresh
	if ongoing {
		kind = gate.Ongoing
	}
	ok, _ := f.gates[j.Class].Admit(0, kind, c.draw(j.Key), c.admitted)
	return ok
}

// ongoing says whether a conversation was let in before.
func (w *world) ongoing(j *job) bool {
	_, known := w.tally.talks[j.Key]
	return known
}

// stepGates brings all gates up to date.
func (w *world) stepGates() {
	for _, f := range w.frontEnds {
		use := func(id fleet.ClassID) gate.Use {
			return f.use(slices.IndexFunc(w.Fleet.Classes, func(c fleet.Class) bool { return c.ID == id }))
		}
		for i := range f.gates { // the front-end has one Envoy, which takes in all
			f.gates[i].Step(gateEvery, gate.NewLimit(f.admission, w.Fleet.Classes[i].ID, f.choices[i].admitted, 1, use))
		}
	}
	w.events.push(w.now+gateEvery.Seconds(), gatesStep, 0)
}

// use is what a front-end has of a class.
func (f *frontEnd) use(class int) gate.Use {
	out := gate.Use{EnteredRps: f.gates[class].EnteredRps()}
	for _, n := range f.classes[class].inFlight {
		out.Open += float64(n)
	}
	return out
}

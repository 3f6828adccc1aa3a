package simulate

import (
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
		for i := range f.gates {
			f.gates[i].Step(gateEvery, f.limit(i, w.Fleet.Classes[i].ID))
		}
	}
	w.events.push(w.now+gateEvery.Seconds(), gatesStep, 0)
}

// limit is what the control plane last said of a class. The front-end has one Envoy,
// which takes in all of it.
func (f *frontEnd) limit(class int, id fleet.ClassID) gate.Limit {
	l := gate.Limit{Planned: f.choices[class].admitted, CeilingRps: gate.Unknown}
	for _, n := range f.classes[class].inFlight {
		l.Open += float64(n)
	}
	if told := f.admission.Class(id); told != nil && told.CeilingRps.Known {
		l.CeilingRps, l.Strict = told.CeilingRps.Value, told.Limited && !told.Short
	}
	return l
}

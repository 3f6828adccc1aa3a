package simulate

import "weir/fleet"

// maxParts bounds what is kept of a run's course.
const maxParts = 10_000

// Part is what happened in one part of a run.
type Part struct {
	At               float64 // its start
	Arrived, Refused int
	TTFT, EndToEnd   fleet.Buckets // of those that arrived in it and were answered
	Utilisations     []float64     // by pool: work that came / what its engines can do
}

// parts keeps the course of a run. The zero value keeps nothing.
type parts struct {
	all     []Part
	seconds float64   // of each
	work    []float64 // by pool, up to the end of the last one
	now     []float64
}

func newParts(n int, seconds float64, pools int) parts {
	p := parts{all: make([]Part, n), work: make([]float64, pools), now: make([]float64, pools)}
	if n > 0 {
		p.seconds = seconds / float64(n)
	}
	for i := range p.all {
		p.all[i].At = p.seconds * float64(i)
	}
	return p
}

// of is the part in which a request arrived; nil: nothing is kept.
func (p *parts) of(j *job) *Part {
	if len(p.all) == 0 {
		return nil
	}
	return &p.all[min(int(j.arrived/p.seconds), len(p.all)-1)]
}

func (p *parts) arrive(j *job, admitted bool) {
	part := p.of(j)
	if part == nil {
		return
	}
	part.Arrived++
	if !admitted {
		part.Refused++
	}
}

func (p *parts) finish(now float64, j *job) {
	if part := p.of(j); part != nil {
		part.TTFT.Observe(j.seen - j.arrived)
		part.EndToEnd.Observe(now - j.arrived)
	}
}

// endPart notes how busy pools were in a part.
func (w *world) endPart(number int) {
	p := &w.parts
	w.workByPool(p.now)
	out := make([]float64, len(p.now))
	for i := range out {
		pool := &w.Fleet.Pools[i]
		can := w.Engines[pool.ID].CapacityRps * float64(len(pool.Engines)) * p.seconds
		out[i] = (p.now[i] - p.work[i]) / can
	}
	p.all[number].Utilisations = out
	p.work, p.now = p.now, p.work
}

package simulate

import "weir/fleet"

// LinkUse is what a front-end sent to a pool, and how long that took.
type LinkUse struct {
	Requests        int
	Share           float64 // of what the front-end let in
	TTFTSeconds     float64 // mean, as clients saw it; those under way count with their age
	EndToEndSeconds float64 // mean, likewise
}

// linkTally adds up what went over a link.
type linkTally struct {
	requests       int
	ttft, endToEnd float64 // seconds
}

func (l *linkTally) add(ttft, endToEnd float64) {
	l.requests++
	l.ttft += ttft
	l.endToEnd += endToEnd
}

// link is where a request's way is counted.
func (w *world) link(j *job) *linkTally {
	return &w.tally.links[j.FrontEnd*len(w.Fleet.Pools)+int(w.poolOf[j.engine])]
}

// links are the ways that were used.
func (w *world) links() map[fleet.Link]LinkUse {
	out := map[fleet.Link]LinkUse{}
	for i := range w.Fleet.FrontEnds {
		row := w.tally.links[i*len(w.Fleet.Pools):][:len(w.Fleet.Pools)]
		all := 0
		for k := range row {
			all += row[k].requests
		}
		for k, l := range row {
			if n := float64(l.requests); n > 0 {
				at := fleet.Link{FrontEnd: w.Fleet.FrontEnds[i].ID, Pool: w.Fleet.Pools[k].ID}
				out[at] = LinkUse{l.requests, n / float64(all), l.ttft / n, l.endToEnd / n}
			}
		}
	}
	return out
}

package penalty

import (
	"math"
	"time"
)

const (
	slot  = 500 * time.Millisecond
	slots = 16
)

// window has the marks of the last seconds, by when their requests began: so that those
// of one engine are compared with those of others at the same time. What is known later
// than that is filed by when it is known.
type window struct {
	newest int64 // slot
	marks  [slots]sum
}

// sum counts marks.
type sum struct{ all, bad float64 }

func slotOf(t time.Time) int64 { return t.UnixMilli() / slot.Milliseconds() }

func (w *window) add(began time.Time, bad bool) {
	at := slotOf(began)
	if at <= w.newest-slots || at < 0 {
		return
	}
	for n := max(w.newest, at-slots); n < at; n++ {
		w.marks[(n+1)%slots] = sum{}
	}
	w.newest = max(w.newest, at)
	m := &w.marks[at%slots]
	m.all++
	if bad {
		m.bad++
	}
}

// filed is when a request is taken to have begun: what is known too late for the window is of
// the time when it is known, at all engines alike.
func filed(began, now time.Time) (_ time.Time, late bool) {
	if now.Sub(began) > (slots-2)*slot {
		return now, true
	}
	return began, false
}

// ahead says whether the window has marks of a time that is yet to come.
func (w *window) ahead(now time.Time) bool { return w.newest > slotOf(now)+1 }

// last is when the latest request began that has a mark, or a little earlier.
func (w *window) last() time.Time { return time.Unix(0, w.newest*int64(slot)) }

// since adds up the marks of requests that began from then on.
func (w *window) since(began, now time.Time) (out sum) {
	for n := max(slotOf(began), slotOf(now)-slots+1, w.newest-slots+1, 0); n <= w.newest; n++ {
		out.add(w.marks[n%slots])
	}
	return out
}

func (s *sum) add(o sum) {
	s.all += o.all
	s.bad += o.bad
}

func (s *sum) rate() float64 { return s.bad / max(1, s.all) }

// cautious is a rate that is not 0 for want of marks.
func (s *sum) cautious() float64 { return (s.bad + 0.5) / (s.all + 1) }

// differ is by how much likelier two counts are if their rates differ: the statistic G,
// which has a χ² distribution of one degree of freedom if they do not. Below 0: the first
// rate is lower.
func differ(a, b sum) float64 {
	both := (a.bad + b.bad) / (a.all + b.all)
	g := 2 * (gain(a, both) + gain(b, both))
	if a.rate() < b.rate() {
		return -g
	}
	return g
}

func gain(s sum, rate float64) float64 {
	return likelier(s.bad, s.all*rate) + likelier(s.all-s.bad, s.all*(1-rate))
}

func likelier(seen, expected float64) float64 {
	if seen == 0 {
		return 0
	}
	return seen * math.Log(seen/expected)
}

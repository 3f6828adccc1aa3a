package extproc

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"weir/fleet"
)

// maxClasses bounds the ledger should nobody take from it.
const maxClasses = 10_000

// ledger counts per class, whatever table the requests were decided by.
type ledger struct {
	mu      sync.Mutex // guards classes and what is in them
	classes map[fleet.ClassID]*tally
	beyond  atomic.Uint64 // counts lost to the bound
}

type tally struct {
	arrivals, shed uint64
	open           map[fleet.EngineID]int
}

func newLedger() ledger { return ledger{classes: map[fleet.ClassID]*tally{}} }

// at returns a class's tally. Beyond the bound it is one that nobody reads.
func (l *ledger) at(id fleet.ClassID) *tally {
	t := l.classes[id]
	if t == nil {
		t = &tally{open: map[fleet.EngineID]int{}}
		if len(l.classes) < maxClasses {
			l.classes[id] = t
		} else {
			l.beyond.Add(1)
		}
	}
	return t
}

// arrive counts a request that a client asks for the first time: retries are no
// demand. Only such are counted as shed, so that shed is a part of arrivals.
func (l *ledger) arrive(d *decision, clientRetry bool) {
	if d.class == nil || clientRetry {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.at(d.class.id)
	t.arrivals++
	if d.refusal != nil && d.refusal.reason == reasonShed {
		t.shed++
	}
}

func (l *ledger) enter(c fleet.ClassID, e fleet.EngineID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at(c).open[e]++
}

func (l *ledger) leave(c fleet.ClassID, e fleet.EngineID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := l.at(c).open
	if open[e]--; open[e] <= 0 {
		delete(open, e)
	}
}

func (l *ledger) inFlight(c fleet.ClassID, e fleet.EngineID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.classes[c]; t != nil {
		return t.open[e]
	}
	return 0
}

// take returns the counts by class and sets them back. Classes that nothing is
// known of any more are forgotten.
func (l *ledger) take() []fleet.ClassLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []fleet.ClassLoad
	for id, t := range l.classes {
		if t.arrivals > 0 {
			out = append(out, fleet.ClassLoad{Class: id, Arrivals: t.arrivals, Shed: t.shed})
		}
		t.arrivals, t.shed = 0, 0
		if len(t.open) == 0 {
			delete(l.classes, id)
		}
	}
	slices.SortFunc(out, func(a, b fleet.ClassLoad) int { return cmp.Compare(a.Class, b.Class) })
	return out
}

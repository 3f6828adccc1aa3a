package discover

import (
	"fmt"
	"slices"
	"time"

	"weir/fleet"
)

// drainAtLeast is how long an engine that leaves stays at least, unless it is known to
// be unready: for so long a request may be on its way that was sent before anybody was
// told, and nobody reports it open yet.
const drainAtLeast = 5 * time.Second

// Book keeps what sources have said and makes the fleet of it. It belongs to one
// goroutine, save its Counters.
type Book struct {
	Counters Counters

	file  *fleet.Fleet // as the file has it
	pools map[fleet.PoolID]*entry
	fleet *fleet.Fleet // with what was discovered; replaced, never changed
	from  *fleet.Fleet // the file that it was made of
}

// entry is what is known of one pool's source.
type entry struct {
	pool    fleet.PoolID
	source  fleet.Discovery
	heard   time.Time        // when the source last answered; zero: it has not
	kept    bool             // told is from before
	told    []fleet.EngineID // the last answer that was believed, sorted
	unready int              // that the last answer names as unready
	empty   time.Time        // since when it answers without engines and is doubted; zero: it is not
	problem string           // why told is not sure; empty: it is
	refused int              // of told, that the pool does not get
	why     string           // why not

	engines map[fleet.EngineID]bool
	leaving map[fleet.EngineID]time.Time // since when
}

// NewBook returns a book of a fleet file whose sources have said nothing yet. Pools
// begin with what is kept of them, if anything is.
func NewBook(f *fleet.Fleet, kept map[fleet.PoolID][]fleet.EngineID) *Book {
	b := &Book{pools: map[fleet.PoolID]*entry{}}
	b.SetFleet(time.Time{}, f)
	for id, e := range b.pools {
		e.keep(kept[id])
	}
	b.rebuild(time.Time{})
	return b
}

// Fleet is the file's fleet with the engines that were discovered. It is another one
// whenever anything in it has changed.
func (b *Book) Fleet() *fleet.Fleet { return b.fleet }

// SetFleet replaces the fleet file. Pools with the same source keep what it said; one
// with another source keeps its engines until that has answered.
func (b *Book) SetFleet(now time.Time, f *fleet.Fleet) {
	pools := map[fleet.PoolID]*entry{}
	for i := range f.Pools {
		p := &f.Pools[i]
		if p.Discovery == nil {
			continue
		}
		e := b.pools[p.ID]
		if e == nil {
			e = &entry{pool: p.ID, engines: map[fleet.EngineID]bool{}, leaving: map[fleet.EngineID]time.Time{}}
			e.keep(b.listed(p.ID))
		} else if e.source != *p.Discovery {
			e.heard, e.kept, e.empty, e.problem = time.Time{}, len(e.told) > 0, time.Time{}, ""
		}
		e.source = *p.Discovery
		pools[p.ID] = e
	}
	b.file, b.pools = f, pools
	b.rebuild(now)
}

// listed are the engines that the file listed of a pool.
func (b *Book) listed(id fleet.PoolID) []fleet.EngineID {
	if b.file == nil {
		return nil
	}
	if p := b.file.Pool(id); p != nil {
		return p.Engines
	}
	return nil
}

// keep begins with the engines of before.
func (e *entry) keep(engines []fleet.EngineID) {
	if len(engines) > 0 {
		e.told, e.kept = engines, true
	}
}

// Observe takes an answer that came now. One of a source that its pool no longer has
// says nothing.
func (b *Book) Observe(now time.Time, a *Answer) {
	e := b.pools[a.Pool]
	switch {
	case e == nil || e.source != a.Source:
		return
	case a.Err == nil && len(a.Engines) > MaxPoolEngines:
		b.fail(e, fmt.Errorf("%w: %d, at most %d", errTooMany, len(a.Engines), MaxPoolEngines))
		return
	case a.Err != nil:
		b.fail(e, a.Err)
		return
	}
	e.heard, e.problem, e.unready = now, "", len(a.Unready)
	b.Counters.Answers.Add(1)
	told := sorted(a.Engines)
	if silent := e.unmentioned(a); len(told) == 0 && len(silent) > 0 {
		b.Counters.Doubted.Add(1)
		b.doubt(now, e, silent)
	} else {
		b.believe(now, e, told)
	}
	if e.leaveOut(a.Unready) {
		b.assemble()
	}
}

// unmentioned are the engines of the last answer that one without engines says nothing
// of. Who says of each engine that it ends or is unready has not forgotten it.
func (e *entry) unmentioned(a *Answer) []fleet.EngineID {
	if len(a.Leaving)+len(a.Unready) == 0 {
		return e.told
	}
	named := make(map[fleet.EngineID]bool, len(a.Leaving)+len(a.Unready))
	for _, engines := range [][]fleet.EngineID{a.Leaving, a.Unready} {
		for _, engine := range engines {
			named[engine] = true
		}
	}
	var silent []fleet.EngineID
	for _, engine := range e.told {
		if !named[engine] {
			silent = append(silent, engine)
		}
	}
	return silent
}

// believe puts an answer in force.
func (b *Book) believe(now time.Time, e *entry, told []fleet.EngineID) {
	news := !slices.Equal(told, e.told)
	e.told, e.kept, e.empty, e.problem = told, false, time.Time{}, ""
	switch {
	case news:
		b.rebuild(now)
	case b.fleet.Pool(e.pool).Awaited:
		b.assemble()
	}
}

func (b *Book) fail(e *entry, err error) {
	b.Counters.Failed.Add(1)
	e.empty, e.problem = time.Time{}, err.Error()
}

// doubt holds on to the last answer while there is another without engines: to those of
// it that the other says nothing of.
func (b *Book) doubt(now time.Time, e *entry, silent []fleet.EngineID) {
	if len(silent) < len(e.told) {
		e.told = silent
		b.rebuild(now)
	}
	if e.empty.IsZero() {
		e.empty = now
	}
	e.problem = fmt.Sprintf("names no engine since %s: not believed until it has lasted %v",
		e.empty.UTC().Format(time.TimeOnly), e.source.Doubt)
}

// Settle believes what has been doubted for long enough, and leaves out the engines
// whose requests have ended, as ended says, or whose time is up.
func (b *Book) Settle(now time.Time, ended func(fleet.PoolID, fleet.EngineID) Ending) {
	for id, e := range b.pools {
		if !e.empty.IsZero() && now.Sub(e.empty) >= e.source.Doubt {
			b.believe(now, e, nil)
		}
		var gone []fleet.EngineID
		for engine, since := range e.leaving {
			if b.over(ended(id, engine), now.Sub(since), e.source.Drain) {
				gone = append(gone, engine)
			}
		}
		if e.leaveOut(gone) {
			b.assemble()
		}
	}
}

// over says whether an engine that has been leaving for a time need not stay longer.
func (b *Book) over(known Ending, drained, most time.Duration) bool {
	switch {
	case known == Unready:
		return true
	case known == Idle:
		return drained >= min(drainAtLeast, most)
	case drained >= most:
		b.Counters.Cut.Add(1)
		return true
	}
	return false
}

// Ending is what is known of the requests of an engine that leaves.
type Ending int

// What may be known.
const (
	Busy    Ending = iota // it has some, or nobody knows
	Idle                  // it has none
	Unready               // it can serve none
)

// Sources are the states of all sources, by pool; nil: there are none.
func (b *Book) Sources() map[fleet.PoolID]fleet.SourceState {
	if len(b.pools) == 0 {
		return nil
	}
	out := make(map[fleet.PoolID]fleet.SourceState, len(b.pools))
	for id, e := range b.pools {
		out[id] = fleet.SourceState{Heard: e.heard, Engines: len(e.engines), Leaving: len(e.leaving), Refused: e.refused, Problem: e.complaint()}
	}
	return out
}

// complaint puts into words why a pool's engines are not as its source has them.
func (e *entry) complaint() string {
	switch {
	case e.problem != "" && len(e.told) > 0:
		return e.problem + "; its last answer stays"
	case e.problem != "":
		return e.problem
	case e.kept:
		return "has not answered yet: the engines are those of before"
	case e.heard.IsZero():
		return "has not answered yet"
	case len(e.told) == 0 && e.unready > 0:
		return fmt.Sprintf("names no engine that is ready, of %d", e.unready)
	case len(e.told) == 0:
		return "names no engine"
	}
	return e.why
}

// Answers are the engines of all pools that have sources, to begin with after a
// restart; nil: there are none. They are not to be changed.
func (b *Book) Answers() map[fleet.PoolID][]fleet.EngineID {
	var out map[fleet.PoolID][]fleet.EngineID
	for id, e := range b.pools {
		if len(e.told) == 0 {
			continue
		}
		if out == nil {
			out = make(map[fleet.PoolID][]fleet.EngineID, len(b.pools))
		}
		out[id] = e.told
	}
	return out
}

func sorted(engines []fleet.EngineID) []fleet.EngineID {
	out := slices.Clone(engines)
	slices.Sort(out)
	return slices.Compact(out)
}

package signals

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weir/fleet"
	"weir/signals/dialect"
	"weir/signals/scrape"
)

const (
	// meanTau smooths the means of TTFT and TBT of one engine's pages.
	meanTau = 8 * time.Second
	// frozenAfter is how long a page may say the same while its engine answers
	// requests before it is not believed any more.
	frozenAfter = 15 * time.Second
	// doubtAfter is how long until nothing is concluded from what it says: with what a
	// report lags, sooner than a queue on it could stand.
	doubtAfter = 2 * time.Second
	// reportLag is how long before its interval what a report counts may have happened:
	// of a request under way Envoy tells each second.
	reportLag = time.Second
	// A queue stands when every page over queueStands has it: bursts pass through.
	// Pages of half that time are too few to tell.
	queueStands = 5 * time.Second
)

// told is what one engine's pages said.
type told struct {
	last      scrape.Sample
	ttft, tbt average
	moved     time.Time // when a page last said something else than the one before
	still     time.Time // since when the engine answers requests and its page stands still; zero: it does not
	waiting   []waiting // by time, within queueStands of the newest
}

// waiting is how many requests wait, by one page.
type waiting struct {
	at       time.Time
	requests float64
}

// queue is how many requests wait at an engine, or at each of several.
type queue struct {
	standing float64 // on each page lately: they are not just passing through
	newest   float64 // on the last page
	seen     bool    // pages tell
}

// observe takes what a scrape says.
func (e *told) observe(s scrape.Sample) {
	if s.Err == nil {
		if moved(&e.last, &s) {
			e.moved, e.still = s.At, time.Time{}
		}
		accumulate(s.At, &e.ttft, s.Window.TTFT)
		accumulate(s.At, &e.tbt, s.Window.TBT)
		e.observeWaiting(s.At, s.Values.Waiting)
	}
	e.last = s
}

func (e *told) observeWaiting(at time.Time, v dialect.Value) {
	if !v.Known() {
		e.waiting = nil
		return
	}
	e.waiting = slices.DeleteFunc(e.waiting, func(w waiting) bool { return at.Sub(w.at) > queueStands })
	e.waiting = append(e.waiting, waiting{at, v.X})
}

// answered takes from a report that the engine answered requests, all of them after
// that time: a true page that counts them moves within its next scrape. From a page
// without counters, or without weir-extproc's word, nothing is concluded.
func (e *told) answered(after time.Time) {
	v := &e.last.Values
	counts := v.PromptTokens.Known() || v.GeneratedTokens.Known()
	if counts && e.still.IsZero() && after.After(e.moved) {
		e.still = after
	}
}

// stands says whether the page has stood still for longer than that, though the
// engine answers requests.
func (e *told) stands(now time.Time, longer time.Duration) bool {
	return !e.still.IsZero() && now.Sub(e.still) > longer
}

// queue is not seen where pages do not tell, or are in doubt.
func (e *told) queue(now time.Time) queue {
	n := len(e.waiting)
	if n == 0 || e.last.Err != nil || e.stands(now, doubtAfter) || e.waiting[n-1].at.Sub(e.waiting[0].at) < queueStands/2 {
		return queue{}
	}
	least := slices.MinFunc(e.waiting, func(a, b waiting) int { return cmp.Compare(a.requests, b.requests) })
	return queue{least.requests, e.waiting[n-1].requests, true}
}

func accumulate(at time.Time, seconds *average, h dialect.Histogram) {
	if h.Known() && h.Sum.Known() {
		seconds.add(at, meanTau, h.Count.X, h.Sum.X)
	}
}

// moved says whether a page says anything else than the one before it.
func moved(before, after *scrape.Sample) bool {
	a, b := &before.Values, &after.Values
	return before.ReadAt.IsZero() || a.Running != b.Running || a.Waiting != b.Waiting || a.KVUsage != b.KVUsage ||
		a.PromptTokens != b.PromptTokens || a.GeneratedTokens != b.GeneratedTokens
}

// signals are what is believed of the engine. A page that stands still while it
// answers requests is not.
func (e *told) signals(now time.Time) fleet.EngineSignals {
	s := &e.last
	frozen := e.stands(now, frozenAfter)
	out := fleet.EngineSignals{Dialect: s.Dialect}
	read := func(v dialect.Value) fleet.Reading {
		if v.State == dialect.Unknown {
			return fleet.Reading{}
		}
		return fleet.Reading{Value: v.X, At: s.ReadAt, Stale: v.State == dialect.Stale || frozen}
	}
	out.Running, out.Waiting, out.KVUsage = read(s.Values.Running), read(s.Values.Waiting), read(s.Values.KVUsage)
	out.Queued = out.Waiting
	if n := len(e.waiting); n >= 2 {
		out.Queued.Value = min(e.waiting[n-1].requests, e.waiting[n-2].requests)
	}
	out.TTFTSeconds, out.TBTSeconds = e.mean(now, &e.ttft, frozen), e.mean(now, &e.tbt, frozen)
	switch {
	case s.Err != nil:
		out.Why = s.Err.Error()
	case frozen:
		out.Why = fmt.Sprintf("its page has said the same for %.0f s while it answered requests", now.Sub(e.moved).Seconds())
	}
	return out
}

func (e *told) mean(now time.Time, seconds *average, frozen bool) fleet.Reading {
	r := seconds.read(now, meanTau).reading(0.5)
	r.Stale = r.Known() && (e.last.Err != nil || frozen)
	return r
}

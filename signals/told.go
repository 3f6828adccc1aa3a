package signals

import (
	"fmt"
	"time"

	"weir/fleet"
	"weir/signals/dialect"
	"weir/signals/scrape"
)

const (
	// meanTau smooths the means of TTFT and TBT of one engine's pages.
	meanTau = 8 * time.Second
	// frozenAfter is how long a page may say the same while requests go to its pool
	// before it is not believed any more.
	frozenAfter = 15 * time.Second
)

// told is what one engine's pages said.
type told struct {
	last        scrape.Sample
	ttfts, ttft decayed // number, and seconds in all
	tbts, tbt   decayed
	moved       time.Time // when a page last said something else than the one before
}

// observe takes what a scrape says.
func (e *told) observe(s scrape.Sample) {
	if s.Err == nil {
		if moved(&e.last, &s) {
			e.moved = s.At
		}
		accumulate(s.At, &e.ttfts, &e.ttft, s.Window.TTFT)
		accumulate(s.At, &e.tbts, &e.tbt, s.Window.TBT)
	}
	e.last = s
}

func accumulate(at time.Time, number, seconds *decayed, h dialect.Histogram) {
	if h.Known() && h.Sum.Known() {
		number.add(at, meanTau, h.Count.X)
		seconds.add(at, meanTau, h.Sum.X)
	}
}

// moved says whether a page says anything else than the one before it.
func moved(before, after *scrape.Sample) bool {
	a, b := &before.Values, &after.Values
	return before.ReadAt.IsZero() || a.Running != b.Running || a.Waiting != b.Waiting || a.KVUsage != b.KVUsage ||
		a.PromptTokens != b.PromptTokens || a.GeneratedTokens != b.GeneratedTokens
}

// signals are what is believed of the engine. busy says that requests go to its
// pool: then a page that stands still is not believed.
func (e *told) signals(now time.Time, busy bool) fleet.EngineSignals {
	s := &e.last
	frozen := busy && now.Sub(e.moved) > frozenAfter
	out := fleet.EngineSignals{Dialect: s.Dialect}
	read := func(v dialect.Value) fleet.Reading {
		if v.State == dialect.Unknown {
			return fleet.Reading{}
		}
		return fleet.Reading{Value: v.X, At: s.ReadAt, Stale: v.State == dialect.Stale || frozen}
	}
	out.Running, out.Waiting, out.KVUsage = read(s.Values.Running), read(s.Values.Waiting), read(s.Values.KVUsage)
	out.TTFTSeconds = e.mean(now, &e.ttfts, &e.ttft, frozen)
	out.TBTSeconds = e.mean(now, &e.tbts, &e.tbt, frozen)
	switch {
	case s.Err != nil:
		out.Why = s.Err.Error()
	case frozen:
		out.Why = fmt.Sprintf("its page has said the same for %.0f s while requests went to its pool", now.Sub(e.moved).Seconds())
	}
	return out
}

func (e *told) mean(now time.Time, number, seconds *decayed, frozen bool) fleet.Reading {
	n := number.read(now, meanTau)
	if n < 0.5 {
		return fleet.Reading{}
	}
	return fleet.Reading{Value: seconds.read(now, meanTau) / n, At: number.at, Stale: e.last.Err != nil || frozen}
}

package penalty

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"
)

// compare sets by what each engine of a pool is judged: what is usual at the others.
func compare(p []*engine, now time.Time) {
	for k := range kinds {
		var medians, highs []float64
		for _, e := range p {
			if r := &e.times[k]; r.told() {
				r.refresh()
				medians, highs = append(medians, r.median), append(highs, r.high)
			}
		}
		slices.Sort(medians)
		slices.Sort(highs)
		for _, e := range p {
			e.limitOf(k, medians, highs, now)
		}
	}
	for s := range signals {
		var rates []float64
		for _, e := range p {
			rates = append(rates, e.tests[s].longer.with(leastRate))
		}
		slices.Sort(rates)
		for _, e := range p {
			e.tests[s].weigh(s, usual(s, rates, e.tests[s].longer.with(leastRate)))
		}
	}
}

// usual is the rate of bad marks at an engine's peers: where they fail, at the best of
// them, and where they are slow, at most.
func usual(s signal, rates []float64, own float64) float64 {
	if s != failures {
		rate, _ := middleOfOthers(rates, own)
		return rate
	}
	if len(rates) > 1 && rates[0] == own {
		return rates[1]
	}
	return rates[0]
}

// decide sets the penalties of a pool.
func decide(p []*engine, now time.Time) {
	var suspects []*engine
	values := map[*engine]float64{}
	for i, e := range p {
		if value := e.deserves(p, i, now); value < alike {
			values[e] = value
			suspects = append(suspects, e)
		}
	}
	// Who is penalised already stays so before others: to change about helps nobody.
	slices.SortFunc(suspects, func(x, y *engine) int {
		return cmp.Or(cmp.Compare(x.first(), y.first()), cmp.Compare(values[x], values[y]), cmp.Compare(x.id, y.id))
	})
	if most := len(p) / 2; len(suspects) > most {
		for _, e := range suspects[most:] {
			delete(values, e)
		}
	}
	for _, e := range p {
		e.set(cmp.Or(values[e], 1), now)
	}
}

func (e *engine) first() int {
	if e.value < 1 {
		return 0
	}
	return 1
}

// deserves is the penalty that an engine's scores ask for, if it stands out of its pool, in
// which it has that place.
func (e *engine) deserves(p []*engine, place int, now time.Time) float64 {
	value := 1.0
	for s := range e.tests {
		t := &e.tests[s]
		over := t.score - t.threshold
		lasts := t.standsOut || t.last.Sub(t.first) >= lasting[s]
		t.standsOut = over > 0 && lasts && e.standsOut(signal(s), peersOf(p, place), now)
		if !t.standsOut {
			continue
		}
		if v := max(Least, math.Exp(-over/span)); v < value {
			value = v
			e.fault, e.threshold, e.score = t.fault, t.threshold, t.score
		}
	}
	return value
}

// unlikely are values of G (see [differ]) that chance passes once in seventy times, and
// once in six hundred: by two requests of two that fail where three of three do not, and
// by three of three that are slow where six of six are not.
var unlikely = [signals]float64{failures: 6, firstTokens: 10, tokens: 10}

const (
	// Against a peer that was chosen for doing well it takes more: once in ten thousand.
	mostUnlikely = 15
	// ill is the rate of bad marks from which on a peer is in trouble, too.
	ill = 0.3
	// enoughCompared peers say whether it is the engine or all: in large pools each engine is
	// held against so many others, or up to twice as many, for a step must be short when many
	// are in trouble.
	enoughCompared = 64
	// enough requests of its own tell whether an engine that stood out still does.
	enough = 2
)

// peersOf are the peers that the engine at a place is held against: all or, where there are
// many, some at even distances.
func peersOf(p []*engine, place int) iter.Seq[*engine] {
	return func(yield func(*engine) bool) {
		apart := max(1, len(p)/enoughCompared)
		for i := apart; i < len(p); i += apart {
			if !yield(p[(place+i)%len(p)]) {
				return
			}
		}
	}
}

// standsOut says whether most peers did well since the engine's trouble began or, where
// it fails, clearly one. Once it stood out, it does until more are in trouble than not.
func (e *engine) standsOut(s signal, peers iter.Seq[*engine], now time.Time) bool {
	t := &e.tests[s]
	own, since := t.window.since(t.began, now), t.began
	if !t.late {
		since = since.Add(slot) // of peers nothing counts that may have begun before: a moment earlier all was well
	}
	var all sum
	active, well, sick := 0, 0, 0
	for peer := range peers {
		w := &peer.tests[s].window
		if now.Sub(w.last()) > slots*slot {
			continue
		}
		active++
		o, whole := w.since(since, now), w.since(time.Time{}, now)
		all.add(o)
		switch {
		case o.all == 0:
		case o.rate() >= ill, whole.rate() >= ill:
			sick++
		case o.cautious() < own.rate()/2:
			well++
			if s == failures && differ(own, o) >= mostUnlikely {
				return true
			}
		}
	}
	if t.standsOut {
		return sick <= well || own.all < enough
	}
	return 2*well > active && differ(own, all) >= unlikely[s]
}

// set makes a penalty that of the engine.
func (e *engine) set(value float64, now time.Time) {
	switch {
	case value < 1 && e.value == 1:
		e.since = now
		if !e.lifted.IsZero() && now.Sub(e.lifted) < relapse {
			e.relapses = min(e.relapses+1, maxRelapses)
		}
	case value == 1 && e.value < 1:
		e.lifted = now
	case value == 1 && now.Sub(e.lifted) > relapse:
		e.relapses = 0
	}
	e.value = value
}

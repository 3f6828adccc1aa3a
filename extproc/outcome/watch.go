package outcome

import (
	"context"
	"maps"
	"time"

	"go.uber.org/zap"

	"weir/extproc/penalty"
	"weir/fleet"
)

// watch is what the penalties know of an attempt that lasts.
type watch struct {
	lasts bool // it was told
	late  bool // its first byte was, before it came
	known bool // as a stream, when it was
	paced bool // its pace was
	idle  bool // it makes no progress, which was told

	told  time.Time // when the log last told of its progress; zero: never
	sofar uint64    // bytes of the answer, then
}

// fewestApart is how far apart two entries must be that tell of progress: those of a
// moment in which they could not be read come together.
const fewestApart = 500 * time.Millisecond

// watched tells the penalties how an attempt goes on.
func (r *Recorder) watched(e *entry, p place, w *watch, now time.Time) {
	if !w.lasts {
		w.lasts = true
		r.book.Lasts(p.engine, e.began)
	}
	switch {
	case !e.first.known:
		if !w.late {
			w.late, w.known = r.book.Waiting(p.engine, e.began, now.Sub(e.began).Seconds(), e.stream), e.stream
		}
	case e.stream:
		r.paced(e, p, w, now)
	}
}

// paced tells the penalties how fast a stream comes. One that stands still is told of
// once: the rest is as likely its client's doing.
func (r *Recorder) paced(e *entry, p place, w *watch, now time.Time) {
	since, elapsed, bytes := w.told, now.Sub(w.told), e.sofar-min(w.sofar, e.sofar)
	if !since.IsZero() && elapsed < fewestApart {
		return
	}
	w.told, w.sofar = now, e.sofar
	switch {
	case since.IsZero():
	case bytes > 0:
		w.paced, w.idle = true, false
		r.book.Time(p.engine, penalty.Pace, since, elapsed.Seconds()/float64(bytes))
	case !w.idle:
		w.paced, w.idle = true, true
		r.book.Stalled(p.engine, since)
	}
}

// judgeEvery is how often penalties are judged anew: a few times in the seconds within
// which they must take effect.
const judgeEvery = 250 * time.Millisecond

// Penalise judges engines anew, a few times a second until the context ends, and has
// changes applied: what each penalised engine's weight is to be multiplied by. Loads says
// what engines have to do at that moment, whose first tokens may wait for it.
func (r *Recorder) Penalise(ctx context.Context, loads func() map[fleet.EngineID]penalty.Load, apply func(map[fleet.EngineID]float64)) error {
	tick := time.NewTicker(judgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if all, changed := r.judge(now, loads()); changed {
				apply(all)
			}
		}
	}
}

// judge returns what is to be applied, if it is another than the last time: because a
// penalty has changed, or a view has taken its engine away.
func (r *Recorder) judge(now time.Time, loads map[fleet.EngineID]penalty.Load) (map[fleet.EngineID]float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.Loaded(now, loads)
	r.book.Step(now)
	all, penalties := map[fleet.EngineID]float64{}, r.book.Penalties()
	for _, p := range penalties {
		all[p.Engine] = p.Value
	}
	if maps.Equal(all, r.applied) {
		return nil, false
	}
	for _, p := range penalties {
		if _, lasts := r.applied[p.Engine]; !lasts {
			r.metrics.penalties.WithLabelValues(string(p.Pool), string(p.Fault)).Inc()
			r.log.Warn("engine penalised", zap.String("pool", string(p.Pool)), zap.String("engine", string(p.Engine)), zap.String("for", string(p.Fault)), zap.Float64("penalty", p.Value))
		}
	}
	for id := range r.applied {
		if _, lasts := all[id]; !lasts {
			r.log.Info("engine penalised no more", zap.String("engine", string(id)))
		}
	}
	r.applied = all
	r.metrics.penalise(penalties)
	return all, true
}

// Penalties are those in force, by pool and engine.
func (r *Recorder) Penalties() []fleet.Penalty {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Penalties()
}

// serving are the engines that each pool of a view may give requests to.
func serving(v *fleet.View) map[fleet.PoolID][]fleet.EngineID {
	seen := map[fleet.PoolID]map[fleet.EngineID]bool{}
	for _, c := range v.Classes {
		for _, p := range c.Pools {
			if seen[p.ID] == nil {
				seen[p.ID] = map[fleet.EngineID]bool{}
			}
			for _, e := range p.Engines {
				if e.Readiness.Serves() {
					seen[p.ID][e.ID] = true
				}
			}
		}
	}
	out := map[fleet.PoolID][]fleet.EngineID{}
	for id, engines := range seen {
		for e := range maps.Keys(engines) {
			out[id] = append(out[id], e)
		}
	}
	return out
}

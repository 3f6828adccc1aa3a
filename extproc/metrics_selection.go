package extproc

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// registerSelection has collected what selection does beside going by the plan.
func (s *Server) registerSelection(r prometheus.Registerer) error {
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_extproc_" + name, Help: help}, read)
	}
	total := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_extproc_" + name + "_total", Help: help}, read)
	}
	return errors.Join(
		family(r, "diverted", "Requests whose own engine was full, by where they went.", "to", []label{
			{"engine", &s.counters.ToAnotherEngine},
			{"pool", &s.counters.ToAnotherPool},
			{"nowhere", &s.counters.NoRoom},
		}),
		r.Register(gauge("diversions", "Conversations that are remembered to be away from their own engine.",
			func() float64 { return float64(s.ledger.diverted.kept.Load()) })),
		r.Register(newCounter("diversions_forgotten", "Conversations that were forgotten to be away for want of room.", "", "", &s.ledger.diverted.forgotten)),
		family(r, "holds", "Requests of active and long conversations that the plan's weights have moved, by what became of it.", "how", []label{
			{"held", &s.counters.Held},
			{"time_up", &s.counters.HeldEnough},
			{"no_room", &s.counters.HeldNot},
		}),
		r.Register(total("whereabouts_forgotten", "Active conversations that were forgotten for want of room.",
			func() float64 { return float64(s.ledger.places.Load().lost()) })),
		family(r, "conversations_forgotten", "Conversations that were forgotten for want of room before their time, by what was known of them.", "kind", []label{
			{"under_way", &s.ledger.talks.forgotten},
			{"refused", &s.ledger.refused.forgotten},
		}),
		r.Register(newCounter("levels_stale", "Times that levels of engines did not come for so long that the last count for nothing.", "", "", &s.ledger.levels.stale)),
		r.Register(newCounter("levels_unused", "Levels of a pool that were left out: of other engines than the pool has, or not to be read.", "", "", &s.ledger.levels.unused)),
		r.Register(newCounter("admissions_unread", "Words of what may enter that could not be read: the last one counts on.", "", "", &s.ledger.unread)),
		r.Register(total("conversations_compared", "Recent conversations that were looked up anew when a table replaced another.",
			func() float64 { compared, _, _ := s.moves.counts(); return float64(compared) })),
		r.Register(total("conversations_moved", "Those of them that the new table sends to another engine.",
			func() float64 { _, moved, _ := s.moves.counts(); return float64(moved) })),
		r.Register(total("conversations_moved_least", "The least of them that must move to come to the new weights.",
			func() float64 { _, _, least := s.moves.counts(); return least })),
		r.Register(engines{s}),
	)
}

// engines shows how full engines are, as this process sees it.
type engines struct{ server *Server }

var (
	fullDesc      = prometheus.NewDesc("weir_extproc_engines_full", "Engines that are full: new conversations go elsewhere.", []string{"pool"}, nil)
	startingDesc  = prometheus.NewDesc("weir_extproc_engines_starting", "Engines that have joined and are not at their full weight yet.", []string{"pool"}, nil)
	levelsAgeDesc = prometheus.NewDesc("weir_extproc_levels_age_seconds", "Time since the last levels of engines came; absent: none ever did.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (engines) Describe(out chan<- *prometheus.Desc) {
	out <- fullDesc
	out <- startingDesc
	out <- levelsAgeDesc
}

// Collect implements [prometheus.Collector].
func (e engines) Collect(out chan<- prometheus.Metric) {
	l, now := &e.server.ledger, time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.levels.round != 0 {
		out <- prometheus.MustNewConstMetric(levelsAgeDesc, prometheus.GaugeValue, now.Sub(l.levels.at).Seconds())
	}
	t := e.server.table.Load()
	if t == nil {
		return
	}
	type counts struct{ full, starting int }
	pools := map[string]counts{}
	for _, p := range t.pools {
		var n counts
		for i := range p.engines {
			if p.full(&p.engines[i]) {
				n.full++
			}
			if p.engines[i].live.starting(now) {
				n.starting++
			}
		}
		pools[string(p.id)] = n // where classes see it differently, for a moment, the last
	}
	for pool, n := range pools {
		out <- prometheus.MustNewConstMetric(fullDesc, prometheus.GaugeValue, float64(n.full), pool)
		out <- prometheus.MustNewConstMetric(startingDesc, prometheus.GaugeValue, float64(n.starting), pool)
	}
}

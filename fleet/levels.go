package fleet

import (
	"hash/fnv"
	"math"
	"time"
)

// Levels are how full the engines are, fleet-wide, as every weir-extproc is told each
// round beside its [View]. They decide nothing by themselves: a weir-extproc that
// does not have them goes by the plan's weights.
type Levels struct {
	Round int64         // names the round, unlike any other: Unix milliseconds
	Tick  time.Duration // until the next ones come
	Pools []PoolLevels  // by ID; a pool of which nothing is known is left out
}

// PoolLevels are those of one pool's engines, in the order in which a View lists them.
type PoolLevels struct {
	ID      PoolID
	Print   uint64 // [FingerprintOf] the engines, which are not named
	Engines []EngineLevels
}

// EngineLevels are numbers of one engine. Counts are [Rounded].
type EngineLevels struct {
	Queued     Amount // requests that wait in it, by its metrics pages
	InFlight   Amount // requests that front-ends have open there
	Health     Amount // part of its pool's capacity that the plan counts on, up to 1; unknown: all
	AgeSeconds Amount // since it became ready; not told of engines older than MaxAgeSeconds
}

// Amount is a number that may be unknown, which is not zero.
type Amount struct {
	Value float64
	Known bool
}

// Known returns an amount that is known.
func Known(value float64) Amount { return Amount{value, true} }

// MaxAgeSeconds is how long an engine's age is of interest to anybody.
const MaxAgeSeconds = 120

// FingerprintOf is short for a list of engines. It fits into 52 bits, so that a
// floating-point number holds it exactly.
func FingerprintOf(engines []EngineID) uint64 {
	hash := fnv.New64a()
	for _, e := range engines {
		_, _ = hash.Write([]byte(e)) // a hash takes everything
		_, _ = hash.Write([]byte{0})
	}
	return hash.Sum64() >> 12
}

// Rounded is a count to within half of its own noise: the nearest of 0, 1, 2, 4, 6, 9,
// 12, 16, …, the quarters of squares, which lie √n apart. So what changes by chance
// alone seldom looks changed. Only nothing is rounded to nothing.
func Rounded(n float64) float64 {
	k := math.Round(2 * math.Sqrt(max(0, n)))
	return max(math.Floor(k*k/4), min(1, math.Ceil(n)))
}

// NewLevels says how full the engines of a state are, and what the plan in force makes
// of their health. That is the health of when the plan was made, which may be long ago,
// and is not told where the plan's policy heeds none: nothing else would take off what
// a pool has lost.
func NewLevels(s *State, plan *Plan, now time.Time) *Levels {
	l := &Levels{Round: now.UnixMilli(), Tick: s.Fleet.Options.Tick}
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		levels := PoolLevels{ID: p.ID, Print: FingerprintOf(p.Engines)}
		told, priced := false, plan.pricedHealth(p.ID)
		for _, e := range p.Engines {
			engine := s.levelsOf(p.ID, e, now)
			engine.Health = priced
			told = told || engine != (EngineLevels{})
			levels.Engines = append(levels.Engines, engine)
		}
		if told {
			l.Pools = append(l.Pools, levels)
		}
	}
	return l
}

// pricedHealth is the part of a pool's capacity that a plan counts on. Nobody need be
// told that it is all.
func (p *Plan) pricedHealth(id PoolID) Amount {
	q := p.Pool(id)
	if q == nil || q.Health == 0 || q.Health == 1 || !HeedsCapacity(p.Policy) {
		return Amount{}
	}
	return Known(q.Health)
}

func (s *State) levelsOf(p PoolID, e EngineID, now time.Time) (out EngineLevels) {
	st := s.Pools[p]
	if queued := st.Signals.Engines[e].Queued; queued.Fresh() {
		out.Queued = Known(Rounded(queued.Value))
	}
	if st.Signals.Open != nil {
		out.InFlight = Known(Rounded(st.Signals.Open[e]))
	}
	if since, ok := st.ReadySince[e]; ok {
		if age := math.Floor(now.Sub(since).Seconds()); age >= 0 && age <= MaxAgeSeconds {
			out.AgeSeconds = Known(age)
		}
	}
	return out
}

package fleet

import (
	"math"
	"time"
)

// DefaultHistoryStep is how long a [Span] is where the fleet does not say.
const DefaultHistoryStep = time.Minute

// Span is what a pool's engines showed over a stretch of time in which nothing odd
// went on: the same engines were ready, none of them penalised, everybody was heard
// of. It speaks of engines, not of a profile, so that it stays true when that is
// replaced.
type Span struct {
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	EngineSeconds float64   `json:"engineSeconds"` // ready engines × time
	Issued        float64   `json:"issued"`        // requests sent, retries included
	Ended         float64   `json:"ended"`         // attempts that were over
	Failed        float64   `json:"failed"`        // of them, those that engines refused, failed or lost
	Tokens        Tokens    `json:"tokens"`        // of the mean request
	TTFT          Timing    `json:"ttft"`          // as front-ends saw it, the network taken off
	TBT           Timing    `json:"tbt"`
	Factor        float64   `json:"factor"` // the pool's capacity factor at the end; 0: not known
}

// Timing is a mean, on how many items it rests and what chance does to it.
type Timing struct {
	Items   float64 `json:"items"` // 0: the mean is not known
	Seconds float64 `json:"seconds"`
	StdErr  StdErr  `json:"stdErr"`
}

// Rps is what each engine was sent, in requests of the span's own mean size.
func (s *Span) Rps() float64 { return s.Issued / s.EngineSeconds }

// Utilisation is how loaded each engine was by a profile.
func (s *Span) Utilisation(p *Profile) float64 { return s.Rps() * p.Work(s.Tokens) }

// Drift is a profile that is not true any more, at some loads.
type Drift struct {
	Signal   Signal    `json:"signal"` // ttft or tbt
	Low      float64   `json:"low"`    // utilisation by the profile, from
	High     float64   `json:"high"`   // and to
	Ratio    float64   `json:"ratio"`  // what traffic shows / what the profile says
	StdErr   float64   `json:"stdErr"` // of the ratio
	Since    time.Time `json:"since"`  // the first span that shows it
	Until    time.Time `json:"until"`  // the last
	Spans    int       `json:"spans"`  // on which it rests
	Requests float64   `json:"requests"`
}

// ProfileNews is what traffic says of a pool's profile.
type ProfileNews struct {
	Pool     PoolID      `json:"pool"`
	Spans    int         `json:"spans"`    // in the history
	Compared int         `json:"compared"` // of them, with the profile in use
	Why      string      `json:"why"`      // why they could not all be compared; empty: they could
	Drifts   []Drift     `json:"drifts"`   // by signal and load; empty: none is named
	Fitted   *FitSummary `json:"fitted"`   // null: nothing was fitted
	Unfitted string      `json:"unfitted"` // why not; empty: it was, or the profile is true
	Adopted  bool        `json:"adopted"`  // the profile in use is not the fleet file's
	Adopting string      `json:"adopting"` // why no further step towards the fit is made; empty: one is, or none is asked for
	// Of the profile in use and of the fleet file's, of one engine.
	CapacityRps float64 `json:"capacityRps"`
	FileRps     float64 `json:"fileRps"`
	// Since is from when on traffic is fitted; zero: all of it.
	Since time.Time `json:"since"`
}

// FitSummary is what a fit to traffic says of one engine's capacity.
type FitSummary struct {
	CapacityRps float64 `json:"capacityRps"`
	LowRps      float64 `json:"lowRps"` // 90 % confidence
	HighRps     float64 `json:"highRps"`
}

// Adoption is a profile that stands in for the fleet file's.
type Adoption struct {
	File    Profile // for which it stands in: when that changes, it is over
	Profile Profile
}

// Adopt returns the fleet with the profiles that stand in for the file's, and the
// fleet itself where there are none. An adoption whose pool does not ask for it, or
// that was made for another profile, is left out; and all are where the file's capacities
// rule, whatever is measured.
func (f *Fleet) Adopt(all map[PoolID]Adoption) *Fleet {
	out := f
	for i := range f.Pools {
		p := &f.Pools[i]
		a, ok := all[p.ID]
		if !ok || !f.Asks(p.ID, &a) {
			continue
		}
		if out == f {
			own := *f
			own.Pools = append([]Pool(nil), f.Pools...)
			out = &own
		}
		file := p.Profile
		out.Pools[i].Profile, out.Pools[i].FileProfile = a.Profile, &file
	}
	return out
}

// Asks says whether the fleet file asks for an adoption.
func (f *Fleet) Asks(id PoolID, a *Adoption) bool {
	p := f.Pool(id)
	return p != nil && p.AdoptFit && a.File.Same(&p.Profile) && !f.Options.DeclaredOnly
}

// Farthest is the ratio of a signal's drift that is farthest from 1, and 1 where none
// is named.
func (n *ProfileNews) Farthest(s Signal) float64 {
	far := 1.0
	for _, d := range n.Drifts {
		if d.Signal == s && math.Abs(math.Log(d.Ratio)) > math.Abs(math.Log(far)) {
			far = d.Ratio
		}
	}
	return far
}

// Began is when the first of the drifts did; zero: there is none.
func (n *ProfileNews) Began() (first time.Time) {
	for _, d := range n.Drifts {
		if first.IsZero() || d.Since.Before(first) {
			first = d.Since
		}
	}
	return first
}

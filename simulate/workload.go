package simulate

import (
	"errors"
	"fmt"
	"math"
)

// Request is one request of a client.
type Request struct {
	At              float64
	FrontEnd, Class int    // index into the fleet's
	Key             uint64 // hashed name of the conversation
	Turn            int    // of it, from 0; of a trace, one that no other of it has
	Prompt, Output  int    // tokens, at least 1
	// Context holds, for each block of tokens from the prompt's start (of as many as
	// the engines' own), the hash of everything up to its end; of the prompt, then of
	// the answer as far as a next turn may repeat it.
	Context []uint64

	talk int32 // of the workload
}

// Workload is what clients ask for. It belongs to one run and is used up by it.
type Workload interface {
	// Next returns the requests that do not wait for any other, by time.
	Next() (Request, bool)
	// After returns the next turn of a conversation whose last one was answered, or
	// refused, at end.
	After(r *Request, end float64) (Request, bool)
	// Past returns requests from before the run, by time: what they say is in the cache
	// of the engine that they would have gone to.
	Past() []Request
}

// Source is a class of requests at a front-end and how many come.
type Source struct {
	FrontEnd, Class int     // index into the fleet's
	Rps             float64 // in the mean
	Swing           float64 // 0–1: its day is by so much above the mean, its night below
	Phase           float64 // of its day, 0–1
}

// Mix is where requests come from.
type Mix struct {
	Sources []Source
	Day     float64 // seconds; 0: no source swings
}

// Rps is how many requests come from all sources, in the mean.
func (m *Mix) Rps() float64 {
	total := 0.0
	for _, s := range m.Sources {
		total += s.Rps
	}
	return total
}

// Scaled is the mix with every rate multiplied.
func (m *Mix) Scaled(by float64) Mix {
	out := Mix{Day: m.Day, Sources: make([]Source, len(m.Sources))}
	for i, s := range m.Sources {
		s.Rps *= by
		out.Sources[i] = s
	}
	return out
}

func (m *Mix) check() error {
	if len(m.Sources) == 0 {
		return errors.New("nobody asks for anything: want a source")
	}
	for i, s := range m.Sources {
		if !(s.Rps > 0) || !(s.Swing >= 0 && s.Swing <= 1) {
			return fmt.Errorf("source %d: %v RPS with a swing of %v: want more than 0, and 0 to 1", i, s.Rps, s.Swing)
		}
	}
	return nil
}

// rate is a source's at a time.
func (m *Mix) rate(s *Source, at float64) float64 {
	if m.Day == 0 {
		return s.Rps
	}
	return s.Rps * (1 + s.Swing*math.Sin(2*math.Pi*(at/m.Day+s.Phase)))
}

// rateAt is that of all sources.
func (m *Mix) rateAt(at float64) float64 {
	total := 0.0
	for i := range m.Sources {
		total += m.rate(&m.Sources[i], at)
	}
	return total
}

// busiest is a rate that is never passed.
func (m *Mix) busiest() float64 {
	if m.Day == 0 {
		return m.Rps()
	}
	most := 0.0
	for _, s := range m.Sources {
		most += s.Rps * (1 + s.Swing)
	}
	return most
}

// pick returns the source in whose part of all rates at a time the fraction lies.
func (m *Mix) pick(at, fraction float64) *Source {
	left := fraction * m.rateAt(at)
	for i := range m.Sources {
		if left -= m.rate(&m.Sources[i], at); left < 0 {
			return &m.Sources[i]
		}
	}
	return &m.Sources[len(m.Sources)-1]
}

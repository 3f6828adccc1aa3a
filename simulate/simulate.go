// Package simulate answers what a policy would do to a fleet before anybody tries it:
// it is a discrete-event simulation of front-ends, links and engines around the true
// slow loop.
//
// What decides is the real thing. Beliefs are made by [signals.Tracker] of load
// reports, probes and scraped pages as the real parts would send them, as late as
// they would; plans are made by the policy under test; views and weights are those
// of package fleet, and conversations are hashed to engines as weir-extproc hashes
// them. What is modelled is what Weir does not own: clients ([Workload]), distances,
// and engines ([Engine]), which behave as cmd/mock-engine does.
//
// It is pure: no clock, no I/O, no goroutine within one run, and the same [Config]
// gives the same [Result], bit for bit. Times are seconds from the start of the run.
package simulate

import (
	"errors"
	"fmt"
	"time"

	"weir/fleet"
)

// Policy makes a plan of a state.
type Policy func(*fleet.State) (*fleet.Plan, error)

// Config is what a run consists of.
type Config struct {
	Fleet    *fleet.Fleet            // its round trips are the true ones, its profiles what is believed
	Engines  map[fleet.PoolID]Engine // how the replicas of each pool truly behave
	Workload Workload                // of this run alone: it is used up
	Policy   Policy
	Seed     uint64
	Faults   []Fault // by time

	Seconds       float64 // of arrivals
	WarmUpSeconds float64 // requests that arrive in them are served and not measured
	DrainSeconds  float64 // that requests under way at the end are waited for, at most
	Delays        Delays

	Parts int // of equal length, of which the result tells one by one; 0: none
	// Watch is told each round how far the run has come; its error ends the run. nil:
	// nobody watches.
	Watch func(seconds float64) error
}

// Delays are what lies between the parts.
type Delays struct {
	NetworkNoise float64 // spread of each way through a link: the standard deviation of its logarithm
	ControlWay   float64 // seconds from any part to the control plane, or back
	Planning     float64 // seconds from a tick to its plan
}

// Fault makes the engines of a pool slow: from then on every wait of requests that
// arrive takes Slow times as long. 1 makes them well again.
type Fault struct {
	At   float64
	Pool fleet.PoolID
	Slow float64
}

// check returns all that is wrong with a config.
func (c *Config) check() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(c.Fleet == nil || c.Workload == nil || c.Policy == nil, "want a fleet, a workload and a policy")
	wrong(!(c.WarmUpSeconds >= 0 && c.Seconds > c.WarmUpSeconds), "%v s with a warm-up of %v s: nothing would be measured", c.Seconds, c.WarmUpSeconds)
	wrong(!(c.DrainSeconds >= 0), "drain: want no negative time")
	wrong(c.Parts < 0 || c.Parts > maxParts, "%d parts: want 0 to %d", c.Parts, maxParts)
	d := c.Delays
	wrong(!(d.NetworkNoise >= 0 && d.ControlWay >= 0 && d.Planning >= 0), "delays: want no negative time")
	if c.Fleet != nil {
		for i := range c.Fleet.Pools {
			e, ok := c.Engines[c.Fleet.Pools[i].ID]
			wrong(!ok, "pool %q: no engine model", c.Fleet.Pools[i].ID)
			if err := e.check(); ok && err != nil {
				wrong(true, "pool %q: %w", c.Fleet.Pools[i].ID, err)
			}
		}
	}
	for _, f := range c.Faults {
		wrong(c.Fleet != nil && c.Fleet.Pool(f.Pool) == nil, "fault: there is no pool %q", f.Pool)
		wrong(!(f.Slow > 0), "fault: slow %v, want a factor above 0", f.Slow)
	}
	return errors.Join(errs...)
}

// Run simulates a fleet and returns what came of it.
func Run(c Config) (*Result, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("simulation: %w", err)
	}
	w := newWorld(&c)
	if err := w.begin(); err != nil {
		return nil, fmt.Errorf("simulation: %w", err)
	}
	if w.run(); w.stopped != nil {
		return nil, fmt.Errorf("simulation: %w", w.stopped)
	}
	return w.result(), nil
}

// epoch is when a run begins, for those parts that want a date.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// date is a moment of a run as a date.
func date(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

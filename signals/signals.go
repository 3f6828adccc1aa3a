// Package signals turns what comes in to the control plane into beliefs: load
// reports into demand, and health probes into readiness.
//
// The [Tracker] is pure: time is an argument, and it belongs to one goroutine.
// I/O is at the edge, in the [Prober].
//
// # How demand is known
//
// A node is one Envoy with the weir-extproc beside it. Its demand is what its
// weir-extproc counted; where that is silent, what its Envoy issued, corrected by
// the ratio of the two when both were last heard. The two are never added. A
// front-end's demand is the sum over its nodes.
//
// Silence is measured against those who speak, not against the clock. A client
// 5 s behind the newest report of its front-end is left out: its clients are
// taken to have moved to the nodes that still report. A front-end 60 s behind
// the newest report of the fleet is back at its declared demand. When everybody
// is silent the fault is most likely between them and here, and the last values
// hold for as long as it lasts.
//
// # How readiness is known
//
// An engine is unknown until its first probe, which is the verdict. After that
// two probes in a row change it. Probes alone do not condemn the last engines of
// a pool: while no engine of a pool answers its probes at all and the front-ends'
// load reports show requests answered there within the last 5 s, engines that
// were ready stay so, since it is the control plane that cannot reach them. An
// engine that answers that it is not ready is believed, be it the last.
//
// # How far beliefs may be off
//
// Each mean comes with its standard error, measured by how what it rests on scatters.
// That tells a difference from noise: between two pools for the optimizer, between an
// engine and its pool for whoever looks for the odd one.
package signals

import (
	"sync/atomic"

	"weir/fleet"
)

// Probe is the outcome of one health check of one engine.
type Probe struct {
	Pool     fleet.PoolID
	Engine   fleet.EngineID
	Err      error // nil: the engine is ready; else why it is not
	Answered bool  // the engine answered, if only to say that it is not ready
}

// Counters count what the tracker threw away and the fallbacks it took. They may
// be read by any goroutine.
type Counters struct {
	ReportsRefused   atomic.Uint64 // load reports with an impossible interval, count or node
	ReportsUnknown   atomic.Uint64 // load reports from front-ends that the fleet does not name
	ClassesUnknown   atomic.Uint64 // entries of load reports for classes that the fleet does not name
	NodesRefused     atomic.Uint64 // load reports from nodes beyond the cap of their front-end
	SamplesUnknown   atomic.Uint64 // scrapes of engines that the fleet does not name
	ProbesUnknown    atomic.Uint64 // probes of engines that the fleet does not name
	StreamsStoodIn   atomic.Uint64 // demands that rested on Envoy's counts, at least in part, once a state
	StreamsForgotten atomic.Uint64 // demands that fell back from measured to declared, once a state
	PoolsDoubted     atomic.Uint64 // pools whose failing probes were not believed, once a state
}

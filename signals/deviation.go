package signals

import (
	"math"
	"slices"
	"time"

	"weir/fleet"
)

// How far an engine lies from its pool.
//
// z = (value − median) / scale, by median and median absolute deviation, since a mean
// and a standard deviation are carried away by the outlier that they shall find. A
// scale is what is usual in the pool, the largest of three: the MAD, as a standard
// deviation (× 1.4826, and for few engines × n / (n − 0.8): Croux and Rousseeuw, 1992);
// what chance does to this engine's own value and to the median; and a floor, without
// which engines that are alike would be outliers for nothing, and of three engines two
// that agree by luck make one of the third.
const (
	// fewestEngines are needed to say which of them is odd.
	fewestEngines = 3
	// fewestSeen requests, decayed, tell how fast an engine is: half of one a second.
	fewestSeen = 10
	// The floor of times: engines within a third of the median are alike.
	floorPart    = 0.1
	floorSeconds = 0.001
)

// peer is an engine's value of a signal, and what chance does to it: a standard error.
type peer struct {
	engine        fleet.EngineID
	value, chance float64
}

// deviations compares engines in one signal. The floor is that of the scale, by the
// median. Of fewer than three nothing can be told.
func deviations(s fleet.Signal, peers []peer, floor func(median float64) float64) []fleet.Deviation {
	n := float64(len(peers))
	if n < fewestEngines {
		return nil
	}
	values, off := make([]float64, len(peers)), make([]float64, len(peers))
	for i, p := range peers {
		values[i] = p.value
	}
	middle := median(values)
	for i, p := range peers {
		off[i] = math.Abs(p.value - middle)
	}
	usual := max(1.4826*n/(n-0.8)*median(off), floor(middle))
	out := make([]fleet.Deviation, len(peers))
	for i, p := range peers {
		chance := p.chance * math.Sqrt(1+math.Pi/2/n) // the median of n alike varies by π/2n of their variance
		out[i] = fleet.Deviation{Signal: s, Value: p.value, Median: middle, Z: (p.value - middle) / max(usual, chance)}
	}
	return out
}

func timeFloor(median float64) float64 { return max(floorSeconds, floorPart*median) }

// numberFloor is for requests that an engine has at one moment, which vary by about
// the square root of their number.
func numberFloor(median float64) float64 { return 1 + math.Sqrt(median) }

// median sorts what it is given.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// compare adds to a pool's state how its engines lie from one another. Those that are
// not ready are left out.
func (p *pool) compare(now time.Time, st *fleet.PoolState) {
	var ttft, tbt, running, waiting []peer
	for id, e := range p.engines {
		if st.Engines[id] == fleet.Unready {
			continue
		}
		ttft = e.seen.ttft.enlist(ttft, id, now)
		tbt = e.seen.tbt.enlist(tbt, id, now)
		told := st.Signals.Engines[id]
		running = enlist(running, id, told.Running)
		waiting = enlist(waiting, id, told.Waiting)
	}
	st.Signals.Deviations = map[fleet.EngineID][]fleet.Deviation{}
	add := func(s fleet.Signal, peers []peer, floor func(float64) float64) {
		for i, d := range deviations(s, peers, floor) {
			id := peers[i].engine
			st.Signals.Deviations[id] = append(st.Signals.Deviations[id], d)
		}
	}
	add(fleet.SignalTTFT, ttft, timeFloor)
	add(fleet.SignalTBT, tbt, timeFloor)
	add(fleet.SignalRunning, running, numberFloor)
	add(fleet.SignalWaiting, waiting, numberFloor)
}

// enlist adds a mean that rests on enough that is not long ago.
func (a *average) enlist(peers []peer, id fleet.EngineID, now time.Time) []peer {
	e := a.read(now, seenTau)
	if e.items < fewestSeen || !e.stdErr.Known || now.Sub(e.at) > seenFor {
		return peers
	}
	return append(peers, peer{id, e.mean, e.stdErr.Value})
}

func enlist(peers []peer, id fleet.EngineID, r fleet.Reading) []peer {
	if !r.Fresh() {
		return peers
	}
	return append(peers, peer{engine: id, value: r.Value})
}

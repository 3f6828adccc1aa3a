package config

import (
	"fmt"
	"math"
	"time"

	"weir/fleet"
)

// Doubts says what a right fleet asks for that can never be: each part makes sense by
// itself, but not beside the others. Nil: nothing.
func Doubts(f *fleet.Fleet) []string {
	var out []string
	for i := range f.Pools {
		p := &f.Pools[i]
		out = append(out, idleDoubt(f, p)...)
		out = append(out, leastDoubt(f, p)...)
	}
	return append(out, limitDoubts(f)...)
}

// idleDoubt finds a pool whose requests all end before their first token.
func idleDoubt(f *fleet.Fleet, p *fleet.Pool) []string {
	least := math.Inf(1)
	for i := range f.FrontEnds {
		least = min(least, f.Network.RoundTripSeconds[fleet.Link{FrontEnd: f.FrontEnds[i].ID, Pool: p.ID}])
	}
	first := time.Duration((least + p.Profile.TTFT.At(0)) * float64(time.Second)).Round(time.Millisecond)
	if f.Options.Idle == 0 || first < f.Options.Idle {
		return nil
	}
	return []string{fmt.Sprintf("options.idle ends a request after %v of silence, and the first token of pool %q takes %v at best: "+
		"all of its requests get a 504; raise idle, or correct the profile's ttft", f.Options.Idle, p.ID, first)}
}

// leastDoubt finds a pool that is to have more than plans may give it.
func leastDoubt(f *fleet.Fleet, p *fleet.Pool) []string {
	most := float64(len(p.Engines)) * p.Profile.CapacityRps * (1 - f.Options.Headroom)
	if p.Discovery != nil || p.MinRps <= most*(1+1e-9) {
		return nil
	}
	return []string{fmt.Sprintf("pool %q is to have %.4g rps at least (min), and its %d engines less the headroom of %.4g %% can do %.4g rps: "+
		"that is never kept; lower min or the headroom", p.ID, p.MinRps, len(p.Engines), 100*f.Options.Headroom, most)}
}

// limitDoubts finds streams that are to send more than all of their traffic to pools, or
// may not send all of it anywhere.
func limitDoubts(f *fleet.Fleet) []string {
	var out []string
	for i := range f.FrontEnds {
		for j := range f.Classes {
			out = append(out, limitDoubt(f, fleet.Stream{FrontEnd: f.FrontEnds[i].ID, Class: f.Classes[j].ID})...)
		}
	}
	return out
}

func limitDoubt(f *fleet.Fleet, st fleet.Stream) []string {
	least, most := map[fleet.PoolID]float64{}, map[fleet.PoolID]float64{}
	for _, l := range f.Limits {
		if l.FrontEnd == st.FrontEnd && l.Class == st.Class {
			least[l.Pool] = l.Min
			most[l.Pool] = l.Max
		}
	}
	if len(most) == 0 {
		return nil
	}
	atLeast, atMost, class := 0.0, 0.0, f.Class(st.Class)
	for i := range f.Pools {
		p := &f.Pools[i]
		if !class.Eligible(p) {
			continue
		}
		atLeast += least[p.ID]
		if bound, ok := most[p.ID]; ok {
			atMost += bound
		} else {
			atMost++
		}
	}
	const rounding = 1e-9
	var out []string
	if atLeast > 1+rounding {
		out = append(out, fmt.Sprintf("limits: class %q at %q is to send %.4g %% of its traffic in all (min): not all of them can be kept", st.Class, st.FrontEnd, 100*atLeast))
	}
	if atMost < 1-rounding {
		out = append(out, fmt.Sprintf("limits: class %q at %q may send %.4g %% of its traffic anywhere (max): not all of them can be kept", st.Class, st.FrontEnd, 100*atMost))
	}
	return out
}

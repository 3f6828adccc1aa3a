package xds

import (
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"weir/envoy"
	"weir/fleet"
)

const (
	roundTrip = "rtt"
	// Of a penalised engine: "penalty.FAULT" with the penalty, and how old it is and how
	// long it would last, in seconds.
	penaltyMetric = "penalty"
	agePart       = "age"
	clearsPart    = "clears"
	maxPenaltyAge = 1e9
	maxRoundTrip  = 60 // seconds: nobody waits longer
	maxOpen       = 1 << 30
	maxOpenAt     = 100_000 // engines in one report
)

// encodeOwn writes what weir-extproc reports of no class.
func encodeOwn(r *fleet.LoadReport, interval time.Duration) *endpointv3.ClusterStats {
	s := &endpointv3.ClusterStats{ClusterName: envoy.ExtProc, LoadReportInterval: durationpb.New(interval)}
	for _, t := range r.RoundTrips {
		s.UpstreamLocalityStats = append(s.UpstreamLocalityStats, &endpointv3.UpstreamLocalityStats{
			Locality:        &corev3.Locality{Zone: string(t.Pool)},
			LoadMetricStats: []*endpointv3.EndpointLoadMetricStats{metric(roundTrip, t.Count, t.Seconds)},
		})
	}
	var at *endpointv3.UpstreamLocalityStats
	for _, o := range r.Open {
		address := encodeAddress(o.Engine)
		if address == nil {
			continue
		}
		if zone := string(o.Pool); at.GetLocality().GetZone() != zone {
			at = &endpointv3.UpstreamLocalityStats{Locality: &corev3.Locality{Zone: zone}}
			s.UpstreamLocalityStats = append(s.UpstreamLocalityStats, at)
		}
		at.UpstreamEndpointStats = append(at.UpstreamEndpointStats, &endpointv3.UpstreamEndpointStats{
			Address: address, TotalRequestsInProgress: o.Open,
		})
	}
	s.UpstreamLocalityStats = append(s.UpstreamLocalityStats, encodePenalties(r.Penalties)...)
	return s
}

// encodePenalties has a locality for each: there are few.
func encodePenalties(all []fleet.Penalty) (out []*endpointv3.UpstreamLocalityStats) {
	for _, p := range all {
		address := encodeAddress(p.Engine)
		if address == nil {
			continue
		}
		name := func(part string) string { return penaltyMetric + "." + part }
		out = append(out, &endpointv3.UpstreamLocalityStats{
			Locality: &corev3.Locality{Zone: string(p.Pool)},
			UpstreamEndpointStats: []*endpointv3.UpstreamEndpointStats{{
				Address: address,
				LoadMetricStats: []*endpointv3.EndpointLoadMetricStats{
					metric(name(string(p.Fault)), 1, p.Value), metric(name(agePart), 1, p.AgeSeconds), metric(name(clearsPart), 1, p.ClearsSeconds),
				},
			}},
		})
	}
	return out
}

func (r *reading) addOwn(s *endpointv3.ClusterStats) {
	if r.role != fleet.RoleExtProc {
		return
	}
	for _, l := range s.GetUpstreamLocalityStats() {
		pool := fleet.PoolID(l.GetLocality().GetZone())
		for _, m := range l.GetLoadMetricStats() {
			count, total := m.GetNumRequestsFinishedWithMetric(), m.GetTotalMetricValue()
			if m.GetMetricName() != roundTrip {
				continue
			}
			if pool == "" || count == 0 || count > maxMeasured || !(total >= 0 && total <= float64(count)*maxRoundTrip) {
				r.refused++
				continue
			}
			r.addRoundTrip(fleet.RoundTrip{Pool: pool, Count: count, Seconds: total})
		}
		for _, e := range l.GetUpstreamEndpointStats() {
			if len(e.GetLoadMetricStats()) > 0 {
				r.addPenalty(pool, e)
			} else {
				r.addOpen(pool, e)
			}
		}
	}
}

func (r *reading) addRoundTrip(t fleet.RoundTrip) {
	if known := r.roundTrips[t.Pool]; known != nil {
		known.Count += t.Count
		known.Seconds += t.Seconds
		return
	}
	r.roundTrips[t.Pool] = &t
}

// addPenalty adds the penalty of one engine, if it can be true. Of one that stands twice
// the last counts.
func (r *reading) addPenalty(pool fleet.PoolID, s *endpointv3.UpstreamEndpointStats) {
	engine, ok := decodeAddress(s)
	p := fleet.Penalty{Pool: pool, Engine: engine}
	for _, m := range s.GetLoadMetricStats() {
		of, part, _ := strings.Cut(m.GetMetricName(), ".")
		switch fault := fleet.Fault(part); {
		case of != penaltyMetric:
		case part == agePart:
			p.AgeSeconds = m.GetTotalMetricValue()
		case part == clearsPart:
			p.ClearsSeconds = m.GetTotalMetricValue()
		case slices.Contains(fleet.Faults(), fault):
			p.Fault, p.Value = fault, m.GetTotalMetricValue()
		}
	}
	lasts := func(seconds float64) bool { return seconds >= 0 && seconds <= maxPenaltyAge }
	_, twice := r.penalties[engine]
	if !ok || pool == "" || !(p.Value > 0 && p.Value < 1) || !lasts(p.AgeSeconds) || !lasts(p.ClearsSeconds) ||
		!twice && len(r.penalties) >= maxOpenAt {
		r.refused++
		return
	}
	r.penalties[engine] = p
}

// addOpen adds the open requests of one engine.
func (r *reading) addOpen(pool fleet.PoolID, s *endpointv3.UpstreamEndpointStats) {
	engine, ok := decodeAddress(s)
	n := s.GetTotalRequestsInProgress()
	known, twice := r.open[engine]
	if !ok || pool == "" || n > maxOpen || known.Open > maxOpen || !twice && len(r.open) >= maxOpenAt {
		r.refused++
		return
	}
	r.open[engine] = fleet.EngineOpen{Pool: pool, Engine: engine, Open: known.Open + n}
}

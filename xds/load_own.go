package xds

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"weir/envoy"
	"weir/fleet"
)

const (
	roundTrip    = "rtt"
	maxRoundTrip = 60 // seconds: nobody waits longer
	maxOpen      = 1 << 30
	maxOpenAt    = 100_000 // engines in one report
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
	return s
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
			r.addOpen(pool, e)
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

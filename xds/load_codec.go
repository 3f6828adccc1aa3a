package xds

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"weir/envoy"
	"weir/fleet"
)

// How a load report stands in LRS messages: one ClusterStats a class. A locality
// with a zone is a pool, as Envoy reports it. The locality without one, which only
// weir-extproc sends, counts what clients asked for as issued; what was shed of it
// is the cluster's dropped requests. How its measures stand is in load_measures.go.

func encodeLoad(r fleet.LoadReport, interval time.Duration) []*endpointv3.ClusterStats {
	stats := make([]*endpointv3.ClusterStats, 0, len(r.Classes)+1)
	for _, c := range r.Classes {
		s := &endpointv3.ClusterStats{
			ClusterName:          string(c.Class),
			TotalDroppedRequests: c.Shed,
			LoadReportInterval:   durationpb.New(interval),
			UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{
				{Locality: &corev3.Locality{}, TotalIssuedRequests: c.Arrivals, LoadMetricStats: encodeTokens(c.Tokens)},
			},
		}
		for _, p := range c.Pools {
			s.UpstreamLocalityStats = append(s.UpstreamLocalityStats, &endpointv3.UpstreamLocalityStats{
				Locality:                &corev3.Locality{Zone: string(p.Pool)},
				TotalIssuedRequests:     p.Issued,
				TotalErrorRequests:      p.Failed,
				TotalRequestsInProgress: p.InFlight,
				UpstreamEndpointStats:   encodeEngines(p.Engines),
			})
		}
		stats = append(stats, s)
	}
	if len(r.RoundTrips)+len(r.Open)+len(r.Penalties) > 0 {
		stats = append(stats, encodeOwn(&r, interval))
	}
	return stats
}

// reading is a report that is being read, by class and pool. What stands twice is
// added up.
type reading struct {
	role       fleet.Role
	classes    map[fleet.ClassID]*fleet.ClassLoad
	roundTrips map[fleet.PoolID]*fleet.RoundTrip
	open       map[fleet.EngineID]fleet.EngineOpen
	penalties  map[fleet.EngineID]fleet.Penalty
	refused    uint64 // measures that cannot be true
}

// decodeLoad reads the counts and measures of a report, and counts the measures
// that cannot be true, which are left out. Envoy's own static clusters are no
// classes.
func decodeLoad(role fleet.Role, stats []*endpointv3.ClusterStats) (report fleet.LoadReport, refused uint64) {
	r := reading{role, map[fleet.ClassID]*fleet.ClassLoad{}, map[fleet.PoolID]*fleet.RoundTrip{}, map[fleet.EngineID]fleet.EngineOpen{}, map[fleet.EngineID]fleet.Penalty{}, 0}
	for _, s := range stats {
		switch name := s.GetClusterName(); name {
		case "", envoy.XDSCluster:
		case envoy.ExtProc:
			r.addOwn(s)
		default:
			r.addClass(fleet.ClassID(name), s)
		}
	}
	report.Classes = make([]fleet.ClassLoad, 0, len(r.classes))
	for _, name := range slices.Sorted(maps.Keys(r.classes)) {
		report.Classes = append(report.Classes, *r.classes[name])
	}
	for _, pool := range slices.Sorted(maps.Keys(r.roundTrips)) {
		report.RoundTrips = append(report.RoundTrips, *r.roundTrips[pool])
	}
	for _, engine := range slices.Sorted(maps.Keys(r.open)) {
		report.Open = append(report.Open, r.open[engine])
	}
	for _, engine := range slices.Sorted(maps.Keys(r.penalties)) {
		report.Penalties = append(report.Penalties, r.penalties[engine])
	}
	return report, r.refused
}

func (r *reading) addClass(id fleet.ClassID, s *endpointv3.ClusterStats) {
	c := r.classes[id]
	if c == nil {
		c = &fleet.ClassLoad{Class: id}
		r.classes[id] = c
	}
	if r.role == fleet.RoleExtProc {
		c.Shed += s.GetTotalDroppedRequests()
	}
	for _, l := range s.GetUpstreamLocalityStats() {
		zone := fleet.PoolID(l.GetLocality().GetZone())
		switch {
		case zone != "":
			p := poolOf(c, zone)
			p.Issued += l.GetTotalIssuedRequests()
			p.Failed += l.GetTotalErrorRequests()
			p.InFlight += l.GetTotalRequestsInProgress()
			r.addEngines(p, l.GetUpstreamEndpointStats())
		case r.role == fleet.RoleExtProc:
			c.Arrivals += l.GetTotalIssuedRequests()
			r.addTokens(&c.Tokens, l.GetLoadMetricStats())
		}
	}
}

func poolOf(c *fleet.ClassLoad, id fleet.PoolID) *fleet.PoolLoad {
	i, ok := slices.BinarySearchFunc(c.Pools, id, func(p fleet.PoolLoad, id fleet.PoolID) int {
		return cmp.Compare(p.Pool, id)
	})
	if !ok {
		c.Pools = slices.Insert(c.Pools, i, fleet.PoolLoad{Pool: id})
	}
	return &c.Pools[i]
}

// statedInterval is the shortest interval that a report states, else 0: a cluster
// that was idle for long states all that time.
func statedInterval(stats []*endpointv3.ClusterStats) time.Duration {
	var shortest time.Duration
	for _, s := range stats {
		d := s.GetLoadReportInterval().AsDuration()
		if d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return shortest
}

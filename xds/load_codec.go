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
// is the cluster's dropped requests.

func encodeLoad(classes []fleet.ClassLoad, interval time.Duration) []*endpointv3.ClusterStats {
	stats := make([]*endpointv3.ClusterStats, 0, len(classes))
	for _, c := range classes {
		s := &endpointv3.ClusterStats{
			ClusterName:          string(c.Class),
			TotalDroppedRequests: c.Shed,
			LoadReportInterval:   durationpb.New(interval),
			UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{
				{Locality: &corev3.Locality{}, TotalIssuedRequests: c.Arrivals},
			},
		}
		for _, p := range c.Pools {
			s.UpstreamLocalityStats = append(s.UpstreamLocalityStats, &endpointv3.UpstreamLocalityStats{
				Locality:                &corev3.Locality{Zone: string(p.Pool)},
				TotalIssuedRequests:     p.Issued,
				TotalErrorRequests:      p.Failed,
				TotalRequestsInProgress: p.InFlight,
			})
		}
		stats = append(stats, s)
	}
	return stats
}

// decodeLoad reads a report by class and pool, adding up what stands twice.
// Envoy's own static clusters are no classes.
func decodeLoad(role fleet.Role, stats []*endpointv3.ClusterStats) []fleet.ClassLoad {
	classes := map[fleet.ClassID]*fleet.ClassLoad{}
	for _, s := range stats {
		name := s.GetClusterName()
		if name == "" || name == envoy.XDSCluster || name == envoy.ExtProc {
			continue
		}
		c := classes[fleet.ClassID(name)]
		if c == nil {
			c = &fleet.ClassLoad{Class: fleet.ClassID(name)}
			classes[c.Class] = c
		}
		addStats(c, role, s)
	}
	out := make([]fleet.ClassLoad, 0, len(classes))
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		out = append(out, *classes[name])
	}
	return out
}

func addStats(c *fleet.ClassLoad, role fleet.Role, s *endpointv3.ClusterStats) {
	if role == fleet.RoleExtProc {
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
		case role == fleet.RoleExtProc:
			c.Arrivals += l.GetTotalIssuedRequests()
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

package xds

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"weir/fleet"
)

// How weir-extproc's measures stand in LRS messages: as named metrics, each a count
// and a total. An engine's are in the statistics of its endpoint: "outcome.NAME",
// "whole", and for times "ttft" with count and sum and "ttft.BIN" with a count. A
// class's tokens are in the locality without a zone. Round trips are those of the
// cluster of weir-extproc itself, by locality; the requests that are open at an engine
// are those in progress at its endpoint there, for they are of all classes together, and
// its penalty is "penalty.FAULT" there.

const (
	outcomeMetric  = "outcome"
	wholeMetric    = "whole"
	ttftMetric     = "ttft"
	tbtMetric      = "tbt"
	promptMetric   = "tokens.prompt"
	outputMetric   = "tokens.output"
	cachedMetric   = "tokens.cached"
	guessedMetric  = "tokens.estimated"
	maxMeasured    = 1 << 40 // events in one report: more are not to be believed
	maxEngines     = 10_000  // of one pool in one report
	maxTotalTokens = 1e15
)

func metric(name string, count uint64, total float64) *endpointv3.EndpointLoadMetricStats {
	return &endpointv3.EndpointLoadMetricStats{MetricName: name, NumRequestsFinishedWithMetric: count, TotalMetricValue: total}
}

func encodeTokens(t fleet.TokenLoad) []*endpointv3.EndpointLoadMetricStats {
	if t == (fleet.TokenLoad{}) {
		return nil
	}
	return []*endpointv3.EndpointLoadMetricStats{
		metric(promptMetric, t.Requests, t.Prompt),
		metric(outputMetric, t.Requests, t.Output),
		metric(cachedMetric, t.Requests, t.Cached),
		metric(guessedMetric, t.Estimated, 0),
	}
}

func encodeEngines(engines []fleet.EngineLoad) (out []*endpointv3.UpstreamEndpointStats) {
	for i := range engines {
		e := &engines[i]
		if address := encodeAddress(e.Engine); address != nil {
			out = append(out, &endpointv3.UpstreamEndpointStats{Address: address, LoadMetricStats: encodeEngine(e)})
		}
	}
	return out
}

// encodeAddress is nil for what is no engine of a validated fleet.
func encodeAddress(e fleet.EngineID) *corev3.Address {
	address, err := netip.ParseAddrPort(string(e))
	if err != nil {
		return nil
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       address.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(address.Port())},
	}}}
}

func decodeAddress(s *endpointv3.UpstreamEndpointStats) (id fleet.EngineID, ok bool) {
	socket := s.GetAddress().GetSocketAddress()
	ip, err := netip.ParseAddr(socket.GetAddress())
	if err != nil || socket.GetPortValue() > math.MaxUint16 {
		return "", false
	}
	return fleet.EngineID(netip.AddrPortFrom(ip, uint16(socket.GetPortValue())).String()), true
}

func encodeEngine(e *fleet.EngineLoad) (out []*endpointv3.EndpointLoadMetricStats) {
	for o, n := range e.Outcomes {
		if n > 0 {
			out = append(out, metric(outcomeMetric+"."+fleet.Outcome(o).String(), n, 0))
		}
	}
	if e.Whole > 0 {
		out = append(out, metric(wholeMetric, e.Whole, 0))
	}
	out = appendBuckets(out, ttftMetric, &e.TTFT)
	return appendBuckets(out, tbtMetric, &e.TBT)
}

func appendBuckets(out []*endpointv3.EndpointLoadMetricStats, name string, b *fleet.Buckets) []*endpointv3.EndpointLoadMetricStats {
	if len(b.Bins) == 0 {
		return out
	}
	out = append(out, metric(name, b.Count(), b.Sum))
	for _, bin := range b.Bins {
		out = append(out, metric(name+"."+strconv.Itoa(bin.Index), bin.Count, 0))
	}
	return out
}

// addTokens adds what weir-extproc measured of a class.
func (r *reading) addTokens(to *fleet.TokenLoad, metrics []*endpointv3.EndpointLoadMetricStats) {
	var t fleet.TokenLoad
	for _, m := range metrics {
		count, total := m.GetNumRequestsFinishedWithMetric(), m.GetTotalMetricValue()
		switch {
		case count > maxMeasured || !(total >= 0 && total <= maxTotalTokens):
			r.refused++
			return
		case m.GetMetricName() == promptMetric:
			t.Requests, t.Prompt = count, total
		case m.GetMetricName() == outputMetric:
			t.Output = total
		case m.GetMetricName() == cachedMetric:
			t.Cached = total
		case m.GetMetricName() == guessedMetric:
			t.Estimated = count
		}
	}
	if t.Requests == 0 && t != (fleet.TokenLoad{}) || t.Estimated > t.Requests {
		r.refused++
		return
	}
	to.Requests += t.Requests
	to.Estimated += t.Estimated
	to.Prompt += t.Prompt
	to.Output += t.Output
	to.Cached += t.Cached
}

// addEngines adds what weir-extproc measured of a pool's engines.
func (r *reading) addEngines(p *fleet.PoolLoad, stats []*endpointv3.UpstreamEndpointStats) {
	if r.role != fleet.RoleExtProc {
		return
	}
	for _, s := range stats {
		e, ok := decodeEngine(s)
		if !ok || !addEngine(p, &e) {
			r.refused++
		}
	}
}

func addEngine(p *fleet.PoolLoad, e *fleet.EngineLoad) bool {
	i, ok := slices.BinarySearchFunc(p.Engines, e.Engine, func(x fleet.EngineLoad, id fleet.EngineID) int { return cmp.Compare(x.Engine, id) })
	switch {
	case !ok && len(p.Engines) >= maxEngines:
		return false
	case !ok:
		p.Engines = slices.Insert(p.Engines, i, *e)
		return true
	}
	to := &p.Engines[i]
	for o, n := range e.Outcomes {
		to.Outcomes[o] += n
	}
	to.Whole += e.Whole
	to.TTFT.Add(e.TTFT)
	to.TBT.Add(e.TBT)
	return true
}

// decodeEngine reads the measures of one engine, if they can be true. Metrics by
// names that it does not know are passed over.
func decodeEngine(s *endpointv3.UpstreamEndpointStats) (e fleet.EngineLoad, ok bool) {
	if e.Engine, ok = decodeAddress(s); !ok {
		return e, false
	}
	for _, m := range s.GetLoadMetricStats() {
		if m.GetNumRequestsFinishedWithMetric() > maxMeasured || !addMetric(&e, m) {
			return e, false
		}
	}
	return e, e.TTFT.Check() == nil && e.TBT.Check() == nil
}

func addMetric(e *fleet.EngineLoad, m *endpointv3.EndpointLoadMetricStats) bool {
	name, rest, _ := strings.Cut(m.GetMetricName(), ".")
	count := m.GetNumRequestsFinishedWithMetric()
	switch name {
	case outcomeMetric:
		for o := range e.Outcomes {
			if fleet.Outcome(o).String() == rest {
				e.Outcomes[o] = count
			}
		}
	case wholeMetric:
		e.Whole = count
	case ttftMetric:
		return addBucket(&e.TTFT, rest, m)
	case tbtMetric:
		return addBucket(&e.TBT, rest, m)
	}
	return true
}

// addBucket reads a sum, or a bin's count.
func addBucket(b *fleet.Buckets, bin string, m *endpointv3.EndpointLoadMetricStats) bool {
	if bin == "" {
		b.Sum = m.GetTotalMetricValue()
		return true
	}
	index, err := strconv.Atoi(bin)
	b.Bins = append(b.Bins, fleet.Bin{Index: index, Count: m.GetNumRequestsFinishedWithMetric()})
	return err == nil && len(b.Bins) <= fleet.Bins
}

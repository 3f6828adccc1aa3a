package envoy

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/fleet"
)

// Decode reads a view back from the resources that a client was served. Routes,
// endpoints and runtime are needed, which is what weir-extproc subscribes to;
// the listener's address and limits and TLS are known only where listeners and clusters
// are given.
func Decode(r *Resources) (*fleet.View, error) {
	if len(r.Routes) != 1 || len(r.Routes[0].GetVirtualHosts()) != 1 {
		return nil, fmt.Errorf("want one route configuration with one virtual host, got %d", len(r.Routes))
	}
	v := &fleet.View{}
	for _, l := range r.Listeners {
		if err := decodeListener(l, v); err != nil {
			return nil, err
		}
	}
	if err := decodeRoutes(r.Routes[0].VirtualHosts[0], v); err != nil {
		return nil, err
	}
	for i := range v.Classes {
		c := &v.Classes[i]
		decodePools(endpointsOf(r.Endpoints, c.ID), c)
		decodeTLS(r.Clusters, c)
		for _, layer := range r.Runtimes {
			if layer.GetName() == RuntimeName {
				decodeRuntime(layer, c)
			}
		}
	}
	return v, nil
}

func decodeListener(l *listenerv3.Listener, v *fleet.View) error {
	v.Listen = addressOf(l.GetAddress())
	manager := &hcmv3.HttpConnectionManager{}
	for _, chain := range l.GetFilterChains() {
		for _, f := range chain.GetFilters() {
			if err := f.GetTypedConfig().UnmarshalTo(manager); err != nil {
				return fmt.Errorf("listener %q: %w", l.GetName(), err)
			}
		}
	}
	v.Idle = manager.GetStreamIdleTimeout().AsDuration()
	return nil
}

// decodeRoutes reads the routes that are named after a class. The others only
// answer, one of them with the list of models.
func decodeRoutes(host *routev3.VirtualHost, v *fleet.View) error {
	fields := weirFields(host.GetMetadata())
	v.FrontEnd = fleet.FrontEndID(fields[frontEndKey].GetStringValue())
	for _, origin := range fields[originsKey].GetListValue().GetValues() {
		v.Origins = append(v.Origins, origin.GetStringValue())
	}
	v.Hold = time.Duration(math.Round(fields[holdKey].GetNumberValue() * float64(time.Second)))
	v.TellDecision = fields[decisionKey].GetBoolValue()
	v.TenantHeader = fields[tenantKey].GetStringValue()
	v.BodyLimit = int64(host.GetRequestBodyBufferLimit().GetValue())
	for _, r := range host.Routes {
		if r.Name == "" {
			v.Models = append(v.Models, decodeModels(r)...)
			continue
		}
		if err := decodeRoute(r, v); err != nil {
			return fmt.Errorf("route of class %q: %w", r.Name, err)
		}
	}
	slices.SortFunc(v.Classes, func(a, b fleet.ViewClass) int { return cmp.Compare(a.ID, b.ID) })
	v.Classes = slices.CompactFunc(v.Classes, func(a, b fleet.ViewClass) bool { return a.ID == b.ID })
	return nil
}

func decodeRoute(r *routev3.Route, v *fleet.View) error {
	fields := weirFields(r.GetMetadata())
	c := fleet.ViewClass{ID: fleet.ClassID(r.Name), Priority: int(fields[priorityKey].GetNumberValue()), Admitted: 1}
	for _, key := range fields[affinityKey].GetListValue().GetValues() {
		kind, name, _ := strings.Cut(key.GetStringValue(), ":")
		c.Affinity = append(c.Affinity, fleet.AffinityKey{Kind: fleet.AffinityKind(kind), Name: name})
	}
	v.Classes = append(v.Classes, c)
	if fields[unreadableKey].GetBoolValue() {
		v.Unreadable = c.ID
		return nil
	}
	rule, err := decodeRule(r.Match)
	rule.As = fields[asKey].GetStringValue()
	v.Routes = append(v.Routes, fleet.ViewRoute{Class: c.ID, Rule: rule})
	return err
}

// decodeRule is the inverse of encodeRule. A match outside that subset is an
// error: guessing it would route by other rules than Envoy does.
func decodeRule(m *routev3.RouteMatch) (fleet.Rule, error) {
	var r fleet.Rule
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Path:
		r.Path, r.Exact = p.Path, true
	case *routev3.RouteMatch_Prefix:
		if p.Prefix != "/" {
			r.Path = p.Prefix
		}
	default:
		return r, fmt.Errorf("unknown path match %T", p)
	}
	for _, h := range m.GetHeaders() {
		if err := decodeHeader(h, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

func decodeHeader(h *routev3.HeaderMatcher, r *fleet.Rule) error {
	value := h.GetStringMatch().GetExact()
	switch {
	case h.Name == ":authority":
		host, err := literalHost(h.GetStringMatch().GetSafeRegex().GetRegex())
		r.Host = host
		return err
	case h.Name == HeaderAdmitted: // of the route of an alias
	case h.Name == HeaderFeatures || h.Name == HeaderContext:
		return decodeBodyRule(h, &r.Body)
	case value == "":
		return fmt.Errorf("header %q: only an exact value can be matched", h.Name)
	case h.Name == HeaderModel:
		r.Model = value
	default:
		r.Headers = append(r.Headers, fleet.HeaderRule{Name: h.Name, Value: value})
	}
	return nil
}

func decodeBodyRule(h *routev3.HeaderMatcher, r *fleet.BodyRule) error {
	switch word := h.GetStringMatch().GetContains(); {
	case h.Name == HeaderContext && h.GetRangeMatch().GetStart() > 1:
		r.ContextOver = int(h.GetRangeMatch().GetStart()) - 1
	case word == FeatureTools:
		r.Tools = true
	case word == FeatureVision:
		r.Vision = true
	default:
		return fmt.Errorf("header %q: %q is not known", h.Name, word)
	}
	return nil
}

// literalHost unquotes the host in a pattern that encodeRule wrote.
func literalHost(pattern string) (string, error) {
	quoted, ok := strings.CutSuffix(strings.TrimPrefix(pattern, "(?i)"), authorityPort)
	if !ok {
		return "", fmt.Errorf("host pattern %q is not one host", pattern)
	}
	literal, err := syntax.Parse(quoted, 0)
	if err != nil || literal.Op != syntax.OpLiteral {
		return "", fmt.Errorf("host pattern %q is not one host", pattern)
	}
	return string(literal.Rune), nil
}

func weirFields(m *corev3.Metadata) map[string]*structpb.Value {
	return m.GetFilterMetadata()[Namespace].GetFields()
}

func endpointsOf(all []*endpointv3.ClusterLoadAssignment, c fleet.ClassID) *endpointv3.ClusterLoadAssignment {
	i := slices.IndexFunc(all, func(e *endpointv3.ClusterLoadAssignment) bool { return e.GetClusterName() == string(c) })
	if i < 0 {
		return nil
	}
	return all[i]
}

func decodePools(a *endpointv3.ClusterLoadAssignment, c *fleet.ViewClass) {
	for _, l := range a.GetEndpoints() {
		p := fleet.ViewPool{
			ID:     fleet.PoolID(l.GetLocality().GetZone()),
			Region: l.GetLocality().GetRegion(),
			Weight: l.GetLoadBalancingWeight().GetValue(),
		}
		for _, e := range l.GetLbEndpoints() {
			id := fleet.EngineID(addressOf(e.GetEndpoint().GetAddress()))
			p.Engines = append(p.Engines, fleet.ViewEngine{ID: id, Readiness: readinessOf(e.GetHealthStatus())})
		}
		c.Pools = append(c.Pools, p)
	}
}

func decodeTLS(clusters []*clusterv3.Cluster, c *fleet.ViewClass) {
	for _, cluster := range clusters {
		if cluster.GetName() != string(c.ID) {
			continue
		}
		for _, m := range cluster.GetTransportSocketMatches() {
			i := slices.IndexFunc(c.Pools, func(p fleet.ViewPool) bool { return string(p.ID) == m.GetName() })
			var socket tlsv3.UpstreamTlsContext
			if i >= 0 && m.GetTransportSocket().GetTypedConfig().UnmarshalTo(&socket) == nil {
				c.Pools[i].TLS = decodeTLSContext(&socket)
			}
		}
	}
}

func decodeTLSContext(s *tlsv3.UpstreamTlsContext) *fleet.TLS {
	common := s.GetCommonTlsContext()
	t := &fleet.TLS{SNI: s.GetSni(), CAFile: common.GetValidationContext().GetTrustedCa().GetFilename()}
	for _, cert := range common.GetTlsCertificates() {
		t.CertFile, t.KeyFile = cert.GetCertificateChain().GetFilename(), cert.GetPrivateKey().GetFilename()
	}
	return t
}

func addressOf(a *corev3.Address) string {
	s := a.GetSocketAddress()
	ip, err := netip.ParseAddr(s.GetAddress())
	if err != nil {
		return s.GetAddress() + ":" + strconv.Itoa(int(s.GetPortValue()))
	}
	return netip.AddrPortFrom(ip, uint16(s.GetPortValue())).String()
}

package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	commonmatcherv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	headersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	codecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	overridev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/fleet"
)

const (
	connectSeconds = 1
	// Engines behind uvicorn close idle connections after 5 s; a request on such a
	// connection would be lost.
	upstreamIdleSeconds = 4
	// Out of the way: the plan, admission and retry budgets do the limiting.
	breakerLimit = 1_000_000
	// A machine that has gone without a word is found out after 15 + 3×5 s in which its
	// connection was silent, not when the stream has been idle for minutes.
	keepaliveSeconds, keepaliveEachSeconds, keepaliveProbes = 15, 5, 3

	httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	socketMatch = "envoy.transport_socket_match"
	poolKey     = "pool"
)

// encodeCluster writes a class's cluster. Its engines are those eligible for the
// class and no others, so that first choice, retry and fallback alike keep to
// what the class demands.
func encodeCluster(c *fleet.ViewClass) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 string(c.ID),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
		ConnectTimeout:       seconds(connectSeconds),
		LoadBalancingPolicy:  overrideOverMaglev(),
		// No panic: hashed traffic never goes to engines known to be sick.
		CommonLbConfig:   &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: 0}},
		CircuitBreakers:  openBreakers(),
		OutlierDetection: outlierDetection(),
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveTime: u32(keepaliveSeconds), KeepaliveInterval: u32(keepaliveEachSeconds), KeepaliveProbes: u32(keepaliveProbes),
		}},
		LrsServer: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}},
		},
		TransportSocketMatches:        socketMatches(c.Pools),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: pack(protocolOptions())},
	}
}

// overrideOverMaglev walks weir-extproc's list of alternatives, one for each
// attempt, and falls back to consistent hashing with the plan's weights.
func overrideOverMaglev() *clusterv3.LoadBalancingPolicy {
	maglev := policy("envoy.load_balancing_policies.maglev", pack(&maglevv3.Maglev{}))
	return policy("envoy.load_balancing_policies.override_host", pack(&overridev3.OverrideHost{
		OverrideHostSources: []*overridev3.OverrideHost_OverrideHostSource{{
			Metadata: &metadatav3.MetadataKey{
				Key:  Namespace,
				Path: []*metadatav3.MetadataKey_PathSegment{{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: NextKey}}},
			},
		}},
		FallbackPolicy: maglev,
	}))
}

func policy(name string, config *anypb.Any) *clusterv3.LoadBalancingPolicy {
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: name, TypedConfig: config},
	}}}
}

func openBreakers() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     u32(breakerLimit),
		MaxPendingRequests: u32(breakerLimit),
		MaxRequests:        u32(breakerLimit),
	}}}
}

// outlierDetection ejects engines that fail hard, for the few seconds until the plan
// knows, and no longer: where no other engine is left, an ejection that outlasts the
// fault is an outage of its own. So is ejecting every engine of a class: at most half
// of them are out at once, and of one engine none. Busy ones (503, 429) are spared by
// the error matcher.
func outlierDetection() *clusterv3.OutlierDetection {
	return &clusterv3.OutlierDetection{
		Interval:                       seconds(1),
		BaseEjectionTime:               seconds(2),
		MaxEjectionTime:                seconds(4),
		MaxEjectionPercent:             u32(50),
		AlwaysEjectOneHost:             wrapperspb.Bool(false),
		SplitExternalLocalOriginErrors: true,
		ConsecutiveLocalOriginFailure:  u32(3),
		EnforcingSuccessRate:           u32(0),
	}
}

func protocolOptions() *upstreamv3.HttpProtocolOptions {
	return &upstreamv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: seconds(upstreamIdleSeconds)},
		UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
					HttpProtocolOptions: withTrailers(),
				},
			},
		},
		OutlierDetection: &upstreamv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: anyStatus("500", "502")},
		// Engines never see our headers. They cannot be removed at the route: that
		// takes Maglev's input away as well.
		HttpFilters: upstreamFilters(),
	}
}

// withTrailers lets trailers pass: HTTP/1 drops them unless it is told.
func withTrailers() *corev3.Http1ProtocolOptions {
	return &corev3.Http1ProtocolOptions{EnableTrailers: true}
}

func anyStatus(codes ...string) *commonmatcherv3.MatchPredicate {
	set := &commonmatcherv3.MatchPredicate_MatchSet{}
	for _, code := range codes {
		set.Rules = append(set.Rules, &commonmatcherv3.MatchPredicate{Rule: &commonmatcherv3.MatchPredicate_HttpResponseHeadersMatch{
			HttpResponseHeadersMatch: &commonmatcherv3.HttpHeadersMatch{Headers: []*routev3.HeaderMatcher{headerMatch(":status", exact(code))}},
		}})
	}
	return &commonmatcherv3.MatchPredicate{Rule: &commonmatcherv3.MatchPredicate_OrMatch{OrMatch: set}}
}

// poolMetadata marks an engine with its pool, by which its transport socket is found.
func poolMetadata(p fleet.PoolID) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{socketMatch: poolStruct(p)}}
}

func poolStruct(p fleet.PoolID) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{poolKey: structpb.NewStringValue(string(p))}}
}

func socketMatches(pools []fleet.ViewPool) []*clusterv3.Cluster_TransportSocketMatch {
	var matches []*clusterv3.Cluster_TransportSocketMatch
	for _, p := range pools {
		if p.TLS != nil {
			matches = append(matches, &clusterv3.Cluster_TransportSocketMatch{
				Name:  string(p.ID),
				Match: poolStruct(p.ID),
				TransportSocket: &corev3.TransportSocket{
					Name:       "envoy.transport_sockets.tls",
					ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(encodeTLS(p.TLS))},
				},
			})
		}
	}
	return matches
}

// encodeTLS checks the engine's certificate against the CA and the SNI's name.
// Without a CA file Envoy uses the machine's.
func encodeTLS(t *fleet.TLS) *tlsv3.UpstreamTlsContext {
	common := &tlsv3.CommonTlsContext{}
	validation := &tlsv3.CertificateValidationContext{}
	if t.CAFile != "" {
		validation.TrustedCa = file(t.CAFile)
	} else {
		validation.SystemRootCerts = &tlsv3.CertificateValidationContext_SystemRootCerts{}
	}
	if t.SNI != "" {
		validation.MatchTypedSubjectAltNames = []*tlsv3.SubjectAltNameMatcher{{
			SanType: tlsv3.SubjectAltNameMatcher_DNS,
			Matcher: exact(t.SNI),
		}}
	}
	common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: validation}
	if t.CertFile != "" {
		common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: file(t.CertFile), PrivateKey: file(t.KeyFile)}}
	}
	return &tlsv3.UpstreamTlsContext{Sni: t.SNI, CommonTlsContext: common}
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

func upstreamFilters() []*hcmv3.HttpFilter {
	return []*hcmv3.HttpFilter{
		filter("strip", &headersv3.HeaderMutation{Mutations: &headersv3.Mutations{
			RequestMutations:         []*mutationv3.HeaderMutation{removePrefix(HeaderPrefix)},
			RequestTrailersMutations: []*mutationv3.HeaderMutation{removePrefix(HeaderPrefix)},
			ResponseMutations:        []*mutationv3.HeaderMutation{removePrefix(HeaderPrefix)}, // in whose name is it said?
		}}),
		filter("envoy.filters.http.upstream_codec", &codecv3.UpstreamCodec{}),
	}
}

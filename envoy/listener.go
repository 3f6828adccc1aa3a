package envoy

import (
	"fmt"
	"slices"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	skipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	headersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	statefulv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	transformv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/transform/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	envoymatcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/fleet"
)

// messageTimeoutSeconds bounds one answer of weir-extproc. Handing it a body of
// 32 MiB takes some hundred milliseconds on a busy core; a dead one is noticed by
// its health check long before.
const messageTimeoutSeconds = 1

// encodeListener writes the one listener of a front-end. Its chain of filters:
// strip our headers from clients, let browsers read answers, ask weir-extproc, read
// the model from the body where weir-extproc did not answer, take the first choice,
// read the tokens of the answer, route.
func encodeListener(v *fleet.View) (*listenerv3.Listener, error) {
	address, err := socketAddress(v.Listen)
	if err != nil {
		return nil, fmt.Errorf("listener: %w", err)
	}
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix:     "weir",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: RouteName, ConfigSource: ads()}},
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{extension("strip", &earlyv3.HeaderMutation{
			Mutations: []*mutationv3.HeaderMutation{removePrefix(HeaderPrefix), removePrefix(HeaderGateway)},
		})},
		HttpFilters:                httpFilters(v),
		HttpProtocolOptions:        withTrailers(),
		StreamIdleTimeout:          seconds(v.Idle.Seconds()), // there is no total limit
		RequestTimeout:             seconds(0),
		ServerHeaderTransformation: hcmv3.HttpConnectionManager_PASS_THROUGH,
		PreserveExternalRequestId:  true,
		LocalReplyConfig:           localReplies(),
		// Of WebSockets; they go where their headers say, like all that has no body.
		UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		AccessLog:      accessLogs(v),
	}
	return &listenerv3.Listener{
		Name:    ListenerName,
		Address: address,
		// Before a route is known the virtual host's limit does not apply, and a
		// body over Envoy's default of 1 MiB would get a 413.
		PerConnectionBufferLimitBytes: u32(uint32(v.BodyLimit)),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "http",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(manager)},
		}}}},
	}, nil
}

func httpFilters(v *fleet.View) []*hcmv3.HttpFilter {
	filters := append(browserFilters(v.Origins), discreetFilter(v), extProcFilter(), bodyModelFilter(v), pickFilter(), usageFilter(v))
	if follows(v) {
		filters = append(filters, wholeFilter())
	}
	return append(filters, routerFilter())
}

// ads says that a resource comes over the aggregated stream.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
		InitialFetchTimeout:   seconds(5),
	}
}

func extension(name string, m proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: pack(m)}
}

func filter(name string, m proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(m)}}
}

func removePrefix(prefix string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{
		RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{KeyMatcher: &envoymatcherv3.StringMatcher{
			MatchPattern: &envoymatcherv3.StringMatcher_Prefix{Prefix: prefix},
		}},
	}}
}

// extProcFilter asks weir-extproc, headers first. It fails open: what happens
// without an answer is laid down by the filters after it and by the routes.
func extProcFilter() *hcmv3.HttpFilter {
	return filter("ext_proc", &extprocv3.ExternalProcessor{
		GrpcService:          grpcService(ExtProc),
		FailureModeAllow:     true,
		MessageTimeout:       seconds(messageTimeoutSeconds),
		AllowModeOverride:    true,
		AllowedOverrideModes: []*extprocv3.ProcessingMode{BodyMode()},
		// Asking for the trailers keeps the stream open until the request ends, at
		// no extra message: open streams are the requests in flight.
		ProcessingMode: &extprocv3.ProcessingMode{
			RequestHeaderMode:   extprocv3.ProcessingMode_SEND,
			ResponseHeaderMode:  extprocv3.ProcessingMode_SKIP,
			ResponseTrailerMode: extprocv3.ProcessingMode_SEND,
		},
		MetadataOptions: &extprocv3.MetadataOptions{
			ReceivingNamespaces: &extprocv3.MetadataOptions_MetadataNamespaces{Untyped: []string{Namespace}},
		},
		MutationRules: &mutationv3.HeaderMutationRules{
			DisallowAll: wrapperspb.Bool(true),
			// "content-length" is for a body with an alias resolved, the last two for
			// refusals, whose headers pass the same rules.
			AllowExpression: &envoymatcherv3.RegexMatcher{Regex: "^(" + HeaderPrefix + ".*|content-length|content-type|retry-after)$"},
		},
		ForwardRules: &extprocv3.HeaderForwardingRules{DisallowedHeaders: exactAny(DeniedHeaders())},
	})
}

// BodyMode is the one mode into which weir-extproc may override: the request's
// body, whole. Envoy ignores an override that differs from it in anything.
func BodyMode() *extprocv3.ProcessingMode {
	return &extprocv3.ProcessingMode{
		RequestBodyMode:     extprocv3.ProcessingMode_BUFFERED,
		ResponseHeaderMode:  extprocv3.ProcessingMode_SKIP,
		ResponseTrailerMode: extprocv3.ProcessingMode_SEND,
	}
}

// DeniedHeaders lists the credentials that weir-extproc never sees, so that no
// class rule may use them.
func DeniedHeaders() []string { return []string{"authorization", "cookie", "x-api-key"} }

func exactAny(names []string) *envoymatcherv3.ListStringMatcher {
	out := &envoymatcherv3.ListStringMatcher{}
	for _, n := range names {
		out.Patterns = append(out.Patterns, exact(n))
	}
	return out
}

func exact(s string) *envoymatcherv3.StringMatcher {
	return &envoymatcherv3.StringMatcher{MatchPattern: &envoymatcherv3.StringMatcher_Exact{Exact: s}}
}

func grpcService(cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster},
	}}
}

// bodyModelFilter reads the model, and body fields that name a conversation, from
// the body when weir-extproc did not answer, and routes again. Nearly every
// client names its model nowhere else.
func bodyModelFilter(v *fleet.View) *hcmv3.HttpFilter {
	var mutations []*mutationv3.HeaderMutation
	for _, field := range slices.Backward(bodyFields(v)) { // the first that exists must win, so it is written last
		mutations = append(mutations, copyBody(field, HeaderAffinity))
	}
	mutations = append(mutations, copyBody("model", HeaderModel))
	return filter("body-model", &matchingv3.ExtensionWithMatcher{
		XdsMatcher: skipUnneeded(),
		ExtensionConfig: extension("transform", &transformv3.TransformConfig{
			RequestTransformation: &transformv3.Transformation{HeadersMutations: mutations},
			ClearRouteCache:       true,
		}),
	})
}

// bodyFields lists the top-level body fields that name a conversation in any
// class, once each; the filter cannot reach deeper.
func bodyFields(v *fleet.View) []string {
	var fields []string
	for _, c := range v.Classes {
		for _, k := range c.Affinity {
			if k.Kind == fleet.AffinityBody && !strings.Contains(k.Name, ".") && !slices.Contains(fields, k.Name) {
				fields = append(fields, k.Name)
			}
		}
	}
	return fields
}

func copyBody(field, header string) *mutationv3.HeaderMutation {
	return setHeader(header, "%REQUEST_BODY("+field+")%")
}

// skipUnneeded passes over a filter where weir-extproc has answered, and where the
// client asks for an upgrade: what follows then is no body, and has no end.
func skipUnneeded() *matcherv3.Matcher {
	upgrades := &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Matcher{Matcher: skipWith("upgrade", nil)}}
	return skipWith(HeaderAdmitted, upgrades)
}

// skipWith passes over a filter where a header is there.
func skipWith(header string, without *matcherv3.Matcher_OnMatch) *matcherv3.Matcher {
	return &matcherv3.Matcher{OnNoMatch: without, MatcherType: &matcherv3.Matcher_MatcherTree_{MatcherTree: &matcherv3.Matcher_MatcherTree{
		Input: headerInput(header),
		TreeType: &matcherv3.Matcher_MatcherTree_PrefixMatchMap{PrefixMatchMap: &matcherv3.Matcher_MatcherTree_MatchMap{
			Map: map[string]*matcherv3.Matcher_OnMatch{"": skip()},
		}},
	}}}
}

func skip() *matcherv3.Matcher_OnMatch {
	return &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Action{
		Action: &xdscorev3.TypedExtensionConfig{Name: "skip", TypedConfig: pack(&skipv3.SkipFilter{})},
	}}
}

// discreetFilter strips our headers from responses. It stands before pickFilter,
// and so comes after it on the way back: that one tells the client the address of
// its engine, in a header that a route cannot remove. After that comes what clients are
// told: why it is to come again, how many engines were asked, and, where the fleet file has it told, the
// decision, of which there is nothing to tell where weir-extproc did not decide.
func discreetFilter(v *fleet.View) *hcmv3.HttpFilter {
	const kept = "weir-kept"
	mutations := []*mutationv3.HeaderMutation{
		setHeader(kept, "%RESP("+HeaderShedReason+")%"), // an engine cannot set it: upstreamFilters
		removePrefix(HeaderPrefix),
		setHeader(HeaderShedReason, "%RESP("+kept+")%"),
		removePrefix(kept),
		removePrefix("x-envoy-"),
		setHeader(HeaderAttempts, "%UPSTREAM_REQUEST_ATTEMPT_COUNT%"),
	}
	if v.TellDecision {
		mutations = append(mutations, &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{
			Append: header(HeaderDecision, "%DYNAMIC_METADATA("+Namespace+":"+DecisionKey+")%"),
		}})
	}
	return filter("discreet", &headersv3.HeaderMutation{Mutations: &headersv3.Mutations{
		ResponseMutations: mutations, ResponseTrailersMutations: []*mutationv3.HeaderMutation{removePrefix(HeaderPrefix)},
	}})
}

// pickFilter takes weir-extproc's first choice. Unlike override_host it heeds the
// engine's health.
func pickFilter() *hcmv3.HttpFilter {
	return filter("pick", &statefulv3.StatefulSession{
		SessionState: extension("envoy.http.stateful_session.header", &sessionv3.HeaderBasedSessionState{Name: HeaderPick}),
	})
}

package envoy

import (
	"regexp"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	headersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	envoymatcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Pages in browsers may send requests where the fleet file names their origins.
// Envoy's own filter for that passes over routes that answer by themselves, and most
// requests have no other before their model is read. So a route answers preflights,
// and a filter marks answers of all kinds, errors too.

// browserRoutes answer the preflights of pages that may ask, which do not have the
// model that a request is routed by. Cookies are none of it: keys come in headers,
// of which browsers want "authorization" by name.
func browserRoutes(origins []string) []*routev3.Route {
	if len(origins) == 0 {
		return nil
	}
	return []*routev3.Route{{
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"},
			Headers: []*routev3.HeaderMatcher{
				headerMatch(":method", exact("OPTIONS")),
				headerMatch("origin", pattern(originPattern(origins))),
				present("access-control-request-method", true),
			},
		},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 204}},
		ResponseHeadersToAdd: []*corev3.HeaderValueOption{
			header("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE"),
			header("access-control-allow-headers", "*, authorization"),
			header("access-control-max-age", "600"), // seconds
		},
		TypedPerFilterConfig: unasked(),
	}}
}

// browserFilters let a page that may ask read the answer.
func browserFilters(origins []string) []*hcmv3.HttpFilter {
	if len(origins) == 0 {
		return nil
	}
	return []*hcmv3.HttpFilter{filter("browsers", &matchingv3.ExtensionWithMatcher{
		XdsMatcher: skipUnless("origin", originPattern(origins)),
		ExtensionConfig: extension("mark", &headersv3.HeaderMutation{Mutations: &headersv3.Mutations{
			ResponseMutations: []*mutationv3.HeaderMutation{
				setHeader("access-control-allow-origin", "%REQ(origin)%"),
				setHeader("access-control-expose-headers", "*"),
				setHeader("vary", "origin"),
			},
		}}),
	})}
}

// originPattern matches any of the origins, all of the text.
func originPattern(origins []string) string {
	quoted := make([]string, len(origins))
	for i, o := range origins {
		if quoted[i] = regexp.QuoteMeta(o); o == "*" {
			quoted[i] = ".+"
		}
	}
	return strings.Join(quoted, "|")
}

func skipUnless(header, pattern string) *matcherv3.Matcher {
	single := &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
		Input: headerInput(header),
		Matcher: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
				EngineType: &matcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &matcherv3.RegexMatcher_GoogleRE2{}},
				Regex:      pattern,
			}},
		}},
	}
	matches := &matcherv3.Matcher_MatcherList_Predicate{
		MatchType: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{SinglePredicate: single},
	}
	not := &matcherv3.Matcher_MatcherList_Predicate{MatchType: &matcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: matches}}
	return &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherList_{MatcherList: &matcherv3.Matcher_MatcherList{
		Matchers: []*matcherv3.Matcher_MatcherList_FieldMatcher{{Predicate: not, OnMatch: skip()}},
	}}}
}

func headerInput(name string) *xdscorev3.TypedExtensionConfig {
	return &xdscorev3.TypedExtensionConfig{
		Name:        name,
		TypedConfig: pack(&envoymatcherv3.HttpRequestHeaderMatchInput{HeaderName: name}),
	}
}

func setHeader(name, value string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: header(name, value)}}
}

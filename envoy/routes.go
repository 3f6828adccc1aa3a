package envoy

import (
	"encoding/json"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	envoymatcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/fleet"
)

// Keys of route metadata in Namespace.
const (
	frontEndKey   = "front-end"
	originsKey    = "origins"
	decisionKey   = "decision"
	tenantKey     = "tenant"
	holdKey       = "hold" // seconds
	priorityKey   = "priority"
	affinityKey   = "affinity"
	unreadableKey = "unreadable"
	asKey         = "as" // what engines call the model of the rule
)

// authorityPort follows a host in the pattern that matches ":authority".
const authorityPort = `(:[0-9]+)?`

// encodeRoutes writes the one route configuration of a front-end: the list of
// models, then one route for each rule in the order of the view (before it, its
// twin that sheds when weir-extproc is dead), then what matches no class.
func encodeRoutes(v *fleet.View) *routev3.RouteConfiguration {
	routes := append(browserRoutes(v.Origins), modelRoutes(v.Models)...)
	for _, r := range v.Routes {
		routes = append(routes, ruleRoutes(v.Class(r.Class), r.Rule)...)
	}
	routes = append(routes, lastRoutes(v)...)
	return &routev3.RouteConfiguration{
		Name: RouteName,
		// The list of models may outgrow Envoy's default of 4 KiB.
		MaxDirectResponseBodySizeBytes: u32(1 << 20),
		VirtualHosts: []*routev3.VirtualHost{{
			Name:                   RouteName,
			Domains:                []string{"*"},
			Routes:                 routes,
			Metadata:               hostMetadata(v),
			RequestBodyBufferLimit: wrapperspb.UInt64(uint64(v.BodyLimit)),
		}},
	}
}

// hostMetadata is what the whole front-end is told.
func hostMetadata(v *fleet.View) *corev3.Metadata {
	return metadata(map[string]any{
		frontEndKey: string(v.FrontEnd), originsKey: list(v.Origins), decisionKey: v.TellDecision, holdKey: v.Hold.Seconds(),
		tenantKey: v.TenantHeader,
	})
}

// ruleRoutes are those of one rule. Where engines call the model otherwise, only a
// live weir-extproc can put their name for it into the body.
func ruleRoutes(c *fleet.ViewClass, r fleet.Rule) []*routev3.Route {
	match := encodeRule(r)
	if r.As == "" {
		return append([]*routev3.Route{shedRoute(c.ID, match)}, classRoutes(c, match, nil)...)
	}
	admitted := &routev3.RouteMatch{
		PathSpecifier: match.PathSpecifier,
		Headers:       append(slices.Clone(match.Headers), present(HeaderAdmitted, true)),
	}
	return append(classRoutes(c, admitted, map[string]any{asKey: r.As}), answer(&routev3.Route{Match: match}, 503, NoAlias()))
}

// encodeRule writes the match of one rule, in the small subset that
// weir-extproc evaluates too.
func encodeRule(r fleet.Rule) *routev3.RouteMatch {
	m := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
	switch {
	case r.Exact:
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: r.Path}
	case r.Path != "":
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: r.Path}
	}
	if r.Host != "" {
		m.Headers = append(m.Headers, headerMatch(":authority", pattern("(?i)"+regexp.QuoteMeta(r.Host)+authorityPort)))
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, headerMatch(h.Name, exact(h.Value)))
	}
	if r.Model != "" {
		m.Headers = append(m.Headers, headerMatch(HeaderModel, exact(r.Model)))
	}
	m.Headers = append(m.Headers, encodeBodyRule(r.Body)...)
	return m
}

// encodeBodyRule matches what weir-extproc says of the body. Clients cannot say it.
func encodeBodyRule(r fleet.BodyRule) []*routev3.HeaderMatcher {
	var out []*routev3.HeaderMatcher
	for _, f := range []struct {
		word string
		want bool
	}{{FeatureTools, r.Tools}, {FeatureVision, r.Vision}} {
		if f.want {
			out = append(out, headerMatch(HeaderFeatures, &envoymatcherv3.StringMatcher{
				MatchPattern: &envoymatcherv3.StringMatcher_Contains{Contains: f.word},
			}))
		}
	}
	if r.ContextOver > 0 {
		out = append(out, &routev3.HeaderMatcher{
			Name: HeaderContext,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_RangeMatch{
				RangeMatch: &typev3.Int64Range{Start: int64(r.ContextOver) + 1, End: math.MaxInt64},
			},
		})
	}
	return out
}

func headerMatch(name string, value *envoymatcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name:                 name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: value},
	}
}

// pattern matches a whole text.
func pattern(regex string) *envoymatcherv3.StringMatcher {
	return &envoymatcherv3.StringMatcher{MatchPattern: &envoymatcherv3.StringMatcher_SafeRegex{
		SafeRegex: &envoymatcherv3.RegexMatcher{Regex: regex},
	}}
}

func present(name string, is bool) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name:                 name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true},
		InvertMatch:          !is,
	}
}

// classRoutes send a match to a class's cluster: first what must not be done twice, by
// a route without a name, since a reader of the routes is to see each rule once.
func classRoutes(c *fleet.ViewClass, match *routev3.RouteMatch, more map[string]any) []*routev3.Route {
	all := classRoute(c, match, more, retryPolicy())
	if len(c.Pools) == 0 || onlyComputes(match.GetPath()) {
		return []*routev3.Route{all}
	}
	once := classRoute(c, onceMatch(match), more, oncePolicy())
	once.Name = ""
	return []*routev3.Route{once, all}
}

// classRoute sends a match to a class's cluster. A class that no pool can serve
// answers for itself.
func classRoute(c *fleet.ViewClass, match *routev3.RouteMatch, more map[string]any, policy *routev3.RetryPolicy) *routev3.Route {
	route := &routev3.Route{Name: string(c.ID), Match: match, Metadata: routeMetadata(c, more)}
	if len(c.Pools) == 0 {
		route.ResponseHeadersToAdd = append(route.ResponseHeadersToAdd, header("retry-after", usualRetryAfter))
		return answer(route, 503, NoEngine())
	}
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: string(c.ID)},
		Timeout:          seconds(0),
		HashPolicy:       hashPolicies(c.Affinity),
		RetryPolicy:      policy,
	}
	if slices.ContainsFunc(c.Pools, func(p fleet.ViewPool) bool { return nameOf(&p) != "" }) {
		action.HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
	}
	route.Action = &routev3.Route_Route{Route: action}
	return route
}

// routeMetadata is what is said of the class on each of its routes, and more on this.
func routeMetadata(c *fleet.ViewClass, more map[string]any) *corev3.Metadata {
	keys := make([]any, len(c.Affinity))
	for i, k := range c.Affinity {
		keys[i] = k.String()
	}
	values := map[string]any{priorityKey: c.Priority, affinityKey: keys}
	maps.Copy(values, more)
	return metadata(values)
}

func list(texts []string) []any {
	out := make([]any, len(texts))
	for i, s := range texts {
		out[i] = s
	}
	return out
}

func metadata(values map[string]any) *corev3.Metadata {
	fields, err := structpb.NewStruct(values)
	if err != nil {
		panic("envoy: metadata: " + err.Error()) // the values are ours: strings, numbers and lists of strings
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{Namespace: fields}}
}

// hashPolicies orders Maglev's inputs as the affinity keys stand in the file.
// What comes from the body, or from weir-extproc, is in HeaderAffinity.
func hashPolicies(keys []fleet.AffinityKey) []*routev3.RouteAction_HashPolicy {
	var headers []string
	for _, k := range keys {
		name := k.Name
		if k.Kind != fleet.AffinityHeader {
			name = HeaderAffinity
		}
		if !slices.Contains(headers, name) {
			headers = append(headers, name)
		}
	}
	if !slices.Contains(headers, HeaderAffinity) {
		headers = append(headers, HeaderAffinity)
	}
	policies := make([]*routev3.RouteAction_HashPolicy, len(headers))
	for i, h := range headers {
		policies[i] = &routev3.RouteAction_HashPolicy{
			PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: h}},
			Terminal:        true,
		}
	}
	return policies
}

// usualRetryAfter is in seconds, as weir-extproc has it: long enough for the plan to know
// of the demand, or for an engine to be found.
const usualRetryAfter = "5"

// shedRoute refuses a part of a class's requests by itself while weir-extproc is
// dead. A live one marks what it admits, so that nothing is shed twice.
func shedRoute(c fleet.ClassID, match *routev3.RouteMatch) *routev3.Route {
	m := &routev3.RouteMatch{
		PathSpecifier: match.PathSpecifier,
		Headers:       append(slices.Clone(match.Headers), present(HeaderAdmitted, false)),
		RuntimeFraction: &corev3.RuntimeFractionalPercent{
			DefaultValue: &typev3.FractionalPercent{},
			RuntimeKey:   shedKey(c),
		},
	}
	route := &routev3.Route{Match: m, ResponseHeadersToAdd: []*corev3.HeaderValueOption{
		header("retry-after", usualRetryAfter), header(HeaderShedReason, ShedByPlan),
	}}
	return answer(route, 429, Overloaded())
}

func header(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// answer turns a route into a direct response with a JSON body.
func answer(route *routev3.Route, status uint32, body []byte) *routev3.Route {
	route.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
		Status: status,
		Body:   &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: body}},
	}}
	route.ResponseHeadersToAdd = append(route.ResponseHeadersToAdd, header("content-type", "application/json"))
	return route
}

// lastRoutes answer what no rule matched. A request without a readable model goes
// where the fleet file says, else it is refused; what a live weir-extproc admitted
// belongs to a class that this Envoy does not know yet.
func lastRoutes(v *fleet.View) []*routev3.Route {
	anyPath := &routev3.RouteMatch_Prefix{Prefix: "/"}
	var last []*routev3.Route
	if c := v.Class(v.Unreadable); c != nil {
		match := &routev3.RouteMatch{PathSpecifier: anyPath, Headers: []*routev3.HeaderMatcher{present(HeaderModel, false)}}
		last = append(last, shedRoute(c.ID, match))
		last = append(last, classRoutes(c, match, map[string]any{unreadableKey: true})...)
	}
	post := headerMatch(":method", exact("POST"))
	return append(last,
		answer(&routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: anyPath, Headers: []*routev3.HeaderMatcher{present(HeaderAdmitted, true)}}},
			503, apiError("this class of requests is being set up: retry", "server_error", "class_not_ready")),
		answer(&routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: anyPath, Headers: []*routev3.HeaderMatcher{post, present(HeaderModel, false)}}},
			400, Unreadable("send a JSON object with a string \"model\"")),
		answer(&routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: anyPath}},
			404, UnknownModel("no such model or path")),
	)
}

// modelRoutes answer GET and HEAD of /v1/models and /v1/models/NAME, ext_proc alive or
// not. Clients escape the slashes of a name.
func modelRoutes(models []string) []*routev3.Route {
	list := modelList{Object: "list", Data: make([]model, len(models))}
	var routes []*routev3.Route
	for i, name := range models {
		list.Data[i] = model{ID: name, Object: "model", OwnedBy: "weir"}
		routes = append(routes, getRoute(modelsPath+"/"+name, list.Data[i]))
		if escaped := url.PathEscape(name); escaped != name {
			routes = append(routes, getRoute(modelsPath+"/"+escaped, list.Data[i]))
		}
	}
	return append([]*routev3.Route{getRoute(modelsPath, list)}, routes...)
}

const modelsPath = "/v1/models"

// modelList is what OpenAI's clients read.
type modelList struct {
	Object string  `json:"object"`
	Data   []model `json:"data"`
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int    `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func getRoute(path string, body any) *routev3.Route {
	data, err := json.Marshal(body)
	if err != nil {
		panic("envoy: " + err.Error()) // strings always marshal
	}
	return answer(&routev3.Route{
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_Path{Path: path},
			Headers:       []*routev3.HeaderMatcher{headerMatch(":method", pattern("GET|HEAD"))},
		},
		TypedPerFilterConfig: unasked(),
	}, 200, data)
}

// unasked has a route answer without weir-extproc.
func unasked() map[string]*anypb.Any {
	return map[string]*anypb.Any{
		"ext_proc": pack(&extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Disabled{Disabled: true}}),
	}
}

// decodeModels reads the models from the list that answers for them.
func decodeModels(r *routev3.Route) []string {
	var list modelList
	if r.GetMatch().GetPath() != modelsPath || json.Unmarshal(r.GetDirectResponse().GetBody().GetInlineBytes(), &list) != nil {
		return nil
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names
}

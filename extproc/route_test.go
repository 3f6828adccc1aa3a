package extproc

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"weir/fleet"
)

// routed makes a table of one class for each rule, named "0", "1", … and with the
// same affinity.
func routed(affinity []fleet.AffinityKey, rules ...fleet.Rule) *Table {
	v := &fleet.View{}
	for i, r := range rules {
		id := fleet.ClassID(rune('0' + i))
		v.Routes = append(v.Routes, fleet.ViewRoute{Class: id, Rule: r})
		v.Classes = append(v.Classes, fleet.ViewClass{ID: id, Affinity: affinity})
	}
	return NewTable(v)
}

func TestRuleMatches(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		rule fleet.Rule
		head *extprocv3.HttpHeaders
		want bool
	}{
		{"no demands", fleet.Rule{}, post("/"), true},
		{"host", fleet.Rule{Host: "api.example.org"}, post("/"), true},
		{"host without a port", fleet.Rule{Host: "a"}, authority("a"), true},
		{"host in capitals", fleet.Rule{Host: "a.org"}, authority("A.ORG:80"), true},
		{"IPv6 host", fleet.Rule{Host: "[::1]"}, authority("[::1]:80"), true},
		{"IPv6 host without a port", fleet.Rule{Host: "[::1]"}, authority("[::1]"), true},
		{"longer host", fleet.Rule{Host: "a"}, authority("ab"), false},
		{"subdomain", fleet.Rule{Host: "a.org"}, authority("x.a.org"), false},
		{"host with a colon only", fleet.Rule{Host: "a"}, authority("a:"), false},
		{"host with no port number", fleet.Rule{Host: "a"}, authority("a:8x"), false},
		{"no host", fleet.Rule{Host: "a"}, &extprocv3.HttpHeaders{}, false},
		{"prefix", fleet.Rule{Path: "/v1/"}, post("/v1/chat"), true},
		{"prefix inside a name", fleet.Rule{Path: "/v1"}, post("/v10"), true},
		{"prefix in another case", fleet.Rule{Path: "/v1/"}, post("/V1/chat"), false},
		{"prefix only in the query", fleet.Rule{Path: "/v1?x"}, post("/v1?x=1"), false},
		{"longer than the path", fleet.Rule{Path: "/v1/chat"}, post("/v1"), false},
		{"exact", fleet.Rule{Path: "/v1", Exact: true}, post("/v1"), true},
		{"exact with a query", fleet.Rule{Path: "/v1", Exact: true}, post("/v1?a=/b"), true},
		{"exact with a fragment", fleet.Rule{Path: "/v1", Exact: true}, post("/v1#a"), true},
		{"exact is more", fleet.Rule{Path: "/v1", Exact: true}, post("/v1/"), false},
		{"header", fleet.Rule{Headers: []fleet.HeaderRule{{Name: "tier", Value: "gold"}}}, post("/", "tier: gold"), true},
		{"header of another value", fleet.Rule{Headers: []fleet.HeaderRule{{Name: "tier", Value: "gold"}}}, post("/", "tier: Gold"), false},
		{"no such header", fleet.Rule{Headers: []fleet.HeaderRule{{Name: "tier", Value: ""}}}, post("/"), false},
		{"empty header", fleet.Rule{Headers: []fleet.HeaderRule{{Name: "tier", Value: ""}}}, post("/", "tier: "), true},
		{"repeated header", fleet.Rule{Headers: []fleet.HeaderRule{{Name: "a", Value: "1,2"}}}, post("/", "a: 1", "a: 2"), true},
		{"one of a repeated header", fleet.Rule{Headers: []fleet.HeaderRule{{Name: "a", Value: "1"}}}, post("/", "a: 1", "a: 2"), false},
		{"one header of two", fleet.Rule{Headers: []fleet.HeaderRule{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}}, post("/", "a: 1"), false},
		{"all but the path", fleet.Rule{Host: "api.example.org", Path: "/v2"}, post("/v1"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := routed(nil, tt.rule).classOf(headOf(tt.head), &facts{}) != nil; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// authority are the headers of a request for a host, as Envoys write values that
// are text.
func authority(host string) *extprocv3.HttpHeaders {
	return &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":authority", Value: host}}}}
}

func TestFirstMatchDecides(t *testing.T) {
	t.Parallel()
	table := routed(nil,
		fleet.Rule{Path: "/gold/", Model: "big"},
		fleet.Rule{Path: "/gold/"},
		fleet.Rule{Model: "big"},
		fleet.Rule{Path: "/late/"},
		fleet.Rule{Path: "/late/", Model: "small"},
	)
	tests := []struct{ path, model, want string }{
		{"/gold/x", "big", "0"},
		{"/gold/x", "small", "1"},
		{"/gold/x", "", "1"},
		{"/x", "big", "2"},
		{"/x", "Big", ""},
		{"/x", "small", ""},
		{"/x", "", ""},
		{"/late/x", "small", "3"},
		{"/late/x", "big", "2"},
		{"/late/x", "", "3"},
	}
	for _, tt := range tests {
		got := ""
		if c := table.classOf(headOf(post(tt.path)), &facts{model: tt.model}); c != nil {
			got = string(c.id)
		}
		if got != tt.want {
			t.Errorf("%s with model %q: class %q, want %q", tt.path, tt.model, got, tt.want)
		}
	}
}

func TestNeed(t *testing.T) {
	t.Parallel()
	header := fleet.AffinityKey{Kind: fleet.AffinityHeader, Name: "x-session"}
	body := fleet.AffinityKey{Kind: fleet.AffinityBody, Name: "user"}
	byPath, byModel := fleet.Rule{Path: "/v1"}, fleet.Rule{Path: "/v1", Model: "m"}
	tests := []struct {
		name     string
		affinity []fleet.AffinityKey
		rules    []fleet.Rule
		head     *extprocv3.HttpHeaders
		want     need
	}{
		{"tools", nil, []fleet.Rule{{Path: "/v1", Body: fleet.BodyRule{Tools: true}}, byPath}, post("/v1"), theBody},
		{"tools after", nil, []fleet.Rule{byPath, {Path: "/v1", Body: fleet.BodyRule{Tools: true}}}, post("/v1"), theHeaders},
		{"GET and tools first", nil, []fleet.Rule{{Path: "/v1", Body: fleet.BodyRule{ContextOver: 1}}, byPath}, request("GET", "/v1"), theHeaders},
		{"GET and tools", nil, []fleet.Rule{{Path: "/v1", Body: fleet.BodyRule{Vision: true}}}, request("GET", "/v1"), nothing},
		{"a model", nil, []fleet.Rule{byModel}, post("/v1"), theBody},
		{"a model first", nil, []fleet.Rule{byModel, byPath}, post("/v1"), theBody},
		{"a model after", nil, []fleet.Rule{byPath, byModel}, post("/v1"), theHeaders},
		{"a model elsewhere", nil, []fleet.Rule{{Path: "/v2", Model: "m"}, byPath}, post("/v1"), theHeaders},
		{"no class", nil, []fleet.Rule{byPath}, post("/v2"), theBody},
		{"key in a header", []fleet.AffinityKey{header, body}, []fleet.Rule{byPath}, post("/v1", "x-session: s"), theHeaders},
		{"key not in a header", []fleet.AffinityKey{header, body}, []fleet.Rule{byPath}, post("/v1"), theBody},
		{"empty header", []fleet.AffinityKey{header, body}, []fleet.Rule{byPath}, post("/v1", "x-session: "), theBody},
		{"the body before the header", []fleet.AffinityKey{body, header}, []fleet.Rule{byPath}, post("/v1", "x-session: s"), theBody},
		{"only headers", []fleet.AffinityKey{header}, []fleet.Rule{byPath}, post("/v1"), theHeaders},
		{"fingerprint", []fleet.AffinityKey{{Kind: fleet.AffinityFingerprint}}, []fleet.Rule{byPath}, post("/v1"), theBody},
		{"GET", []fleet.AffinityKey{body}, []fleet.Rule{byPath}, request("GET", "/v1"), theHeaders},
		{"GET and a model first", []fleet.AffinityKey{body}, []fleet.Rule{byModel, byPath}, request("GET", "/v1"), theHeaders},
		{"GET and a model", nil, []fleet.Rule{byModel}, request("GET", "/v1"), nothing},
		{"GET and no class", nil, nil, request("GET", "/v1/models"), nothing},
		{"GET with a body", nil, []fleet.Rule{byModel}, withBody(request("GET", "/v1")), theBody},
		{"HEAD with a body", []fleet.AffinityKey{body}, []fleet.Rule{byPath}, withBody(request("HEAD", "/v1")), theBody},
		{"POST without a body", nil, []fleet.Rule{byModel}, &extprocv3.HttpHeaders{Headers: post("/v1").Headers, EndOfStream: true}, nothing},
		{"OPTIONS", nil, []fleet.Rule{byModel}, &extprocv3.HttpHeaders{Headers: request("OPTIONS", "/v1").Headers, EndOfStream: true}, nothing},
		{"upgrade", []fleet.AffinityKey{body}, []fleet.Rule{byPath}, withBody(request("GET", "/v1", "upgrade: websocket")), theHeaders},
		{"upgrade and a model", nil, []fleet.Rule{byModel}, post("/v1", "upgrade: websocket"), nothing},
		{"tunnel", nil, []fleet.Rule{{}}, withBody(request("CONNECT", "")), nothing},
		{"no class, nothing known", nil, nil, post("/"), theBody},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := routed(tt.affinity, tt.rules...).need(headOf(tt.head)); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestClientRetry(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"x-other: 1":                 false,
		"x-stainless-retry-count: 0": false,
		"x-stainless-retry-count: ":  false,
		"x-stainless-retry-count: 1": true,
		"x-stainless-retry-count: 2": true,
	} {
		if got := headOf(post("/", line)).clientRetry(); got != want {
			t.Errorf("%s: got %v, want %v", line, got, want)
		}
	}
}

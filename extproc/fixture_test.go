package extproc

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"weir/extproc/wire"
	"weir/fleet"
)

// twoPools is a view of one class for the model "small" with two pools of a share
// each, and one without.
func twoPools() *fleet.View {
	return &fleet.View{
		FrontEnd:  "berlin",
		BodyLimit: 1 << 20,
		Models:    []string{"small"},
		Routes:    []fleet.ViewRoute{{Class: "chat", Rule: fleet.Rule{Model: "small"}}},
		Classes: []fleet.ViewClass{{
			ID: "chat", Admitted: 1,
			Affinity: []fleet.AffinityKey{
				{Kind: fleet.AffinityHeader, Name: "x-session"},
				{Kind: fleet.AffinityBody, Name: "conversation"},
				{Kind: fleet.AffinityFingerprint},
			},
			Pools: []fleet.ViewPool{
				viewPool("east", 7_000_000, 2),
				viewPool("north", 0, 2),
				viewPool("west", 3_000_000, 2),
			},
		}},
	}
}

// viewPool has n engines, all ready.
func viewPool(id string, weight uint32, n int) fleet.ViewPool {
	p := fleet.ViewPool{ID: fleet.PoolID(id), Weight: weight}
	for i := range n {
		e := fleet.EngineID(fmt.Sprintf("10.%d.0.%d:8000", id[0], i))
		p.Engines = append(p.Engines, fleet.ViewEngine{ID: e, Readiness: fleet.Ready})
	}
	return p
}

// poolOf says which pool of viewPool's an engine is in, by its first letter.
func poolOf(e fleet.EngineID) string {
	var letter byte
	if _, err := fmt.Sscanf(string(e), "10.%d.", &letter); err != nil {
		return "none"
	}
	return string(rune(letter))
}

// post are the headers of a request with a body; more are "name: value".
func post(path string, more ...string) *extprocv3.HttpHeaders {
	return request("POST", path, append([]string{"content-type: application/json"}, more...)...)
}

// request are the headers of a request that has a body, unless its method is one
// that seldom has.
func request(method, path string, more ...string) *extprocv3.HttpHeaders {
	lines := append([]string{":method: " + method, ":path: " + path, ":authority: api.example.org:443"}, more...)
	m := &corev3.HeaderMap{}
	for _, line := range lines {
		at := strings.Index(line[1:], ": ") + 1
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: line[:at], RawValue: []byte(line[at+2:])})
	}
	return &extprocv3.HttpHeaders{Headers: m, EndOfStream: method == "GET" || method == "HEAD"}
}

// withBody are the same headers with a body to come.
func withBody(m *extprocv3.HttpHeaders) *extprocv3.HttpHeaders {
	return &extprocv3.HttpHeaders{Headers: m.Headers}
}

func headOf(m *extprocv3.HttpHeaders) *head {
	h := newHead(headersOf(m))
	return &h
}

// headersOf is how the message that brings headers is received.
func headersOf(m *extprocv3.HttpHeaders) *wire.Request {
	b, err := proto.Marshal(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: m}})
	if err != nil {
		panic(err) // headers of a test always marshal
	}
	var read wire.Request
	if err := read.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}); err != nil {
		panic(err)
	}
	return &read
}

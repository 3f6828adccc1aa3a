package simulate

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"weir/envoy"
	"weir/extproc"
	"weir/fleet"
)

// The simulation sends every conversation where the real weir-extproc sends it, and
// refuses those that it refuses.
func TestChoosesAsWeirExtProcDoes(t *testing.T) {
	luck := rand.New(rand.NewPCG(1, 1))
	server := extproc.New(zap.NewNop())
	admitted, refused, somewhere := 0, 0, map[string]bool{}
	for range 40 {
		v, number := randomView(luck)
		for range 50 {
			name := fmt.Sprintf("conversation %d", luck.Uint64())
			v.Classes[0].Admitted = 1
			server.Swap(extproc.NewTable(v))
			pick, key := asked(t, server, name)
			choice := newChoice(&v.Classes[0], number)
			if want, ok := number[fleet.EngineID(pick)]; choice.engine(key) != want || !ok {
				t.Fatalf("%s goes to number %d, want %s of %+v", name, choice.engine(key), pick, v.Classes[0].Pools)
			}
			somewhere[pick] = true

			v.Classes[0].Admitted = luck.Float64()
			server.Swap(extproc.NewTable(v))
			pick, _ = asked(t, server, name)
			choice = newChoice(&v.Classes[0], number)
			if got := choice.admits(key); got != (pick != "") {
				t.Fatalf("%s is let in: %v, want %v at a fraction of %v", name, got, pick != "", v.Classes[0].Admitted)
			}
			if pick == "" {
				refused++
			} else {
				admitted++
			}
		}
	}
	if admitted < 500 || refused < 500 || len(somewhere) < 6 {
		t.Errorf("%d were let in, %d refused, %d engines chosen: too few to judge by", admitted, refused, len(somewhere))
	}
}

func TestChoosesNobodyWhereNobodyIs(t *testing.T) {
	c := newChoice(&fleet.ViewClass{ID: "chat", Pools: []fleet.ViewPool{{ID: "p", Weight: 1}}}, nil)
	if got := c.engine(1); got != none {
		t.Errorf("engine = %d, want none", got)
	}
}

// randomView has pools with and without shares, and engines that are not ready.
func randomView(luck *rand.Rand) (*fleet.View, map[fleet.EngineID]int32) {
	v := &fleet.View{
		FrontEnd: "here", BodyLimit: 1 << 20,
		Routes:  []fleet.ViewRoute{{Class: "chat", Rule: fleet.Rule{Path: "/"}}},
		Classes: []fleet.ViewClass{{ID: "chat", Affinity: []fleet.AffinityKey{{Kind: fleet.AffinityHeader, Name: "x-session"}}}},
	}
	number := map[fleet.EngineID]int32{}
	for p := range 1 + luck.IntN(4) {
		pool := fleet.ViewPool{ID: fleet.PoolID(fmt.Sprint("pool", p)), Weight: uint32(luck.IntN(3) * 1_000_000)}
		for e := range 1 + luck.IntN(4) {
			id := fleet.EngineID(fmt.Sprintf("10.0.%d.%d:80", p, e))
			number[id] = int32(len(number))
			readiness := []fleet.Readiness{fleet.Unknown, fleet.Ready, fleet.Unready}[luck.IntN(3)]
			if p == 0 && e == 0 {
				readiness = fleet.Ready // somebody is
			}
			pool.Engines = append(pool.Engines, fleet.ViewEngine{ID: id, Readiness: readiness})
		}
		v.Classes[0].Pools = append(v.Classes[0].Pools, pool)
	}
	return v, number
}

// asked has the server decide about a conversation: the engine that it picks, and the
// key. No engine: it refuses.
func asked(t *testing.T, s *extproc.Server, name string) (pick string, key uint64) {
	t.Helper()
	stream := &oneRequest{context: t.Context(), name: name}
	if err := s.Process(stream); err != nil {
		t.Fatal(err)
	}
	for _, h := range stream.answer.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		value := h.GetHeader().GetRawValue()
		switch h.GetHeader().GetKey() {
		case envoy.HeaderPick:
			address, err := base64.StdEncoding.DecodeString(string(value))
			if err != nil {
				t.Fatal(err)
			}
			pick = string(address)
		case envoy.HeaderAffinity:
			hash, err := hex.DecodeString(string(value))
			if err != nil || len(hash) != 8 {
				t.Fatalf("affinity %q: %v", value, err)
			}
			key = binary.BigEndian.Uint64(hash)
		}
	}
	if pick == "" && stream.answer.GetImmediateResponse() == nil {
		t.Fatalf("neither picked nor refused: %v", stream.answer)
	}
	return pick, key
}

// oneRequest is the stream of a request without a body.
type oneRequest struct {
	grpc.ServerStream
	context context.Context
	name    string
	answer  *extprocv3.ProcessingResponse
}

func (s *oneRequest) Context() context.Context { return s.context }

func (s *oneRequest) Recv() (*extprocv3.ProcessingRequest, error) {
	if s.answer != nil {
		return nil, io.EOF
	}
	m := &corev3.HeaderMap{}
	for _, h := range [][2]string{{":method", "POST"}, {":path", "/"}, {":authority", "here"}, {"x-session", s.name}} {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: m, EndOfStream: true},
	}}, nil
}

func (s *oneRequest) Send(m *extprocv3.ProcessingResponse) error {
	s.answer = m
	return nil
}

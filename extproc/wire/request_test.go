package wire

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// read is what Request reads of a message that came in pieces of so many bytes.
func read(t *testing.T, b []byte, piece int) (*Request, error) {
	t.Helper()
	var data mem.BufferSlice
	for rest := b; len(rest) > 0; {
		n := min(piece, len(rest))
		data = append(data, mem.SliceBuffer(rest[:n:n]))
		rest = rest[n:]
	}
	r := &Request{Kind: RequestTrailers, EndOfStream: true, Headers: []Header{{"left", "over"}}}
	err := r.Unmarshal(data)
	t.Cleanup(r.Free)
	return r, err
}

// oracle is what it should read.
func oracle(m *extprocv3.ProcessingRequest) *Request {
	r := &Request{}
	switch x := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		r.Kind, r.EndOfStream = RequestHeaders, x.RequestHeaders.GetEndOfStream()
		for _, h := range x.RequestHeaders.GetHeaders().GetHeaders() {
			value := string(h.GetRawValue())
			if value == "" {
				value = h.GetValue()
			}
			r.Headers = append(r.Headers, Header{h.GetKey(), value})
		}
	case *extprocv3.ProcessingRequest_RequestBody:
		r.Kind, r.Body = RequestBody, x.RequestBody.GetBody()
	case *extprocv3.ProcessingRequest_RequestTrailers:
		r.Kind = RequestTrailers
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		r.Kind = ResponseHeaders
	case *extprocv3.ProcessingRequest_ResponseBody:
		r.Kind = ResponseBody
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		r.Kind = ResponseTrailers
	}
	return r
}

func sameAs(t *testing.T, got *Request, m *extprocv3.ProcessingRequest) {
	t.Helper()
	if diff := cmp.Diff(got, oracle(m), cmpopts.IgnoreUnexported(Request{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("read %v (-got +want):\n%s", m, diff)
	}
}

var messages = map[string]*extprocv3.ProcessingRequest{
	"nothing": {},
	"headers": {Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":path", RawValue: []byte("/v1/chat/completions")},
			{Key: "x-text", Value: "written as text"},
			{Key: "x-both", Value: "text", RawValue: []byte("raw")},
			{Key: "x-empty"},
			{},
			{Key: "x-bytes", RawValue: []byte{0xff, 0}},
		}},
		EndOfStream: true,
	}}, ObservabilityMode: true},
	"no headers": {Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}}},
	"body": {Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{
		Body: make([]byte, 3<<14), EndOfStream: true,
	}}, MetadataContext: &corev3.Metadata{}},
	"empty body":       {Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{EndOfStream: true}}},
	"trailers":         {Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}},
	"response headers": {Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{EndOfStream: true}}},
}

func TestRequest(t *testing.T) {
	for name, m := range messages {
		t.Run(name, func(t *testing.T) {
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			for _, piece := range []int{1 << 20, 1 << 14, 7} {
				got, err := read(t, b, piece)
				if err != nil {
					t.Fatal(err)
				}
				sameAs(t, got, m)
			}
		})
	}
}

// A message that is cut short anywhere is an error, but where a field ends.
func TestCutShort(t *testing.T) {
	b, err := proto.Marshal(messages["headers"])
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		_, err := read(t, b[:n], 1<<20)
		if whole := proto.Unmarshal(b[:n], &extprocv3.ProcessingRequest{}) == nil; whole != (err == nil) {
			t.Errorf("%d of %d bytes: error %v, protobuf takes them: %v", n, len(b), err, whole)
		}
	}
}

// What protobuf reads, Request reads alike.
func FuzzRequest(f *testing.F) {
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m extprocv3.ProcessingRequest
		if _, err := read(t, b, 100); proto.Unmarshal(b, &m) != nil {
			return // it may take more than protobuf does, but must end
		} else if err != nil {
			t.Fatalf("%v: protobuf takes it", err)
		}
		// Envoy sends no message twice in one, which protobuf would merge.
		b, err := proto.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(t, b, 100)
		if err != nil {
			t.Fatal(err)
		}
		sameAs(t, got, &m)
	})
}

package wire

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
)

// What an admission says is what the message says that it stands for, be its parts
// of one byte or of more than a varint's first seven bits can tell.
func TestAdmission(t *testing.T) {
	long := strings.Repeat("long ", 5000)
	for _, tt := range []struct {
		name    string
		answers Kind
		headers []Header
		notes   []Header
		body    []byte
	}{
		{"bare", RequestHeaders, nil, nil, nil},
		{"headers", RequestHeaders, []Header{{"x-weir-admitted", "1"}, {"x-weir-pick", "MTAuMC4wLjE6ODAwMA=="}, {"x-empty", ""}}, nil, nil},
		{"a note", RequestBody, []Header{{"a", "b"}}, []Header{{"next", "10.0.0.1:8000,10.0.0.2:8000"}}, nil},
		{"a body", RequestBody, []Header{{"a", "b"}}, []Header{{"k", ""}, {"l", "m"}}, []byte(`{"model":"m"}`)},
		{"an empty body", RequestBody, nil, nil, []byte{}},
		{"all long", RequestBody, []Header{{"x", long}, {"y", long[:125]}}, []Header{{long[:120], long}, {long[:119], long[:118]}}, []byte(long)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := Admission{Answers: tt.answers, Body: tt.body, Namespace: "weir"}
			common := &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: &extprocv3.HeaderMutation{}}
			for _, h := range tt.headers {
				a.Set(h.Name, h.Value)
				common.HeaderMutation.SetHeaders = append(common.HeaderMutation.SetHeaders, &corev3.HeaderValueOption{
					Header:       &corev3.HeaderValue{Key: h.Name, RawValue: []byte(h.Value)},
					AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
				})
			}
			if tt.body != nil {
				common.BodyMutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: tt.body}}
			}
			want := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
				RequestHeaders: &extprocv3.HeadersResponse{Response: common},
			}}
			if tt.answers == RequestBody {
				want.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: common}}
			}
			notes := map[string]any{}
			for _, n := range tt.notes {
				a.Note(n.Name, n.Value)
				notes[n.Name] = n.Value
			}
			if len(notes) > 0 {
				want.DynamicMetadata, _ = structpb.NewStruct(map[string]any{"weir": notes})
			}
			got := &extprocv3.ProcessingResponse{}
			if err := proto.Unmarshal(a.Marshal(), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, want, protocmp.Transform()); diff != "" {
				t.Errorf("got (-got +want):\n%s", diff)
			}
		})
	}
}

package extproc

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/envoy"
	"weir/extproc/wire"
)

// maxModelHeader bounds the model name that is sent on in a header, in bytes.
const maxModelHeader = 1024

// reply is an answer to the headers or to the body: one of both is nil.
type reply struct {
	common    *extprocv3.CommonResponse
	immediate *extprocv3.ImmediateResponse
	metadata  *structpb.Struct
}

func pass() reply { return reply{common: &extprocv3.CommonResponse{}} }

// admit tells Envoy where the request goes. The route is chosen again, as it
// depends on the headers that are set here.
func admit(d *decision) reply {
	headers := []*corev3.HeaderValueOption{
		header(envoy.HeaderAdmitted, []byte("1")),
		header(envoy.HeaderPick, d.choice.first().pick),
		header(envoy.HeaderAffinity, inHex(d.key.hash)),
	}
	if fitsHeader(d.model) {
		headers = append(headers, header(envoy.HeaderModel, []byte(d.model)))
	}
	headers = append(headers, d.features.headers()...)
	return reply{
		common: &extprocv3.CommonResponse{
			HeaderMutation:  &extprocv3.HeaderMutation{SetHeaders: headers},
			ClearRouteCache: true,
		},
		metadata: d.metadata(),
	}
}

func inHex(hash uint64) []byte {
	return hex.AppendEncode(nil, binary.BigEndian.AppendUint64(nil, hash))
}

// withBody replaces the body, and the header that says its length if there is one:
// Envoy gives up a request whose header says another.
func (r reply) withBody(body []byte, saysLength bool) reply {
	if saysLength {
		length := strconv.AppendInt(nil, int64(len(body)), 10)
		r.common.HeaderMutation.SetHeaders = append(r.common.HeaderMutation.SetHeaders, header("content-length", length))
	}
	r.common.BodyMutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: body}}
	return r
}

// headers tell Envoy what rules may ask of the body.
func (f *features) headers() []*corev3.HeaderValueOption {
	var out []*corev3.HeaderValueOption
	switch {
	case f.tools && f.vision:
		out = append(out, header(envoy.HeaderFeatures, []byte(envoy.FeatureTools+","+envoy.FeatureVision)))
	case f.tools:
		out = append(out, header(envoy.HeaderFeatures, []byte(envoy.FeatureTools)))
	case f.vision:
		out = append(out, header(envoy.HeaderFeatures, []byte(envoy.FeatureVision)))
	}
	if n := f.context(); n > 0 {
		out = append(out, header(envoy.HeaderContext, strconv.AppendInt(nil, int64(n), 10)))
	}
	return out
}

func header(name string, value []byte) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// fitsHeader says whether a model's name may stand in a header: Envoy would drop
// the whole answer over one that may not, and no rule can ask for such a name.
func fitsHeader(model string) bool {
	return model != "" && len(model) <= maxModelHeader && strings.TrimSpace(model) == model &&
		strings.IndexFunc(model, unicode.IsControl) < 0
}

// metadata is what is for Envoy's filters and logs: the engines for further attempts,
// as override_host reads them, the key of an answer that may be followed, and what the
// client is told.
func (d *decision) metadata() *structpb.Struct {
	fields := map[string]*structpb.Value{}
	if d.choice.n > 1 {
		fields[envoy.NextKey] = structpb.NewStringValue(next(d.choice.engines[1:d.choice.n]))
	}
	if d.told != "" {
		fields[envoy.DecisionKey] = structpb.NewStringValue(d.told)
	}
	if d.followable {
		fields[envoy.FollowKey] = structpb.NewStringValue(string(inHex(d.key.hash)))
	}
	if len(fields) == 0 {
		return nil
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		envoy.Namespace: structpb.NewStructValue(&structpb.Struct{Fields: fields}),
	}}
}

func next(engines []*engine) string {
	addresses := make([]string, len(engines))
	for i, e := range engines {
		addresses[i] = string(e.id)
	}
	return strings.Join(addresses, ",")
}

// refuse has Envoy answer the client.
func refuse(r *refusal) reply {
	headers := []*corev3.HeaderValueOption{header("content-type", []byte("application/json"))}
	if r.retryAfterSeconds > 0 {
		headers = append(headers, header("retry-after", strconv.AppendInt(nil, int64(r.retryAfterSeconds), 10)))
	}
	return reply{immediate: &extprocv3.ImmediateResponse{
		Status:  &typev3.HttpStatus{Code: typev3.StatusCode(r.status)},
		Headers: &extprocv3.HeaderMutation{SetHeaders: headers},
		Body:    r.body,
		Details: r.details,
	}}
}

// askForBody has Envoy send the body of this one request, whole.
func askForBody() *extprocv3.ProcessingResponse {
	out := onRequestHeaders(pass())
	out.ModeOverride = envoy.BodyMode()
	return out
}

func onRequestHeaders(r reply) *extprocv3.ProcessingResponse {
	if r.immediate != nil {
		return immediately(r.immediate)
	}
	return &extprocv3.ProcessingResponse{
		DynamicMetadata: r.metadata,
		Response: &extprocv3.ProcessingResponse_RequestHeaders{
			RequestHeaders: &extprocv3.HeadersResponse{Response: r.common},
		},
	}
}

func onRequestBody(r reply) *extprocv3.ProcessingResponse {
	if r.immediate != nil {
		return immediately(r.immediate)
	}
	return &extprocv3.ProcessingResponse{
		DynamicMetadata: r.metadata,
		Response: &extprocv3.ProcessingResponse_RequestBody{
			RequestBody: &extprocv3.BodyResponse{Response: r.common},
		},
	}
}

func immediately(m *extprocv3.ImmediateResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: m}}
}

// empty answers a message of any kind with its own kind, changing nothing.
func empty(kind wire.Kind) *extprocv3.ProcessingResponse {
	out := &extprocv3.ProcessingResponse{}
	switch kind {
	case wire.RequestHeaders:
		return onRequestHeaders(pass())
	case wire.RequestBody:
		return onRequestBody(pass())
	case wire.RequestTrailers:
		out.Response = &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}
	case wire.ResponseHeaders:
		out.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}
	case wire.ResponseBody:
		out.Response = &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}}
	case wire.ResponseTrailers:
		out.Response = &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}
	}
	return out
}

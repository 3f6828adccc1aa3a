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

// reply is an answer to the headers or to the body: one of these is not nil.
type reply struct {
	admission *wire.Admission
	common    *extprocv3.CommonResponse
	immediate *extprocv3.ImmediateResponse

	told string // what the client is told of a refusal; empty: nothing
}

func pass() reply { return reply{common: &extprocv3.CommonResponse{}} }

// admit tells Envoy where the request goes. The route is chosen again, as it
// depends on the headers that are set here.
func admit(d *decision) reply {
	a := &wire.Admission{Namespace: envoy.Namespace}
	a.Set(envoy.HeaderAdmitted, "1")
	a.Set(envoy.HeaderPick, d.choice.first().pick)
	a.Set(envoy.HeaderAffinity, inHex(d.key.hash))
	if fitsHeader(d.model) {
		a.Set(envoy.HeaderModel, d.model)
	}
	d.features.tell(a)
	d.note(a)
	return reply{admission: a}
}

func inHex(hash uint64) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, hash))
}

// withBody replaces the body, and the header that says its length if there is one:
// Envoy gives up a request whose header says another.
func (r reply) withBody(body []byte, saysLength bool) reply {
	if saysLength {
		r.admission.Set("content-length", strconv.Itoa(len(body)))
	}
	r.admission.Body = body
	return r
}

// tell tells Envoy what rules may ask of the body.
func (f *features) tell(a *wire.Admission) {
	switch {
	case f.tools && f.vision:
		a.Set(envoy.HeaderFeatures, envoy.FeatureTools+","+envoy.FeatureVision)
	case f.tools:
		a.Set(envoy.HeaderFeatures, envoy.FeatureTools)
	case f.vision:
		a.Set(envoy.HeaderFeatures, envoy.FeatureVision)
	}
	if n := f.context(); n > 0 {
		a.Set(envoy.HeaderContext, strconv.Itoa(n))
	}
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

// note notes what is for Envoy's filters and logs: the engines for further attempts,
// as override_host reads them, the key of an answer that may be followed, and what the
// client is told.
func (d *decision) note(a *wire.Admission) {
	if d.choice.n > 1 {
		a.Note(envoy.NextKey, addresses(d.choice.engines[1:d.choice.n]))
	}
	if d.told != "" {
		a.Note(envoy.DecisionKey, d.told)
	}
	if d.followable {
		a.Note(envoy.FollowKey, inHex(d.key.hash))
	}
}

func addresses(engines []*engine) string {
	var list []byte
	for i, e := range engines {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, e.id...)
	}
	return string(list)
}

// refuse has Envoy answer the client.
func refuse(r *refusal) reply {
	headers := []*corev3.HeaderValueOption{header("content-type", []byte("application/json"))}
	if r.retryAfterSeconds > 0 {
		headers = append(headers, header("retry-after", strconv.AppendInt(nil, int64(r.retryAfterSeconds), 10)))
	}
	if r.shedReason != "" {
		headers = append(headers, header(envoy.HeaderShedReason, []byte(r.shedReason)))
	}
	return reply{immediate: &extprocv3.ImmediateResponse{
		Status:  &typev3.HttpStatus{Code: typev3.StatusCode(r.status)},
		Headers: &extprocv3.HeaderMutation{SetHeaders: headers},
		Body:    r.body,
		Details: r.details,
	}}
}

// telling adds what the client is told of the decision. It goes by metadata, as with
// an admission: Envoy strips headers of ours from all answers.
func (r reply) telling(told string) reply {
	r.told = told
	return r
}

// askForBody has Envoy send the body of this one request, whole.
var askForBody = wire.Prepare(&extprocv3.ProcessingResponse{
	Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{}},
	},
	ModeOverride: envoy.BodyMode(),
})

// onRequestHeaders is the message that a reply to the headers is sent in.
func onRequestHeaders(r reply) any {
	if r.common == nil {
		return r.toAny(wire.RequestHeaders)
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: r.common},
	}}
}

// onRequestBody is the message that a reply to the body is sent in.
func onRequestBody(r reply) any {
	if r.common == nil {
		return r.toAny(wire.RequestBody)
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: r.common},
	}}
}

// toAny is the message of a reply that differs in nothing else.
func (r reply) toAny(kind wire.Kind) any {
	if r.immediate != nil {
		return immediately(r.immediate, r.told)
	}
	r.admission.Answers = kind
	return r.admission
}

func immediately(m *extprocv3.ImmediateResponse, told string) *extprocv3.ProcessingResponse {
	out := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: m}}
	if told != "" {
		out.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{
			envoy.Namespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				envoy.DecisionKey: structpb.NewStringValue(told),
			}}),
		}}
	}
	return out
}

// empty answers a message of any kind with its own kind, changing nothing.
func empty(kind wire.Kind) any {
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

package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// localReplies gives Envoy's own errors the shape of ours. They
// are known by their response flags, which the answers of our routes and of
// weir-extproc do not have.
func localReplies() *hcmv3.LocalReplyConfig {
	overloaded := &hcmv3.ResponseMapper{
		Filter:             repliedFor("overload"), // which has no flag
		BodyFormatOverride: errorFormat("this front-end is overloaded: retry", "server_error", "front_end_busy"),
		HeadersToAdd:       []*corev3.HeaderValueOption{header("retry-after", overloadRetryAfter)},
	}
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{
		overloaded,
		mapStatus(408, "the request did not arrive in time", "request_timeout"),
		come(mapReply("no engine of this class is ready: retry later", "server_error", "no_engine", "UH", "NC")),
		mapReply("the engine failed before it answered: retry", "server_error", "engine_failed", "UF", "UC", "UR", "UPE", "URX", "LR"),
		mapReply("the engine did not answer in time", "server_error", "engine_timeout", "UT", "SI", "DT"),
		overflown(),
		mapStatus(413, tooLarge, tooLargeCode),
		mapStatus(431, "the request's headers are larger than this front-end takes", "headers_too_large"),
		mapStatus(426, "HTTP/1.0 is not spoken here: use HTTP/1.1 or HTTP/2", "http_version"),
		mapStatus(403, "there is no upgrade to this protocol", "no_such_upgrade"),
		mapReply("there is no tunnel, nor anything at this path", "invalid_request_error", "no_such_path", "NR"),
	}}
}

// overloadRetryAfter is in seconds: until some of what is in flight has ended.
const overloadRetryAfter = "2"

// come asks the client to come back.
func come(m *hcmv3.ResponseMapper) *hcmv3.ResponseMapper {
	m.HeadersToAdd = append(m.HeadersToAdd, header("retry-after", usualRetryAfter))
	return m
}

// overflown is for requests that a circuit breaker refuses. It sheds as
// weir-extproc does: with the same status and error. It stands behind the engines'
// failures: one that is not tried again, for want of budget, has the flag too.
func overflown() *hcmv3.ResponseMapper {
	m := come(mapReply("this front-end has as many requests open as it may: retry later", "rate_limit_error", "overloaded", "UO"))
	m.StatusCode = u32(429)
	m.HeadersToAdd = append(m.HeadersToAdd, header(HeaderShedReason, ShedByBreaker))
	return m
}

func mapReply(message, kind, code string, flags ...string) *hcmv3.ResponseMapper {
	return &hcmv3.ResponseMapper{
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: flags},
		}},
		BodyFormatOverride: errorFormat(message, kind, code),
	}
}

// repliedFor finds replies by what Envoy calls their reason.
func repliedFor(details string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name:       "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: pack(&celv3.ExpressionFilter{Expression: "response.code_details == '" + details + "'"})},
		},
	}}
}

// mapStatus is for statuses that nothing of ours answers with.
func mapStatus(status uint32, message, code string) *hcmv3.ResponseMapper {
	return &hcmv3.ResponseMapper{
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
			StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: &accesslogv3.ComparisonFilter{
				Op:    accesslogv3.ComparisonFilter_EQ,
				Value: &corev3.RuntimeUInt32{DefaultValue: status, RuntimeKey: "weir.reply"},
			}},
		}},
		BodyFormatOverride: errorFormat(message, "invalid_request_error", code),
	}
}

// errorFormat has no place for operators, so Envoy prints it as it stands.
func errorFormat(message, kind, code string) *corev3.SubstitutionFormatString {
	text := structpb.NewStringValue
	format := &structpb.Struct{Fields: map[string]*structpb.Value{"type": text("error"), "error": structpb.NewStructValue(&structpb.Struct{
		Fields: map[string]*structpb.Value{
			"message": text(message), "type": text(kind), "code": text(code), "param": structpb.NewNullValue(),
		},
	})}}
	return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: format}}
}

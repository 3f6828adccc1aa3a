package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	jsonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/content_parsers/json/v3"
	jsonmetadatav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/json_to_metadata/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	ssev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/sse_to_metadata/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"

	"weir/fleet"
)

// The access log tells weir-extproc what became of each request: one entry for
// each attempt, another each second while it lasts, and one for the whole request,
// with the tokens that its answer says it used. Entries may be lost; nothing but
// statistics rests on them, and on a second log a hint (see answers.go).

// Tags of entries: decimal microseconds, absent until their moment has come. An
// entry of a whole request has those of its last attempt.
const (
	TagFirstByte = "first_us"  // from the first byte sent to the first byte of the answer's body
	TagDecode    = "decode_us" // from there to the last byte
)

// Keys of the tokens that an answer says it used, in the request's metadata under
// [UsageNamespace].
const (
	UsageNamespace = "weir.usage"
	UsagePrompt    = "prompt"
	UsageOutput    = "output"
	UsageCached    = "cached"
	// Anthropic's Messages API counts a prompt in three parts that add up: what was
	// found in the cache, what was put there, and the rest.
	UsageUncached = "uncached"
	UsageCreated  = "created"
)

const (
	attemptSeconds = 1   // between two entries of an attempt that lasts
	bufferSeconds  = 0.1 // that entries wait for others
	maxEvent       = 1 << 20
)

func routerFilter() *hcmv3.HttpFilter {
	return filter("router", &routerv3.Router{
		SuppressEnvoyHeaders: true,
		UpstreamLog:          []*accesslogv3.AccessLog{accessLog()},
		UpstreamLogOptions:   &routerv3.Router_UpstreamAccessLogOptions{UpstreamLogFlushInterval: seconds(attemptSeconds)},
	})
}

// accessLog writes to weir-extproc. It is the same for attempts and for whole
// requests, so that both take one stream and come in order.
func accessLog() *accesslogv3.AccessLog {
	return grpcLog(&grpclogv3.HttpGrpcAccessLogConfig{
		CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
			LogName:             "weir",
			BufferFlushInterval: seconds(bufferSeconds),
			CustomTags: []*tracingv3.CustomTag{
				tag(TagFirstByte, "%COMMON_DURATION(US_TX_BEG:US_RX_BODY_BEG:us)%"),
				tag(TagDecode, "%COMMON_DURATION(US_RX_BODY_BEG:US_RX_END:us)%"),
			},
		},
		AdditionalResponseHeadersToLog: []string{"content-type"},
	})
}

func grpcLog(c *grpclogv3.HttpGrpcAccessLogConfig) *accesslogv3.AccessLog {
	c.CommonConfig.GrpcService, c.CommonConfig.TransportApiVersion = grpcService(ExtProc), corev3.ApiVersion_V3
	return &accesslogv3.AccessLog{Name: "weir-extproc", ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(c)}}
}

func tag(name, operators string) *tracingv3.CustomTag {
	return &tracingv3.CustomTag{Tag: name, Type: &tracingv3.CustomTag_Value{Value: operators}}
}

// usageFilter reads from the events of a streamed answer how many tokens it used,
// in the words of each of the APIs. It passes everything on as it comes, at the cost
// of reading every event: more than half of Envoy's time for forwarding it, and less
// than a message to weir-extproc would cost. Answers in one piece are not read:
// Envoy would hold them back whole, and refuse those that do not fit its buffer.
func usageFilter(v *fleet.View) *hcmv3.HttpFilter {
	rules := []*jsonv3.JsonContentParser_RuleConfig{
		usage(UsagePrompt, "usage", "prompt_tokens"),
		usage(UsageOutput, "usage", "completion_tokens"),
		usage(UsageCached, "usage", "prompt_tokens_details", "cached_tokens"),
		usage(UsagePrompt, "response", "usage", "input_tokens"),
		usage(UsageOutput, "response", "usage", "output_tokens"),
		usage(UsageCached, "response", "usage", "input_tokens_details", "cached_tokens"),
		usage(UsageUncached, "message", "usage", "input_tokens"),
		usage(UsageCached, "message", "usage", "cache_read_input_tokens"),
		usage(UsageCreated, "message", "usage", "cache_creation_input_tokens"),
		usage(UsageOutput, "usage", "output_tokens"),
	}
	if follows(v) {
		rules = append(rules, responseID())
	}
	return filter("usage", &ssev3.SseToMetadata{ResponseRules: &ssev3.SseToMetadata_ProcessingRules{
		MaxEventSize:  u32(maxEvent),
		ContentParser: extension("envoy.content_parsers.json", &jsonv3.JsonContentParser{Rules: rules}),
	}})
}

func usage(key string, path ...string) *jsonv3.JsonContentParser_RuleConfig {
	return onPresent(&jsonmetadatav3.JsonToMetadata_KeyValuePair{
		MetadataNamespace: UsageNamespace, Key: key, Type: jsonmetadatav3.JsonToMetadata_NUMBER,
	}, path...)
}

// onPresent notes the value at a path of an event, if it is there.
func onPresent(what *jsonmetadatav3.JsonToMetadata_KeyValuePair, path ...string) *jsonv3.JsonContentParser_RuleConfig {
	rule := &jsonmetadatav3.JsonToMetadata_Rule{OnPresent: what}
	for _, name := range path {
		rule.Selectors = append(rule.Selectors, &jsonmetadatav3.JsonToMetadata_Selector{
			Selector: &jsonmetadatav3.JsonToMetadata_Selector_Key{Key: name},
		})
	}
	return &jsonv3.JsonContentParser_RuleConfig{Rule: rule}
}

package envoy

import (
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	jsonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/content_parsers/json/v3"
	jsonmetadatav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/json_to_metadata/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	envoymatcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/fleet"
)

// Engines keep the responses of OpenAI's Responses API where they were made, and a
// request that follows one by its ID is understood there alone. A second log tells
// weir-extproc which engine made which response. It is apart from the first one, for
// that waits for more entries, and a program follows within a millisecond.

// Tags of entries of that log, which have no others.
const (
	TagResponse = "response" // the response's ID
	TagKey      = "key"      // [FollowKey] of its request
)

// Keys of metadata in which the filters put the ID.
const (
	responseNamespace = "weir.response"
	responseKey       = "id"
)

// follows says whether any class wants to know who made a response.
func follows(v *fleet.View) bool {
	return slices.ContainsFunc(v.Classes, func(c fleet.ViewClass) bool {
		return slices.ContainsFunc(c.Affinity, func(k fleet.AffinityKey) bool { return k.Kind == fleet.AffinityPrevious })
	})
}

// responseID reads the ID from the events of a response. No other API has it there.
func responseID() *jsonv3.JsonContentParser_RuleConfig {
	return onPresent(&jsonmetadatav3.JsonToMetadata_KeyValuePair{
		MetadataNamespace: responseNamespace, Key: responseKey, Type: jsonmetadatav3.JsonToMetadata_STRING,
	}, "response", "id")
}

func accessLogs(v *fleet.View) []*accesslogv3.AccessLog {
	logs := []*accesslogv3.AccessLog{accessLog()}
	if follows(v) {
		logs = append(logs, answerLog())
	}
	return logs
}

func answerLog() *accesslogv3.AccessLog {
	log := grpcLog(&grpclogv3.HttpGrpcAccessLogConfig{CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
		LogName:         "weir.answers",
		BufferSizeBytes: wrapperspb.UInt32(0), // at once
		CustomTags: []*tracingv3.CustomTag{
			tag(TagResponse, "%DYNAMIC_METADATA("+responseNamespace+":"+responseKey+")%"),
			tag(TagKey, "%DYNAMIC_METADATA("+Namespace+":"+FollowKey+")%"),
		},
	}})
	log.Filter = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_MetadataFilter{
		MetadataFilter: &accesslogv3.MetadataFilter{
			Matcher: &envoymatcherv3.MetadataMatcher{
				Filter: responseNamespace,
				Path:   []*envoymatcherv3.MetadataMatcher_PathSegment{{Segment: &envoymatcherv3.MetadataMatcher_PathSegment_Key{Key: responseKey}}},
				Value:  &envoymatcherv3.ValueMatcher{MatchPattern: &envoymatcherv3.ValueMatcher_PresentMatch{PresentMatch: true}},
			},
			MatchIfKeyNotFound: wrapperspb.Bool(false),
		},
	}}
	return log
}

// wholeFilter reads the ID of a response that comes in one piece, from its first
// bytes, as they pass: the filter that reads JSON would hold such an answer back
// whole, and refuse one that does not fit its buffer.
func wholeFilter() *hcmv3.HttpFilter {
	return filter("response-id", &matchingv3.ExtensionWithMatcher{
		XdsMatcher: skipUnless(":path", ".*"+ResponsesPath+`(\?.*)?`),
		ExtensionConfig: extension("lua", &luav3.Lua{DefaultSourceCode: &corev3.DataSource{
			Specifier: &corev3.DataSource_InlineString{InlineString: wholeScript},
		}}),
	})
}

// wholeScript looks at one piece of the body at most.
const wholeScript = `
function envoy_on_response(handle)
  local kind = handle:headers():get("content-type")
  if handle:headers():get(":status") ~= "200" or not kind or not kind:find("^application/json") then
    return
  end
  for piece in handle:bodyChunks() do
    local id = piece:getBytes(0, math.min(piece:length(), 1024)):match('"id"%s*:%s*"(` + ResponseIDPrefix + `[^"\\]+)"')
    if id then
      handle:streamInfo():dynamicMetadata():set("` + responseNamespace + `", "` + responseKey + `", id)
    end
    return
  end
end
`

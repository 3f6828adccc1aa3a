package outcome

import (
	"hash/maphash"
	"net/netip"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/envoy"
	"weir/fleet"
)

// oracle is what is read of an entry, by protobuf.
func oracle(e *logv3.HTTPAccessLogEntry) entry {
	common := e.GetCommonProperties()
	out := entry{
		moment: momentOf(common.GetAccessLogType()),
		key:    keyOf(common.GetDownstreamDirectRemoteAddress(), e.GetRequest().GetRequestId()),
		began:  common.GetStartTime().AsTime(),
		class:  fleet.ClassID(common.GetUpstreamCluster()),
		engine: fleet.EngineID(addressOf(common.GetUpstreamRemoteAddress())),
		status: e.GetResponse().GetResponseCode().GetValue(),
		stream: strings.HasPrefix(e.GetResponse().GetResponseHeaders()["content-type"], "text/event-stream"),
		first:  microseconds([]byte(common.GetCustomTags()[envoy.TagFirstByte])),
		decode: microseconds([]byte(common.GetCustomTags()[envoy.TagDecode])),
	}
	out.response = common.GetCustomTags()[envoy.TagResponse]
	out.affinity = hexadecimal([]byte(common.GetCustomTags()[envoy.TagKey]))
	f := common.GetResponseFlags()
	out.refused = f.GetUpstreamConnectionFailure()
	out.lost = f.GetUpstreamConnectionTermination() || f.GetUpstreamRemoteReset() || f.GetUpstreamProtocolError() || f.GetLocalReset()
	out.left = f.GetDownstreamConnectionTermination() || f.GetDownstreamRemoteReset() || f.GetDownstreamProtocolError()
	out.idle = f.GetStreamIdleTimeout() || f.GetDurationTimeout() || f.GetUpstreamRequestTimeout()
	if out.moment == requestOver {
		usage := common.GetMetadata().GetFilterMetadata()[envoy.UsageNamespace].GetFields()
		out.prompt, out.output, out.cached = tokensIn(usage, envoy.UsagePrompt), tokensIn(usage, envoy.UsageOutput), tokensIn(usage, envoy.UsageCached)
		if rest := tokensIn(usage, envoy.UsageUncached); rest.known && !out.prompt.known {
			out.prompt = measure{rest.value + out.cached.value + tokensIn(usage, envoy.UsageCreated).value, true}
		}
		out.asked, out.answered = e.GetRequest().GetRequestBodyBytes(), e.GetResponse().GetResponseBodyBytes()
	}
	if out.moment == during {
		out.sofar = e.GetRequest().GetRequestBodyBytes()
	}
	if out.engine == "" {
		out.moment = elsewhere
	}
	return out
}

func keyOf(a *corev3.Address, id string) (k key) {
	if text, err := proto.Marshal(a); err == nil && a != nil {
		k.client = maphash.Bytes(seed, text)
	}
	if id != "" {
		k.id = maphash.String(seed, id)
	}
	return k
}

func tokensIn(usage map[string]*structpb.Value, name string) measure {
	v, ok := usage[name]
	if n := v.GetNumberValue(); ok && n >= 0 && n <= maxTokens {
		return measure{n, true}
	}
	return measure{}
}

func addressOf(a *corev3.Address) string {
	s := a.GetSocketAddress()
	ip, err := netip.ParseAddr(s.GetAddress())
	if err != nil {
		return ""
	}
	return netip.AddrPortFrom(ip, uint16(s.GetPortValue())).String()
}

// received is how a message of the log is received.
func received(m *accesslogv3.StreamAccessLogsMessage) (*batch, error) {
	text, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b batch
	err = b.Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)})
	return &b, err
}

// sameAsOracle holds that a message was read as protobuf reads it.
func sameAsOracle(t *testing.T, b *batch, m *accesslogv3.StreamAccessLogsMessage) {
	t.Helper()
	var want []entry
	for _, e := range m.GetHttpLogs().GetLogEntry() {
		want = append(want, oracle(e))
	}
	if diff := cmp.Diff(b.entries, want, cmp.AllowUnexported(entry{}, key{}, measure{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("read (-got +want):\n%s", diff)
	}
}

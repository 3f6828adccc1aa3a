package outcome

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"

	"weir/envoy"
	"weir/fleet"
)

// moment is when an entry was written.
type moment int

const (
	elsewhere moment = iota // of no engine, or of a kind that tells nothing
	during                  // while an attempt lasts
	attemptOver
	requestOver
)

// key names a request while it lasts. The client's own request ID alone would not
// do: some clients send the same one for ever.
type key struct{ client, id string }

// entry is what an entry of the access log says.
type entry struct {
	moment moment
	key    key
	began  time.Time // the attempt, or the request
	class  fleet.ClassID
	engine fleet.EngineID
	status uint32 // 0: no answer began
	stream bool   // the answer is a stream of events

	first, decode measure // to the first byte of the answer's body, and on to its last
	refused, lost bool    // no connection; it broke
	left, idle    bool    // the client left; the answer went silent

	prompt, output, cached measure // tokens, as the answer says
	asked, answered        uint64  // bytes of the bodies
}

// measure is seconds or tokens, that may be unknown, which is not zero.
type measure struct {
	value float64
	known bool
}

func read(e *logv3.HTTPAccessLogEntry) entry {
	common := e.GetCommonProperties()
	out := entry{
		moment: momentOf(common.GetAccessLogType()),
		key:    key{address(common.GetDownstreamDirectRemoteAddress()), e.GetRequest().GetRequestId()},
		began:  common.GetStartTime().AsTime(),
		class:  fleet.ClassID(common.GetUpstreamCluster()),
		engine: fleet.EngineID(address(common.GetUpstreamRemoteAddress())),
		status: e.GetResponse().GetResponseCode().GetValue(),
		stream: strings.HasPrefix(e.GetResponse().GetResponseHeaders()["content-type"], "text/event-stream"),
		first:  microseconds(common.GetCustomTags()[envoy.TagFirstByte]),
		decode: microseconds(common.GetCustomTags()[envoy.TagDecode]),
	}
	out.readFlags(common.GetResponseFlags())
	if out.moment == requestOver {
		out.readUsage(common.GetMetadata())
		out.asked, out.answered = e.GetRequest().GetRequestBodyBytes(), e.GetResponse().GetResponseBodyBytes()
	}
	if out.engine == "" {
		out.moment = elsewhere
	}
	return out
}

func momentOf(t logv3.AccessLogType) moment {
	switch t {
	case logv3.AccessLogType_UpstreamPeriodic:
		return during
	case logv3.AccessLogType_UpstreamEnd:
		return attemptOver
	case logv3.AccessLogType_DownstreamEnd:
		return requestOver
	default:
		return elsewhere
	}
}

func (e *entry) readFlags(f *logv3.ResponseFlags) {
	e.refused = f.GetUpstreamConnectionFailure()
	e.lost = f.GetUpstreamConnectionTermination() || f.GetUpstreamRemoteReset() || f.GetUpstreamProtocolError() || f.GetLocalReset()
	e.left = f.GetDownstreamConnectionTermination() || f.GetDownstreamRemoteReset() || f.GetDownstreamProtocolError()
	e.idle = f.GetStreamIdleTimeout() || f.GetDurationTimeout() || f.GetUpstreamRequestTimeout()
}

func (e *entry) readUsage(m *corev3.Metadata) {
	usage := m.GetFilterMetadata()[envoy.UsageNamespace].GetFields()
	tokens := func(name string) measure {
		v, ok := usage[name]
		if n := v.GetNumberValue(); ok && n >= 0 && n <= maxTokens {
			return measure{n, true}
		}
		return measure{}
	}
	e.prompt, e.output, e.cached = tokens(envoy.UsagePrompt), tokens(envoy.UsageOutput), tokens(envoy.UsageCached)
	if rest := tokens(envoy.UsageUncached); rest.known && !e.prompt.known {
		e.prompt = measure{rest.value + e.cached.value + tokens(envoy.UsageCreated).value, true}
	}
}

// outcome is what became of an attempt. It is not known of one that ended without
// an answer and without a fault: why, only the entry of its request says.
func (e *entry) outcome() (o fleet.Outcome, known bool) {
	switch {
	case e.refused:
		return fleet.Refused, true
	case e.status == 429 || e.status == 503:
		return fleet.Busy, true
	case e.status >= 500:
		return fleet.ServerError, true
	case e.status >= 400:
		return fleet.ClientError, true
	case e.lost && e.status == 0:
		return fleet.Reset, true
	case e.lost:
		return fleet.Truncated, true
	case e.status != 0 && e.decode.known:
		return fleet.Answered, true
	default:
		return 0, false
	}
}

// unfinished is why a request ended whose last attempt did not say.
func (e *entry) unfinished() (o fleet.Outcome, known bool) {
	switch {
	case e.refused || e.lost || e.decode.known || e.status >= 400:
		return 0, false
	case e.left:
		return fleet.Aborted, true
	case e.idle && e.first.known:
		return fleet.Truncated, true
	case e.idle:
		return fleet.Slow, true
	default:
		return 0, false
	}
}

// microseconds reads a tag of Envoy's.
func microseconds(tag string) measure {
	n, err := strconv.ParseUint(tag, 10, 63)
	return measure{float64(n) / 1e6, err == nil}
}

func address(a *corev3.Address) string {
	s := a.GetSocketAddress()
	ip, err := netip.ParseAddr(s.GetAddress())
	if err != nil {
		return ""
	}
	return netip.AddrPortFrom(ip, uint16(s.GetPortValue())).String()
}

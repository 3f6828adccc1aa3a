package outcome

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/envoy"
)

const (
	whileItLasts = logv3.AccessLogType_UpstreamPeriodic
	attemptEnd   = logv3.AccessLogType_UpstreamEnd
	requestEnd   = logv3.AccessLogType_DownstreamEnd
)

// noon is when the requests of these tests began.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// line is an entry as Envoy writes it, of a request to the first engine.
func line(kind logv3.AccessLogType, more ...func(*logv3.HTTPAccessLogEntry)) *logv3.HTTPAccessLogEntry {
	e := &logv3.HTTPAccessLogEntry{
		CommonProperties: &logv3.AccessLogCommon{
			AccessLogType:                 kind,
			DownstreamDirectRemoteAddress: socket("192.0.2.1", 4711),
			UpstreamRemoteAddress:         socket("10.0.0.1", 80),
			UpstreamCluster:               "chat",
			StartTime:                     timestamppb.New(noon),
			ResponseFlags:                 &logv3.ResponseFlags{},
			CustomTags:                    map[string]string{},
		},
		Request:  &logv3.HTTPRequestProperties{RequestId: "r1"},
		Response: &logv3.HTTPResponseProperties{},
	}
	for _, m := range more {
		m(e)
	}
	return e
}

func socket(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func at(ip string) func(*logv3.HTTPAccessLogEntry) {
	return func(e *logv3.HTTPAccessLogEntry) { e.CommonProperties.UpstreamRemoteAddress = socket(ip, 80) }
}

func request(id string) func(*logv3.HTTPAccessLogEntry) {
	return func(e *logv3.HTTPAccessLogEntry) { e.Request.RequestId = id }
}

// began moves the attempt, to tell a retry from its predecessor.
func began(after time.Duration) func(*logv3.HTTPAccessLogEntry) {
	return func(e *logv3.HTTPAccessLogEntry) { e.CommonProperties.StartTime = timestamppb.New(noon.Add(after)) }
}

func code(status uint32) func(*logv3.HTTPAccessLogEntry) {
	return func(e *logv3.HTTPAccessLogEntry) { e.Response.ResponseCode = wrapperspb.UInt32(status) }
}

func streamed(e *logv3.HTTPAccessLogEntry) {
	code(200)(e)
	e.Response.ResponseHeaders = map[string]string{"content-type": "text/event-stream; charset=utf-8"}
}

func whole(e *logv3.HTTPAccessLogEntry) {
	code(200)(e)
	e.Response.ResponseHeaders = map[string]string{"content-type": "application/json"}
}

func first(d time.Duration) func(*logv3.HTTPAccessLogEntry) { return tagged(envoy.TagFirstByte, d) }

func decoded(d time.Duration) func(*logv3.HTTPAccessLogEntry) { return tagged(envoy.TagDecode, d) }

func tagged(name string, d time.Duration) func(*logv3.HTTPAccessLogEntry) {
	return func(e *logv3.HTTPAccessLogEntry) { e.CommonProperties.CustomTags[name] = fmt.Sprint(d.Microseconds()) }
}

func flags(set func(*logv3.ResponseFlags)) func(*logv3.HTTPAccessLogEntry) {
	return func(e *logv3.HTTPAccessLogEntry) { set(e.CommonProperties.ResponseFlags) }
}

var (
	connectFailure = flags(func(f *logv3.ResponseFlags) { f.UpstreamConnectionFailure = true })
	connectionLost = flags(func(f *logv3.ResponseFlags) { f.UpstreamConnectionTermination = true })
	protocolError  = flags(func(f *logv3.ResponseFlags) { f.UpstreamProtocolError = true })
	clientLeft     = flags(func(f *logv3.ResponseFlags) { f.DownstreamConnectionTermination = true })
	http2Cancel    = flags(func(f *logv3.ResponseFlags) { f.DownstreamRemoteReset = true })
	wentSilent     = flags(func(f *logv3.ResponseFlags) { f.StreamIdleTimeout = true })
)

func bytes(asked, answered uint64) func(*logv3.HTTPAccessLogEntry) {
	return func(e *logv3.HTTPAccessLogEntry) {
		e.Request.RequestBodyBytes, e.Response.ResponseBodyBytes = asked, answered
	}
}

func says(usage map[string]any) func(*logv3.HTTPAccessLogEntry) {
	s, err := structpb.NewStruct(usage)
	if err != nil {
		panic(err)
	}
	return func(e *logv3.HTTPAccessLogEntry) {
		e.CommonProperties.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.UsageNamespace: s}}
	}
}

// message is how lines of the log are received.
func message(lines ...*logv3.HTTPAccessLogEntry) *batch {
	b, err := received(logged(lines...))
	if err != nil {
		panic(err) // lines of a test always marshal
	}
	return b
}

func logged(lines ...*logv3.HTTPAccessLogEntry) *accesslogv3.StreamAccessLogsMessage {
	return &accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: lines},
	}}
}

package outcome

import (
	"hash/maphash"
	"math"
	"net/netip"
	"strconv"
	"time"

	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/grpc/mem"

	"weir/envoy"
	"weir/extproc/wire"
	"weir/fleet"
)

// batch is one message of the access log, and what was learned from those before.
type batch struct {
	entries []entry
	names   names
}

// Unmarshal implements [wire.Received].
func (b *batch) Unmarshal(data mem.BufferSlice) (err error) {
	whole := wire.Contiguous(data)
	defer whole.Free()
	b.entries = b.entries[:0]
	for m := wire.Read(whole.ReadOnlyData(), &err); m.Next(); {
		if m.Tag == 2<<3|wire.Len { // http_logs
			b.read(m.Sub())
		}
	}
	return err
}

func (b *batch) read(m wire.Message) {
	for m.Next() {
		if m.Tag == 1<<3|wire.Len { // log_entry
			b.entries = append(b.entries, b.names.read(m.Sub()))
		}
	}
}

// names are those that entries share: they are the same few again and again.
type names struct {
	engines map[string]fleet.EngineID // by how an Address is written
	classes map[string]fleet.ClassID
}

const maxNames = 30_000 // more than a fleet has engines

// engine reads the Address of an engine, which is a field.
func (n *names) engine(m *wire.Message) fleet.EngineID {
	if id, ok := n.engines[string(m.Bytes)]; ok {
		return id
	}
	if n.engines == nil || len(n.engines) == maxNames {
		n.engines = map[string]fleet.EngineID{}
	}
	id := fleet.EngineID(address(m.Sub()))
	n.engines[string(m.Bytes)] = id
	return id
}

func (n *names) class(id []byte) fleet.ClassID {
	if id, ok := n.classes[string(id)]; ok {
		return id
	}
	if n.classes == nil || len(n.classes) == maxNames {
		n.classes = map[string]fleet.ClassID{}
	}
	n.classes[string(id)] = fleet.ClassID(id)
	return fleet.ClassID(id)
}

// seed is of the hashes that name requests.
var seed = maphash.MakeSeed()

// read reads an HTTPAccessLogEntry.
func (n *names) read(m wire.Message) entry {
	e := entry{began: time.Unix(0, 0).UTC()}
	var u said
	for m.Next() {
		switch m.Tag {
		case 1<<3 | wire.Len: // common_properties
			e.readCommon(m.Sub(), n, &u)
		case 3<<3 | wire.Len: // request
			e.readRequest(m.Sub())
		case 4<<3 | wire.Len: // response
			e.readResponse(m.Sub())
		}
	}
	switch e.moment {
	case requestOver:
		e.prompt, e.output, e.cached = u.wholePrompt(), u.output, u.cached
	case during: // of an attempt, what is asked for and what is answered change their places
		e.sofar = e.asked
		e.asked, e.answered = 0, 0
	default: // an attempt is not asked for its tokens
		e.asked, e.answered = 0, 0
	}
	if e.engine == "" {
		e.moment = elsewhere
	}
	return e
}

// readCommon reads an AccessLogCommon, with the tokens that are said in it.
func (e *entry) readCommon(m wire.Message, n *names, u *said) {
	for m.Next() {
		switch m.Tag {
		case 5<<3 | wire.Len: // start_time
			e.began = timestamp(m.Sub())
		case 13<<3 | wire.Len: // upstream_remote_address
			e.engine = n.engine(&m)
		case 15<<3 | wire.Len: // upstream_cluster
			e.class = n.class(m.Bytes)
		case 16<<3 | wire.Len: // response_flags
			e.readFlags(m.Sub())
		case 17<<3 | wire.Len: // metadata
			u.readMetadata(m.Sub())
		case 20<<3 | wire.Len: // downstream_direct_remote_address
			e.key.client = maphash.Bytes(seed, m.Bytes)
		case 22<<3 | wire.Len: // custom_tags
			e.readTag(text(m.Sub()))
		case 33<<3 | wire.Varint: // access_log_type
			e.moment = momentOf(logv3.AccessLogType(m.Value))
		}
	}
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

// readRequest reads HTTPRequestProperties.
func (e *entry) readRequest(m wire.Message) {
	for m.Next() {
		switch m.Tag {
		case 9<<3 | wire.Len:
			e.key.id = maphash.Bytes(seed, m.Bytes)
		case 12<<3 | wire.Varint: // request_body_bytes
			e.asked = m.Value
		}
	}
}

// readResponse reads HTTPResponseProperties.
func (e *entry) readResponse(m wire.Message) {
	for m.Next() {
		switch m.Tag {
		case 1<<3 | wire.Len: // response_code
			for code := m.Sub(); code.Next(); {
				if code.Tag == 1<<3|wire.Varint { // UInt32Value.value
					e.status = uint32(code.Value)
				}
			}
		case 3<<3 | wire.Varint: // response_body_bytes
			e.answered = m.Value
		case 4<<3 | wire.Len: // response_headers
			if name, value := text(m.Sub()); string(name) == "content-type" {
				e.stream = len(value) >= len(eventStream) && string(value[:len(eventStream)]) == eventStream
			}
		}
	}
}

const eventStream = "text/event-stream"

// readFlags reads ResponseFlags, as far as they tell outcomes apart.
func (e *entry) readFlags(m wire.Message) {
	for m.Next() {
		is := m.Value != 0
		switch m.Tag {
		case 6<<3 | wire.Varint: // upstream_connection_failure
			e.refused = is
		case 4<<3 | wire.Varint, 5<<3 | wire.Varint, 7<<3 | wire.Varint, 24<<3 | wire.Varint:
			// local_reset, upstream_remote_reset, upstream_connection_termination, upstream_protocol_error
			e.lost = e.lost || is
		case 15<<3 | wire.Varint, 19<<3 | wire.Varint, 28<<3 | wire.Varint:
			// downstream_connection_termination, downstream_protocol_error, downstream_remote_reset
			e.left = e.left || is
		case 3<<3 | wire.Varint, 17<<3 | wire.Varint, 23<<3 | wire.Varint:
			// upstream_request_timeout, stream_idle_timeout, duration_timeout
			e.idle = e.idle || is
		}
	}
}

// readTag reads one of custom_tags.
func (e *entry) readTag(name, value []byte) {
	switch string(name) {
	case envoy.TagFirstByte:
		e.first = microseconds(value)
	case envoy.TagDecode:
		e.decode = microseconds(value)
	case envoy.TagResponse:
		e.response = string(value)
	case envoy.TagKey:
		e.affinity = hexadecimal(value)
	}
}

// said are tokens as an answer says them.
type said struct{ prompt, output, cached, uncached, created measure }

// wholePrompt adds up the parts of a prompt of which only these are said.
func (s *said) wholePrompt() measure {
	if s.uncached.known && !s.prompt.known {
		return measure{s.uncached.value + s.cached.value + s.created.value, true}
	}
	return s.prompt
}

// readMetadata reads of a Metadata the tokens that the answer said it used.
func (s *said) readMetadata(m wire.Message) {
	for m.Next() {
		if m.Tag != 1<<3|wire.Len { // filter_metadata
			continue
		}
		name, fields := nested(m.Sub())
		for string(name) == envoy.UsageNamespace && fields.Next() {
			if fields.Tag == 1<<3|wire.Len { // Struct.fields
				s.read(nested(fields.Sub()))
			}
		}
	}
}

// read reads a field of the tokens' Struct.
func (s *said) read(name []byte, value wire.Message) {
	var n float64
	for value.Next() {
		if value.Tag == 2<<3|wire.Fixed64 { // number_value
			n = math.Float64frombits(value.Value)
		}
	}
	var tokens measure
	if n >= 0 && n <= maxTokens {
		tokens = measure{n, true}
	}
	switch string(name) {
	case envoy.UsagePrompt:
		s.prompt = tokens
	case envoy.UsageOutput:
		s.output = tokens
	case envoy.UsageCached:
		s.cached = tokens
	case envoy.UsageUncached:
		s.uncached = tokens
	case envoy.UsageCreated:
		s.created = tokens
	}
}

// text reads an entry of a map of texts.
func text(m wire.Message) (name, value []byte) {
	for m.Next() {
		switch m.Tag {
		case 1<<3 | wire.Len:
			name = m.Bytes
		case 2<<3 | wire.Len:
			value = m.Bytes
		}
	}
	return name, value
}

// nested reads an entry of a map of messages.
func nested(m wire.Message) (name []byte, value wire.Message) {
	for m.Next() {
		switch m.Tag {
		case 1<<3 | wire.Len:
			name = m.Bytes
		case 2<<3 | wire.Len:
			value = m.Sub()
		}
	}
	return name, value
}

// address reads the IP and port of an Address.
func address(m wire.Message) string {
	var ip netip.Addr
	var port uint64
	for m.Next() {
		if m.Tag != 1<<3|wire.Len { // socket_address
			continue
		}
		for s := m.Sub(); s.Next(); {
			switch s.Tag {
			case 2<<3 | wire.Len: // address
				ip, _ = netip.ParseAddr(string(s.Bytes)) // what is none is no engine's
			case 3<<3 | wire.Varint: // port_value
				port = s.Value
			}
		}
	}
	if !ip.IsValid() {
		return ""
	}
	return netip.AddrPortFrom(ip, uint16(port)).String()
}

// timestamp reads a Timestamp.
func timestamp(m wire.Message) time.Time {
	var seconds, nanos int64
	for m.Next() {
		switch m.Tag {
		case 1<<3 | wire.Varint:
			seconds = int64(m.Value)
		case 2<<3 | wire.Varint:
			nanos = int64(int32(m.Value))
		}
	}
	return time.Unix(seconds, nanos).UTC()
}

// hexadecimal reads a key; 0, which is none, where it is not known.
func hexadecimal(tag []byte) uint64 {
	n, err := strconv.ParseUint(string(tag), 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// microseconds reads a tag of Envoy's.
func microseconds(tag []byte) measure {
	n, err := strconv.ParseUint(string(tag), 10, 63)
	return measure{float64(n) / 1e6, err == nil}
}

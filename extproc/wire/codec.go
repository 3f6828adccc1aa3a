package wire

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Received is a message that reads itself.
type Received interface {
	// Unmarshal takes a message's wire form, which is good until it returns.
	Unmarshal(mem.BufferSlice) error
}

// Sent is a message that writes itself.
type Sent interface {
	// Marshal returns the message's wire form, which nobody changes any more.
	Marshal() []byte
}

// Prepared is the wire form of a message that is always the same.
type Prepared []byte

// Prepare returns a message's wire form. It panics on one that has none.
func Prepare(m proto.Message) Prepared {
	b, err := proto.Marshal(m)
	if err != nil {
		panic("wire: " + err.Error()) // a message of the program's own
	}
	return b
}

// Marshal implements [Sent].
func (p Prepared) Marshal() []byte { return p }

// codec leaves to protobuf what does not read or write itself.
type codec struct{ encoding.CodecV2 }

// Codec returns the codec that a gRPC server must have for messages that read or
// write themselves. It is protobuf for all others.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(Received); ok {
		return m.Unmarshal(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(Sent); ok {
		return mem.BufferSlice{mem.SliceBuffer(m.Marshal())}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Contiguous returns data in one piece, which is good until it is freed. Data that
// came in one piece is not copied.
func Contiguous(data mem.BufferSlice) mem.Buffer { return data.MaterializeToBuffer(pool) }

// pool does not clear its buffers, unlike gRPC's own: they are filled at once.
var pool mem.BufferPool = new(buffers)

package wire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Received is a message that reads itself.
type Received interface {
	// Unmarshal takes a message's wire form, which is good until it returns.
	Unmarshal(mem.BufferSlice) error
}

// codec leaves to protobuf what does not read itself.
type codec struct{ encoding.CodecV2 }

// Codec returns the codec that a gRPC server must have to receive messages of this
// package. It is protobuf for all others.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(Received); ok {
		return m.Unmarshal(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Contiguous returns data in one piece, which is good until it is freed. Data that
// came in one piece is not copied.
func Contiguous(data mem.BufferSlice) mem.Buffer { return data.MaterializeToBuffer(pool) }

// pool does not clear its buffers, unlike gRPC's own: they are filled at once.
var pool mem.BufferPool = new(buffers)

// Package wire reads what Envoy sends for each request from its wire form, without
// protobuf's reflection, which makes an object of each header, address and duration:
// more work than all that is done with them. Whatever is sent seldom is left to
// protobuf.
//
// Protobuf's own reader is the oracle of this one, in tests and in fuzzing.
package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Types of fields, to be ored to a field's number<<3: together they are its tag. A
// field of a known number and another type is unknown.
const (
	Varint  = 0
	Fixed64 = 1
	Len     = 2 // texts, bytes, messages
)

// Message reads the fields of a message one by one.
type Message struct {
	rest []byte
	err  *error

	// Of the field that was read last:

	Tag   uint64
	Bytes []byte // of type Len; of the message's own memory
	Value uint64 // of other types
}

// Read returns a reader before the first field of a message. What ends it before the
// message's end becomes err.
func Read(b []byte, err *error) Message { return Message{rest: b, err: err} }

// Sub returns a reader of the message that the field holds. Its error is the whole
// message's, and ends the reading of that.
func (m *Message) Sub() Message { return Message{rest: m.Bytes, err: m.err} }

// Next reads the next field; false: there is none, or what follows is none.
func (m *Message) Next() bool {
	if len(m.rest) == 0 || *m.err != nil {
		return false
	}
	var n int
	m.Tag, n = varint(m.rest)
	number, kind := protowire.DecodeTag(m.Tag)
	if n > 0 && number >= protowire.MinValidNumber {
		m.rest = m.rest[n:]
		n = m.value(number, kind)
	} else if n > 0 {
		n = -1
	}
	if n < 0 {
		*m.err = protowire.ParseError(n)
		return false
	}
	m.rest = m.rest[n:]
	return true
}

// value reads the value that is next, and returns its length, negative for an error.
func (m *Message) value(number protowire.Number, kind protowire.Type) (n int) {
	m.Bytes, m.Value = nil, 0
	switch kind {
	case protowire.VarintType:
		m.Value, n = varint(m.rest)
	case protowire.Fixed64Type:
		m.Value, n = protowire.ConsumeFixed64(m.rest)
	case protowire.BytesType:
		length, k := varint(m.rest)
		if k < 0 {
			return k
		}
		if length > uint64(len(m.rest)-k) {
			return -1
		}
		n = k + int(length)
		m.Bytes = m.rest[k:n:n]
	default:
		n = protowire.ConsumeFieldValue(number, kind, m.rest)
	}
	return n
}

// varint reads a number, most of which are small.
func varint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

package wire

import (
	"google.golang.org/grpc/mem"
)

// Kind is what a request of the external processing protocol brings.
type Kind int

// Kinds, in the order of their fields in the message.
const (
	Nothing Kind = iota
	_
	RequestHeaders
	ResponseHeaders
	RequestBody
	ResponseBody
	RequestTrailers
	ResponseTrailers
)

// Request is Envoy's ProcessingRequest, as far as it is read.
type Request struct {
	Kind        Kind
	Headers     []Header // of a request's headers
	EndOfStream bool     // no body follows
	Body        []byte   // of a request's body; good until Free

	held mem.Buffer // of Body
}

// Header is one line. Its texts share the memory of all headers.
type Header struct{ Name, Value string }

// Tags of what is read.
const (
	tagHeaders     = 1<<3 | Len // HttpHeaders.headers; HeaderMap.headers
	tagEndOfStream = 3<<3 | Varint
	tagBody        = 1<<3 | Len // HttpBody.body
	tagKey         = 1<<3 | Len // HeaderValue
	tagValue       = 2<<3 | Len
	tagRawValue    = 3<<3 | Len
)

// Free lets go of all that was read.
func (r *Request) Free() {
	if r.held != nil {
		r.held.Free()
	}
	*r = Request{}
}

// Unmarshal implements [Received]. It frees what the request was before.
func (r *Request) Unmarshal(data mem.BufferSlice) (err error) {
	r.Free()
	whole := Contiguous(data)
	r.read(Read(whole.ReadOnlyData(), &err))
	if r.Body == nil || err != nil {
		r.Body = nil
		whole.Free()
		return err
	}
	r.held = whole
	return nil
}

// read reads the message. Of several that would stand in each other's place, the
// last counts.
func (r *Request) read(m Message) {
	var last Message
	for m.Next() {
		if kind := Kind(m.Tag >> 3); m.Tag&7 == Len && kind >= RequestHeaders && kind <= ResponseTrailers {
			r.Kind, last = kind, m.Sub()
		}
	}
	switch r.Kind {
	case RequestHeaders:
		r.readHeaders(last)
	case RequestBody:
		r.readBody(last)
	}
}

func (r *Request) readBody(m Message) {
	for m.Next() {
		if m.Tag == tagBody {
			r.Body = m.Bytes
		}
	}
}

func (r *Request) readHeaders(m Message) {
	for m.Next() {
		switch m.Tag {
		case tagHeaders:
			r.readLines(m.Sub())
		case tagEndOfStream:
			r.EndOfStream = m.Value != 0
		}
	}
}

// readLines reads a HeaderMap. All its texts become parts of one string.
func (r *Request) readLines(m Message) {
	n := 0
	for count := m; count.Next(); {
		n++
	}
	r.Headers = append(make([]Header, 0, len(r.Headers)+n), r.Headers...)
	all := string(m.rest)
	for m.Next() {
		if m.Tag == tagHeaders {
			end := len(all) - len(m.rest)
			r.Headers = append(r.Headers, readLine(m.Sub(), all[end-len(m.Bytes):end]))
		}
	}
}

// readLine reads a HeaderValue, of which text is a copy.
func readLine(m Message, text string) (h Header) {
	var value string
	for m.Next() {
		end := len(text) - len(m.rest)
		part := text[end-len(m.Bytes) : end]
		switch m.Tag {
		case tagKey:
			h.Name = part
		case tagValue:
			value = part
		case tagRawValue:
			h.Value = part
		}
	}
	if h.Value == "" {
		h.Value = value
	}
	return h
}

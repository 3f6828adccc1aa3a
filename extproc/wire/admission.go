package wire

import "google.golang.org/protobuf/encoding/protowire"

// Admission is the ProcessingResponse that lets a request in: it sets headers, each
// in place of all of its name, and has the route chosen again.
type Admission struct {
	Answers   Kind   // what it answers: RequestHeaders or RequestBody
	Body      []byte // to take the body's place; nil: the body stays
	Namespace string // of the dynamic metadata

	headers []byte // a HeaderMutation
	notes   []byte // a Struct: what stands in the namespace
}

var (
	overwrite = []byte{3<<3 | Varint, 2} // HeaderValueOption.append_action: OVERWRITE_IF_EXISTS_OR_ADD
	again     = []byte{5<<3 | Varint, 1} // CommonResponse.clear_route_cache
)

// Set sets a header.
func (a *Admission) Set(name, value string) {
	if a.headers == nil {
		a.headers = make([]byte, 0, 320) // what most need
	}
	line := size(len(name)) + size(len(value))
	b := head(a.headers, 1, size(line)+len(overwrite)) // set_headers
	b = head(b, 1, line)                               // header
	b = field(b, 1, name)                              // key
	b = field(b, 3, value)                             // raw_value
	a.headers = append(b, overwrite...)
}

// Note sets a key of the dynamic metadata to a text.
func (a *Admission) Note(key, value string) {
	text := size(len(value)) // Value.string_value
	b := head(a.notes, 1, size(len(key))+size(text))
	b = field(b, 1, key)
	b = head(b, 2, text)
	a.notes = field(b, 3, value)
}

// Marshal implements [Sent].
func (a *Admission) Marshal() []byte {
	common := size(len(a.headers)) + len(again)
	replaced := size(len(a.Body)) // BodyMutation
	if a.Body != nil {
		common += size(replaced)
	}
	number := 1 // request_headers
	if a.Answers == RequestBody {
		number = 3 // request_body
	}
	entry := size(len(a.Namespace)) + size(size(len(a.notes)))
	b := make([]byte, 0, size(size(common))+size(size(entry)))
	b = head(b, number, size(common))
	b = head(b, 1, common) // response
	b = append(head(b, 2, len(a.headers)), a.headers...)
	if a.Body != nil {
		b = head(b, 3, replaced) // body_mutation
		b = append(head(b, 1, len(a.Body)), a.Body...)
	}
	b = append(b, again...)
	if a.notes == nil {
		return b
	}
	b = head(b, 8, size(entry)) // dynamic_metadata
	b = head(b, 1, entry)       // Struct.fields
	b = field(b, 1, a.Namespace)
	b = head(b, 2, size(len(a.notes)))
	b = head(b, 5, len(a.notes)) // struct_value
	return append(b, a.notes...)
}

// size is that of a field of type Len whose number is below 16 and whose content has
// n bytes.
func size(n int) int { return 1 + protowire.SizeBytes(n) }

// head appends what such a field begins with.
func head(b []byte, number, n int) []byte {
	return protowire.AppendVarint(append(b, byte(number<<3|Len)), uint64(n))
}

// field appends such a field.
func field(b []byte, number int, content string) []byte {
	return append(head(b, number, len(content)), content...)
}

package extproc

import (
	"bytes"
	"context"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// facts is what is read of a body. Of all but the model there are hashes only,
// 0 where there is nothing.
type facts struct {
	model       string
	at          span     // of the model, in a body that is not compressed
	names       []uint64 // of conversations, by wanted field
	fingerprint uint64
	features    features
	previous    uint64   // hash of the ID of the response that it follows
	followed    followed // what is known of that
	byPath      bool     // it asks for that response itself
}

// lookUp has a request that names no model be decided by the response that its path
// names.
func (f *facts) lookUp(h *head) {
	if f.model == "" && f.previous == 0 && h.response != 0 {
		f.previous, f.followed, f.byPath = h.response, h.followed, true
	}
}

// span is a part of a body, in bytes from its start.
type span struct{ from, to int64 }

func (f *facts) name(field int) uint64 {
	if field < len(f.names) {
		return f.names[field]
	}
	return 0
}

// parser reads one body. It goes through all of it, so that the body is known to
// be valid and to repeat no key.
type parser struct {
	scan   scanner
	inner  scanner // of values that scan has read whole
	wanted *wanted
	facts  facts
	print  fingerprint
	text   []byte // of the last string that had escapes

	written int // bytes of the strings that were read, as they are written
	models  int // keys of the body that are "model" in any case
}

// read returns what is wanted of a JSON body. A body without a model still
// tells the rest.
func (w *wanted) read(ctx context.Context, body []byte) (facts, error) {
	p := parser{
		scan:   scanner{text: body, gone: ctx.Err},
		wanted: w,
		facts:  facts{names: make([]uint64, w.fields)},
	}
	if err := p.body(); err != nil {
		return facts{}, err
	}
	if w.fingerprint {
		p.facts.fingerprint = p.print.sum(p.facts.model)
	}
	if !w.features {
		p.facts.features = features{}
	}
	switch {
	case p.facts.model == "":
		return p.facts, errNoModel
	case p.models > 1: // engines that do not heed case would read one of the others
		return facts{}, errCase
	}
	return p.facts, nil
}

// otherValues are what values begin with that are no object.
const otherValues = `["-0123456789tfn`

func (p *parser) body() error {
	if first := p.scan.peek(); strings.IndexByte(otherValues, first) >= 0 {
		return errNotObject
	}
	if err := p.object(p.topLevel); err != nil {
		return err
	}
	if p.scan.peek(); p.scan.at < len(p.scan.text) { // something follows the object
		p.scan.fail(p.scan.at)
	}
	return p.scan.err
}

func (p *parser) topLevel(name []byte) error {
	if len(name) == len("model") && bytes.EqualFold(name, []byte("model")) {
		p.models++
	}
	if string(name) == "model" {
		return p.model()
	}
	if string(name) == "previous_response_id" && p.wanted.previous && p.scan.peek() == '"' {
		id, err := p.name()
		if len(id) > 0 {
			p.facts.previous = hashOfName(id)
		}
		return err
	}
	if f := p.wanted.tree.under[string(name)]; f != nil {
		return p.field(f)
	}
	if part, ok := fingerprintParts[string(name)]; ok && (p.wanted.fingerprint || p.wanted.features) {
		return p.part(part)
	}
	if p.wanted.features && (string(name) == "tools" || string(name) == "functions") {
		return p.tools()
	}
	return p.scan.skip()
}

func (p *parser) model() error {
	if p.scan.peek() != '"' {
		return p.scan.skip()
	}
	raw, err := p.scan.raw()
	if err != nil {
		return err
	}
	p.facts.model = string(p.unescape(raw))
	p.facts.at = span{int64(p.scan.at - len(raw)), int64(p.scan.at)}
	return nil
}

// field reads a value that names the conversation, or has members that do.
func (p *parser) field(f *field) error {
	switch p.scan.peek() {
	case '"':
		value, err := p.string()
		if value = conversation(f.path, value); err == nil && len(value) > 0 {
			f.set(p.facts.names, hashOfName(value))
		}
		return err
	case '{':
		return p.object(func(name []byte) error {
			if next := f.under[string(name)]; next != nil {
				return p.field(next)
			}
			return p.scan.skip()
		})
	}
	return p.scan.skip()
}

// object reads the object that is next; member reads the value behind each name.
// The name is good until then.
func (p *parser) object(member func(name []byte) error) error {
	fresh := p.scan.begin()
	for ; p.scan.more(fresh); fresh = false {
		name := p.scan.name()
		if p.scan.err != nil {
			return p.scan.err
		}
		if err := member(name); err != nil {
			return err
		}
	}
	return p.scan.err
}

// array reads the array that is next; element reads each value.
func (p *parser) array(element func() error) error {
	fresh := p.scan.begin()
	for ; p.scan.more(fresh); fresh = false {
		if err := element(); err != nil {
			return err
		}
	}
	return p.scan.err
}

// name reads the string that is next, which is short. It is good until the next read.
func (p *parser) name() ([]byte, error) {
	raw, err := p.scan.raw()
	if err != nil {
		return nil, err
	}
	return p.unescape(raw), nil
}

// string reads the string that is next: of the first that the body has, what they
// say, of those beyond the bound, how they are written. It is good until the next
// read.
func (p *parser) string() ([]byte, error) {
	raw, err := p.scan.raw()
	if err != nil {
		return nil, err
	}
	if p.written += len(raw) - len(`""`); p.written > maxUnescaped {
		return raw[1 : len(raw)-1], nil
	}
	return p.unescape(raw), nil
}

// unescape returns what a string says.
func (p *parser) unescape(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 || len(raw) > maxNameBytes {
		return raw[1 : len(raw)-1]
	}
	// The scanner has accepted the string, so that an error can only be one of
	// UTF-8, which is let pass.
	p.text, _ = jsontext.AppendUnquote(p.text[:0], raw)
	return p.text
}

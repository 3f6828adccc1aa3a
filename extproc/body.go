package extproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

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
// be valid and to repeat no key, and holds no more than one string at a time.
type parser struct {
	dec    *jsontext.Decoder
	inner  *jsontext.Decoder // of values that dec has read whole
	wanted *wanted
	facts  facts
	print  fingerprint
	text   []byte       // of the last string that had escapes
	ended  func() error // not nil: nobody waits any more
	steps  int

	written int // bytes of the strings that were read, as they are written
	models  int // keys of the body that are "model" in any case
}

// read returns what is wanted of a JSON body. A body without a model still
// tells the rest.
func (w *wanted) read(ctx context.Context, body io.Reader) (facts, error) {
	p := parser{
		ended:  ctx.Err,
		dec:    jsontext.NewDecoder(body, jsontext.AllowInvalidUTF8(true)),
		wanted: w,
		facts:  facts{names: make([]uint64, w.fields)},
	}
	if err := p.body(); err != nil {
		return facts{}, plain(err)
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

// plain words a parser's error without quoting the body.
func plain(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return errDuplicate
	case errors.As(err, &syntax):
		return fmt.Errorf("%w at byte %d", errSyntax, syntax.ByteOffset)
	case errors.Is(err, errNotObject):
		return errNotObject
	case errors.Is(err, errGone):
		return errGone
	}
	return errSyntax
}

func (p *parser) body() error {
	if k := p.dec.PeekKind(); k != '{' && k != jsontext.KindInvalid {
		return errNotObject
	}
	if err := p.object(p.topLevel); err != nil {
		return err
	}
	if _, err := p.dec.ReadToken(); err != io.EOF {
		return errSyntax // something follows the object
	}
	return nil
}

func (p *parser) topLevel(name []byte) error {
	if len(name) == len("model") && bytes.EqualFold(name, []byte("model")) {
		p.models++
	}
	if string(name) == "model" {
		return p.model()
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
	return p.skip()
}

func (p *parser) model() error {
	if p.dec.PeekKind() != '"' {
		return p.skip()
	}
	raw, err := p.dec.ReadValue()
	if err != nil {
		return err
	}
	p.facts.model = string(p.unescape(raw))
	end := p.dec.InputOffset()
	p.facts.at = span{end - int64(len(raw)), end}
	return nil
}

// field reads a value that names the conversation, or has members that do.
func (p *parser) field(f *field) error {
	switch p.dec.PeekKind() {
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
			return p.skip()
		})
	}
	return p.skip()
}

// object reads the object that is next; member reads the value behind each name.
// The name is good until then.
func (p *parser) object(member func(name []byte) error) error {
	if _, err := p.dec.ReadToken(); err != nil {
		return err
	}
	for p.dec.PeekKind() != '}' {
		name, err := p.name()
		if err == nil {
			err = member(name)
		}
		if err == nil {
			err = p.step()
		}
		if err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	return err
}

// array reads the array that is next; element reads each value.
func (p *parser) array(element func() error) error {
	if _, err := p.dec.ReadToken(); err != nil {
		return err
	}
	for p.dec.PeekKind() != ']' {
		err := element()
		if err == nil {
			err = p.step()
		}
		if err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	return err
}

// skip goes over the value that is next.
func (p *parser) skip() error {
	depth := p.dec.StackDepth()
	if k := p.dec.PeekKind(); k != '{' && k != '[' {
		return p.dec.SkipValue()
	}
	for {
		if _, err := p.dec.ReadToken(); err != nil {
			return err
		}
		if p.dec.StackDepth() <= depth {
			return nil
		}
		if err := p.step(); err != nil {
			return err
		}
	}
}

// step ends the reading of a body that nobody waits for. It looks but once in a
// while.
func (p *parser) step() error {
	if p.steps++; p.steps%1024 == 0 && p.ended() != nil {
		return errGone
	}
	return nil
}

// name reads the string that is next, which is a name. It is good until the next
// read.
func (p *parser) name() ([]byte, error) {
	raw, err := p.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	return p.unescape(raw), nil
}

// string reads the string that is next: of the first that the body has, what they
// say, of those beyond the bound, how they are written. It is good until the next
// read.
func (p *parser) string() ([]byte, error) {
	raw, err := p.dec.ReadValue()
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
	// The decoder has accepted the string, so that an error can only be one of
	// UTF-8, which is let pass.
	p.text, _ = jsontext.AppendUnquote(p.text[:0], raw)
	return p.text
}

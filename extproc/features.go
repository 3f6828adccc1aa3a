package extproc

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"weir/fleet"
)

// bytesPerToken is how many bytes of text, as they stand in the JSON, are taken for
// a token. English has about four, code three.
const bytesPerToken = 4

// features are what a body says of what it takes to answer it.
type features struct {
	tools, vision bool
	text          int // bytes of the prompt's texts
	tokens        int // of the prompt, that are numbers already
}

func (f *features) context() int { return f.text/bytesPerToken + f.tokens }

// meet says whether a body says what a rule asks for. One that was not read says
// nothing.
func (f *features) meet(r *fleet.BodyRule) bool {
	return (!r.Tools || f.tools) && (!r.Vision || f.vision) && (r.ContextOver == 0 || f.context() > r.ContextOver)
}

// meaning is what the value behind a name is to the prompt.
type meaning int

const (
	ofText meaning = iota
	ofKind         // says which kind of part it is in
	ofData         // no text: an image, a file
)

// meaningOf knows a member by its name.
func meaningOf(name []byte) meaning {
	switch string(name) {
	case "type":
		return ofKind
	case "data", "url", "image_url", "file_data", "encrypted_content", "signature":
		return ofData
	}
	return ofText
}

// kind notes which kind of part the body holds.
func (f *features) kind(name []byte) {
	switch string(name) {
	case "image_url", "input_image", "image":
		f.vision = true
	}
}

// rest goes over a value of the prompt that the fingerprint does not need.
func (p *parser) rest(what meaning) error {
	if p.wanted.features {
		return p.weigh(p.dec, what)
	}
	return p.skip()
}

// weigh goes over the value that is next and notes its features.
func (p *parser) weigh(dec *jsontext.Decoder, what meaning) error {
	depth := dec.StackDepth()
	for {
		var err error
		switch dec.PeekKind() {
		case '"':
			what, err = p.weighText(dec, what)
		case '{', '[', '}', ']':
			what = ofText
			_, err = dec.ReadToken()
		case '0':
			p.facts.features.tokens++
			fallthrough
		default:
			err = dec.SkipValue()
		}
		if err != nil || dec.StackDepth() <= depth {
			return err
		}
		if err := p.step(); err != nil {
			return err
		}
	}
}

// weighText reads a string that is a name, which says what the next value is, or a
// value.
func (p *parser) weighText(dec *jsontext.Decoder, what meaning) (meaning, error) {
	in, n := dec.StackIndex(dec.StackDepth())
	raw, err := dec.ReadValue()
	if err != nil {
		return what, err
	}
	text := raw[1 : len(raw)-1]
	switch {
	case in == '{' && n%2 == 0:
		return meaningOf(text), nil
	case what == ofText:
		p.facts.features.text += len(text)
	case what == ofKind:
		p.facts.features.kind(text)
	}
	return what, nil
}

// weighRaw notes the features of a value of another kind than text, that was read
// whole.
func (p *parser) weighRaw(raw jsontext.Value) error {
	switch {
	case !p.wanted.features:
		return nil
	case raw.Kind() == '0':
		p.facts.features.tokens++
		return nil
	case p.inner == nil:
		p.inner = jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	default:
		p.inner.Reset(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	}
	return p.weigh(p.inner, ofText)
}

// tools reads a list of tools, which is part of the prompt. What its schemas say
// of images is none.
func (p *parser) tools() error {
	if p.dec.PeekKind() != '[' {
		return p.skip()
	}
	f := &p.facts.features
	vision := f.vision
	err := p.array(func() error {
		f.tools = true
		return p.weigh(p.dec, ofText)
	})
	f.vision = vision
	return err
}

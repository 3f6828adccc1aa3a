package extproc

import "weir/fleet"

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
		return p.weigh(&p.scan, what)
	}
	return p.scan.skip()
}

// weigh goes over the value that is next and notes its features.
func (p *parser) weigh(s *scanner, what meaning) error {
	depth := len(s.levels)
	fresh := p.weighOne(s, what)
	for len(s.levels) > depth && s.err == nil {
		if !s.more(fresh) {
			fresh = false
			continue
		}
		what = ofText
		if s.inObject() {
			what = meaningOf(s.name())
		}
		fresh = p.weighOne(s, what)
	}
	return s.err
}

// weighOne reads the value that is next, or its opening bracket.
func (p *parser) weighOne(s *scanner, what meaning) (opened bool) {
	first, from := s.peek(), s.at
	if opened = s.begin(); opened || s.err != nil {
		return opened
	}
	switch text := s.text[from:s.at]; {
	case first == '"' && what == ofText:
		p.facts.features.text += len(text) - len(`""`)
	case first == '"' && what == ofKind:
		p.facts.features.kind(text[1 : len(text)-1])
	case isNumber(first):
		p.facts.features.tokens++
	}
	return false
}

func isNumber(first byte) bool { return first == '-' || '0' <= first && first <= '9' }

// weighRaw notes the features of a value of another kind than text, that was read
// whole.
func (p *parser) weighRaw(raw []byte) error {
	switch {
	case !p.wanted.features:
		return nil
	case isNumber(raw[0]):
		p.facts.features.tokens++
		return nil
	}
	p.inner = scanner{text: raw, gone: p.scan.gone, levels: p.inner.levels[:0], names: p.inner.names[:0]}
	return p.weigh(&p.inner, ofText)
}

// tools reads a list of tools, which is part of the prompt. What its schemas say
// of images is none.
func (p *parser) tools() error {
	if p.scan.peek() != '[' {
		return p.scan.skip()
	}
	f := &p.facts.features
	vision := f.vision
	err := p.array(func() error {
		f.tools = true
		return p.weigh(&p.scan, ofText)
	})
	f.vision = vision
	return err
}

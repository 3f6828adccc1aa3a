package extproc

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// fingerprint names a conversation by what every turn of it sends again: the
// model, the system prompt and the first user message. Each part is a hash, so
// that it does not matter which comes first in the body.
type fingerprint [parts]uint64

// The parts of a fingerprint. Those from partUser on are the user's own words:
// without any there is no fingerprint, as all conversations would share one.
const (
	partModel = iota
	partSystem
	partInstructions
	partSystemTurns
	partUser
	partInput
	partPrompt
	parts
)

// fingerprintParts says which part a member of the body is.
var fingerprintParts = map[string]int{
	"system":       partSystem,       // Anthropic's Messages
	"instructions": partInstructions, // OpenAI's Responses
	"messages":     partUser,         // chats, with partSystemTurns
	"input":        partInput,        // Responses and embeddings, with partSystemTurns
	"prompt":       partPrompt,       // completions
}

// sum returns the fingerprint's hash, 0 if there is none.
func (f *fingerprint) sum(model string) uint64 {
	if f[partUser] == 0 && f[partInput] == 0 && f[partPrompt] == 0 {
		return 0
	}
	f[partModel] = xxhash.Sum64String(model)
	var b [8 * parts]byte
	for i, h := range f {
		binary.LittleEndian.PutUint64(b[8*i:], h)
	}
	return xxhash.Sum64(b[:])
}

// part reads a member of the body that is, or holds, a part of the fingerprint.
func (p *parser) part(part int) error {
	if part < partUser {
		return p.words(&p.print[part])
	}
	if p.scan.peek() != '[' {
		return p.words(&p.print[part])
	}
	userSpoke := false
	return p.array(func() error {
		switch {
		case userSpoke:
			return p.rest(ofText)
		case p.scan.peek() == '{':
			var err error
			userSpoke, err = p.turn(part)
			return err
		default: // texts or tokens, all of them the user's
			return p.value(&p.print[part])
		}
	})
}

// turn reads one message, and says whether the user speaks in it.
func (p *parser) turn(part int) (userSpeaks bool, err error) {
	var role string
	var said uint64
	err = p.object(func(name []byte) error {
		switch {
		case string(name) == "content":
			return p.words(&said)
		case string(name) == "role" && p.scan.peek() == '"':
			value, err := p.string()
			role = string(value)
			return err
		}
		return p.rest(meaningOf(name))
	})
	switch {
	case said == 0: // no words
	case role == "system", role == "developer":
		p.print[partSystemTurns] = combine(p.print[partSystemTurns], said)
	case role == "user":
		p.print[part] = said
		return true, err
	}
	return false, err
}

// words adds a text to a hash: a string, or an array of parts that hold the like.
// One text gives one hash in either form.
func (p *parser) words(hash *uint64) error {
	switch p.scan.peek() {
	case '"':
		return p.value(hash)
	case '[':
		return p.array(func() error {
			if p.scan.peek() == '{' {
				return p.object(func(name []byte) error { return p.partOfText(name, hash) })
			}
			return p.value(hash)
		})
	}
	return p.rest(ofText)
}

// partOfText adds a member of a content part to a hash. Marks that clients move
// from turn to turn do not count.
func (p *parser) partOfText(name []byte, hash *uint64) error {
	what, isText := meaningOf(name), p.scan.peek() == '"'
	switch {
	case what == ofKind && isText:
		kind, err := p.name()
		p.facts.features.kind(kind)
		return err
	case what == ofKind, string(name) == "cache_control":
		return p.rest(what)
	case what == ofData && isText:
		text := p.facts.features.text
		err := p.value(hash)
		p.facts.features.text = text
		return err
	}
	return p.value(hash)
}

// value adds any value to a hash.
func (p *parser) value(hash *uint64) error {
	if p.scan.peek() == '"' {
		before := p.written
		text, err := p.string()
		*hash = combine(*hash, xxhash.Sum64(text))
		p.facts.features.text += p.written - before
		return err
	}
	raw, err := p.scan.raw()
	*hash = combine(*hash, xxhash.Sum64(raw))
	if err != nil {
		return err
	}
	return p.weighRaw(raw)
}

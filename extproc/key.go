package extproc

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json/jsontext"

	"weir/fleet"
)

// source is one place that may name the conversation.
type source struct {
	kind   fleet.AffinityKind
	header string
	field  int // of wanted.fields
	index  int // of Table.sources
}

// randomSource is how a key is called that nothing named.
const randomSource = "random"

func (t *Table) newSource(k fleet.AffinityKey) source {
	s := source{kind: k.Kind, index: t.addSource(k.String())}
	switch k.Kind {
	case fleet.AffinityHeader:
		s.header = k.Name
	case fleet.AffinityBody:
		s.field = t.wanted.add(k.Name)
	case fleet.AffinityFingerprint:
		t.wanted.fingerprint = true
	case fleet.AffinityPrevious:
		t.wanted.previous = true
	}
	return s
}

// headerSources are those of a class before it that has the same sources, if any.
func (t *Table) headerSources(c *class) *headerSources {
	for _, known := range t.classes {
		if known != c && slices.Equal(known.affinity, c.affinity) {
			return known.headers
		}
	}
	return newHeaderSources(c.affinity)
}

func (t *Table) addSource(name string) int {
	i := slices.Index(t.sources, name)
	if i < 0 {
		i = len(t.sources)
		t.sources = append(t.sources, name)
	}
	return i
}

// affinity is the hashed name of a conversation. The name itself is not kept.
type affinity struct {
	hash   uint64
	source int // of Table.sources

	maker  uint64 // hash of the engine that made the response which is followed; 0: another source named it
	missed bool   // a response is followed, but not known
}

// needsBody says whether the body may name the conversation before a header does.
func (c *class) needsBody(h *head) bool { return c.headers.first(h) > c.headers.others }

// keyOf returns the key by the first of the class's sources that exists, else a
// random one. One name gives one key, whether a header or the body says it.
func (c *class) keyOf(h *head, f *facts, random uint64) affinity {
	first, missed := c.headers.first(h), false
	for i, s := range c.affinity {
		var hash, maker uint64
		switch {
		case f.byPath && f.followed.key != 0 && c.follows && s.kind != fleet.AffinityPrevious:
			// Whatever names the conversation: only who made a response can tell of it.
		case i == first:
			value, _ := h.value(s.header)
			hash = hashOfText(value)
		case s.kind == fleet.AffinityBody:
			hash = f.name(s.field)
		case s.kind == fleet.AffinityFingerprint:
			hash = f.fingerprint
		case s.kind == fleet.AffinityPrevious:
			hash, maker = f.followed.key, f.followed.engine
			missed = f.previous != 0 && hash == 0
		}
		if hash != 0 {
			return affinity{hash, s.index, maker, missed}
		}
	}
	return affinity{hash: random, missed: missed}
}

// userID is the field in which an Anthropic client names its user; some put the
// session there, behind sessionMark or in a JSON object under sessionName.
const (
	userID      = "metadata.user_id"
	sessionName = `"session_id"`
)

var sessionMark = []byte("_session_")

// conversation returns the part of a body field that names the conversation.
func conversation(path string, value []byte) []byte {
	if path != userID {
		return value
	}
	if session, ok := sessionIn(value); ok {
		return session
	}
	if i := bytes.LastIndex(value, sessionMark); i >= 0 {
		return value[i+len(sessionMark):]
	}
	return value
}

// maxInner bounds a JSON object that is sent as a string, in bytes.
const maxInner = 4 << 10

// sessionIn returns the session of a JSON object, if it is one that names it.
func sessionIn(text []byte) ([]byte, bool) {
	if len(text) > maxInner || !bytes.HasPrefix(text, []byte("{")) {
		return nil, false
	}
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowInvalidUTF8(true))
	_, _ = dec.ReadToken() // the brace
	for dec.PeekKind() == '"' {
		name, err := dec.ReadValue()
		if found := string(name) == sessionName && dec.PeekKind() == '"'; err != nil || !found {
			if err != nil || dec.SkipValue() != nil {
				return nil, false
			}
			continue
		}
		session, err := dec.ReadValue()
		return bytes.Trim(session, `"`), err == nil && len(session) > len(`""`)
	}
	return nil, false
}

// nameSeed keeps the hashes of names apart from those of texts and of engines.
const nameSeed = 0x5765_6972_6e61_6d65

// hashOfName hashes a conversation's name.
func hashOfName(name []byte) uint64 { return mix(xxhash.Sum64(name) ^ nameSeed) }

// hashOfText is hashOfName of a text.
func hashOfText(name string) uint64 { return mix(xxhash.Sum64String(name) ^ nameSeed) }

// hashOf hashes the ID of a thing of some kind.
func hashOf(kind, id string) uint64 { return xxhash.Sum64String(kind + "/" + id) }

// combine adds x to a running hash; the order counts.
func combine(hash, x uint64) uint64 { return mix(bits.RotateLeft64(hash, 23) + x) }

// mix spreads every bit of x over the whole result (the finisher of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e37_79b9_7f4a_7c15
	x = (x ^ x>>30) * 0xbf58_476d_1ce4_e5b9
	x = (x ^ x>>27) * 0x94d0_49bb_1331_11eb
	return x ^ x>>31
}

// unit maps a hash evenly into the open interval (0, 1).
func unit(hash uint64) float64 { return (float64(fraction(hash)) + 0.5) / (1 << 53) }

// fraction is the part of a hash that unit goes by.
func fraction(hash uint64) uint64 { return hash >> 11 }

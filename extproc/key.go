package extproc

import (
	"bytes"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"weir/fleet"
)

// origin says where an affinity key was found.
type origin int

const (
	fromNowhere origin = iota // a random key
	fromHeader
	fromBody
	fromFingerprint
)

// affinity is the hashed name of a conversation. The name itself is not kept.
type affinity struct {
	hash uint64
	from origin
}

// needsBody says whether the body may name the conversation before a header does.
func (c *class) needsBody(h *head) bool {
	for _, s := range c.affinity {
		if s.kind != fleet.AffinityHeader {
			return true
		}
		if value, _ := h.value(s.header); value != "" {
			return false
		}
	}
	return false
}

// keyOf returns the key by the first of the class's sources that exists, else a
// random one. One name gives one key, whether a header or the body says it.
func (c *class) keyOf(h *head, f *facts, random uint64) affinity {
	for _, s := range c.affinity {
		switch s.kind {
		case fleet.AffinityHeader:
			if value, _ := h.value(s.header); value != "" {
				return affinity{hashOfName([]byte(value)), fromHeader}
			}
		case fleet.AffinityBody:
			if hash := f.name(s.field); hash != 0 {
				return affinity{hash, fromBody}
			}
		case fleet.AffinityFingerprint:
			if f.fingerprint != 0 {
				return affinity{f.fingerprint, fromFingerprint}
			}
		}
	}
	return affinity{random, fromNowhere}
}

// userID is the field in which an Anthropic client names its user; some put the
// session behind sessionMark there.
const userID = "metadata.user_id"

var sessionMark = []byte("_session_")

// conversation returns the part of a body field that names the conversation.
func conversation(path string, value []byte) []byte {
	if path == userID {
		if i := bytes.LastIndex(value, sessionMark); i >= 0 {
			return value[i+len(sessionMark):]
		}
	}
	return value
}

// nameSeed keeps the hashes of names apart from those of texts and of engines.
const nameSeed = 0x5765_6972_6e61_6d65

// hashOfName hashes a conversation's name.
func hashOfName(name []byte) uint64 { return mix(xxhash.Sum64(name) ^ nameSeed) }

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

package config

import (
	"slices"
	"strings"

	"weir/fleet"
)

// affinity reads the sources of a conversation's name. An empty list is a choice:
// requests of the class are spread at random.
func affinity(n node) []fleet.AffinityKey {
	if !n.present() {
		return slices.Clone(defaultAffinity)
	}
	var out []fleet.AffinityKey
	for _, item := range n.list(maxAffinityKeys) {
		before := n.doc.faults()
		key := affinityKey(item)
		if n.doc.faults() > before {
			continue
		}
		if slices.Contains(out, key) {
			item.wrong("remove one of the two", "this source is listed twice")
			continue
		}
		out = append(out, key)
	}
	return out
}

func affinityKey(n node) fleet.AffinityKey {
	kind, name, _ := strings.Cut(n.text(), ":")
	key := fleet.AffinityKey{Kind: fleet.AffinityKind(kind), Name: name}
	switch {
	case kind == "":
	case key.Kind == fleet.AffinityHeader:
		key.Name = headerName(n, name)
	case key.Kind == fleet.AffinityBody && !bodyPathPattern.MatchString(name):
		n.wrong("write it like body:metadata.user_id", "%q is not the path of a body field", name)
	case key.Kind == fleet.AffinityBody:
	case key.Kind != fleet.AffinityFingerprint && key.Kind != fleet.AffinityPrevious:
		n.wrong("write header:NAME, body:PATH, previousResponse or fingerprint", "%q is not a source of a conversation's name", kind)
	case name != "":
		n.wrong("write "+kind+" alone", "a %s has no name", kind)
	}
	return key
}

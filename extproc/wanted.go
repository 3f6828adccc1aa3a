package extproc

import "strings"

// wanted is what the classes of a table may want to know of a body. The class is
// known only after the body was read, so all that any wants is read at once.
type wanted struct {
	tree        field
	fields      int
	fingerprint bool
	features    bool
	previous    bool // the response that it follows
}

// field is a place in a body, in the tree of all dotted paths that are wanted.
type field struct {
	path  string // empty: it is not wanted itself
	slots []int  // of facts.names that it fills
	own   int    // which of them is the path's
	under map[string]*field
}

// add wants the string at a dotted path, or in the "id" of an object there. It
// returns the place of its hash in facts.names, which classes share.
func (w *wanted) add(path string) int {
	f := &w.tree
	for name := range strings.SplitSeq(path, ".") {
		f = f.member(name)
	}
	if f.path != "" {
		return f.slots[f.own]
	}
	slot := w.fields
	w.fields++
	f.path, f.own = path, len(f.slots)
	f.slots = append(f.slots, slot)
	id := f.member("id")
	id.slots = append(id.slots, slot)
	return slot
}

func (f *field) member(name string) *field {
	next := f.under[name]
	if next == nil {
		next = &field{}
		if f.under == nil {
			f.under = map[string]*field{}
		}
		f.under[name] = next
	}
	return next
}

func (f *field) set(names []uint64, hash uint64) {
	for _, slot := range f.slots {
		names[slot] = hash
	}
}

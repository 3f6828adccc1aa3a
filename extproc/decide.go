package extproc

import (
	"errors"
	"strings"

	"weir/envoy"
)

// decision is what becomes of a request.
type decision struct {
	class   *class // nil: it belongs to none
	model   string // empty: not read
	as      string // what engines call the model; empty: the same
	key     affinity
	name    uint64 // of the conversation in what is remembered; 0: the request names none
	due     int64  // seconds for which it counts as refused a moment ago; 0: it was not
	choice  choice
	detour  detour
	hold    hold
	hint    hint
	refusal *refusal // nil: it is let in

	features   features // zero: not read, or of no interest
	told       string   // what the client is told of it; empty: nothing
	keyed      bool     // the key is known: the class was, and nothing forbade it
	followable bool     // its answer is a response that the next request may follow
}

// decide says where a request belongs and whether it may enter, from its headers,
// what was read of its body and why no more was (nil: nothing more was needed).
func (t *Table) decide(h *head, f facts, unread error, random uint64) decision {
	d := t.judge(h, f, unread, random)
	if t.tell && d.refusal != nil {
		d.told = t.toldOfRefusal(&d)
	}
	return d
}

func (t *Table) judge(h *head, f facts, unread error, random uint64) decision {
	d := decision{model: f.model, features: f.features}
	if d.refusal = t.classify(&d, h, &f, unread, random); d.refusal != nil {
		return d
	}
	d.key, d.keyed = d.class.keyOf(h, &f, random), true
	t.recall(&d)
	s := d.class.rank(d.key.hash)
	switch {
	case s.home == nil:
		d.refusal = noEngine()
	case !t.enters(h, &d):
	default:
		first := t.first(&s, &d, h)
		d.choice = s.choice(first, d.hold == held)
		if t.tell {
			d.told = t.told(&d, &s)
		}
		d.followable = d.class.follows && strings.HasSuffix(h.path, envoy.ResponsesPath)
	}
	return d
}

// classify notes the class of a request, or says why it has none that it may use.
func (t *Table) classify(d *decision, h *head, f *facts, unread error, random uint64) *refusal {
	switch {
	case harmful(unread):
		return badRequest(unread)
	case errors.Is(unread, errTooLong):
		return tooLarge()
	case errors.Is(unread, errBusy) && !t.headersDecide(h):
		return busy(random)
	}
	f.lookUp(h)
	if r := t.routeOf(h, f); r != nil {
		d.class = r.class
		if f.byPath {
			d.model = r.rule.Model
		} else {
			d.as = r.rule.As
		}
	}
	if d.class == nil && f.model == "" {
		d.class = t.unreadable
	}
	switch {
	case d.class == nil:
		return unknown(f.model, unread)
	case d.as != "" && h.encoding() != identity:
		return badRequest(errPackedAlias)
	}
	return nil
}

// first is the first choice: the engine that holds what the request follows, full or
// not, else where its key belongs, or is held.
func (t *Table) first(s *selection, d *decision, h *head) (first *engine) {
	if d.key.missed {
		d.hint = hintMiss
	}
	if d.key.maker != 0 {
		if e := s.class.made(d.key.maker); e != nil {
			d.hint = hintHit
			return e
		}
		d.hint = hintNoRoute
	}
	if d.key.source == 0 || t.places == nil {
		first, d.detour = t.place(s, d.key.source != 0)
	} else {
		first, d.detour, d.hold = t.holdOrPlace(s, h)
	}
	return first
}

func unknown(model string, unread error) *refusal {
	if model == "" {
		return badRequest(unread)
	}
	return noSuchModel(model)
}

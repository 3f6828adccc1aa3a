package extproc

import (
	"errors"
	"sync/atomic"
)

// Counters count what the server did since it began. Every request that it
// decided about is in exactly one of the first seven.
type Counters struct {
	Admitted     atomic.Uint64
	Shed         atomic.Uint64
	NoEngine     atomic.Uint64 // no engine of the class is ready
	UnknownModel atomic.Uint64 // no class for that model
	Unreadable   atomic.Uint64 // no model can be read, and no class is named for that
	TooLong      atomic.Uint64 // the body is longer than the limit
	Busy         atomic.Uint64 // there is no room for the body, and the headers do not decide

	Aliased       atomic.Uint64 // of the admitted, those whose model was put in place of its alias
	PassedThrough atomic.Uint64 // requests without a body that no class matches
	NoTable       atomic.Uint64 // requests left to Envoy, since nothing was heard of the control plane yet
	Undecided     atomic.Uint64 // requests that ended before they were whole
	StreamFaults  atomic.Uint64 // streams that ended in another way than requests do

	// Admitted requests that were sent elsewhere than where their keys belong, that
	// place being full.
	ToAnotherEngine, ToAnotherPool atomic.Uint64
	// NoRoom counts those that went where they belong, nothing better being there.
	NoRoom atomic.Uint64

	CameBack atomic.Uint64 // requests of conversations that were refused a moment ago

	// Admitted requests of conversations, active and long, that the plan's weights have
	// moved: they are held, were for long enough, or not for want of room.
	Held, HeldEnough, HeldNot atomic.Uint64

	// Admitted requests that follow a response and name no conversation.
	Followed, FollowsUnknown, FollowsGone atomic.Uint64

	// Why a body told no model, whatever was done about it.
	ContentType, Encoding, TooLarge, Syntax, NotObject, NoModel, Duplicate, Case, TooMany, Length, Budget atomic.Uint64
}

func (c *Counters) count(d *decision, unread error) {
	c.ofDecision(d).Add(1)
	switch d.detour {
	case elsewhere:
		c.ToAnotherEngine.Add(1)
	case otherPool:
		c.ToAnotherPool.Add(1)
	case nowhere:
		c.NoRoom.Add(1)
	}
	switch d.hold {
	case held:
		c.Held.Add(1)
	case timeUp:
		c.HeldEnough.Add(1)
	case noRoom:
		c.HeldNot.Add(1)
	}
	switch d.hint {
	case hintHit:
		c.Followed.Add(1)
	case hintMiss:
		c.FollowsUnknown.Add(1)
	case hintNoRoute:
		c.FollowsGone.Add(1)
	}
	if unread != nil {
		c.ofUnread(unread).Add(1)
	}
}

func (c *Counters) ofDecision(d *decision) *atomic.Uint64 {
	if d.refusal == nil {
		return &c.Admitted
	}
	switch d.refusal.reason {
	case reasonShed:
		return &c.Shed
	case reasonNoEngine:
		return &c.NoEngine
	case reasonUnknownModel:
		return &c.UnknownModel
	case reasonTooLarge:
		return &c.TooLong
	case reasonBusy:
		return &c.Busy
	default:
		return &c.Unreadable
	}
}

func (c *Counters) ofUnread(err error) *atomic.Uint64 {
	switch {
	case errors.Is(err, errContentType):
		return &c.ContentType
	case errors.Is(err, errEncoding):
		return &c.Encoding
	case errors.Is(err, errTooLarge):
		return &c.TooLarge
	case errors.Is(err, errNotObject):
		return &c.NotObject
	case errors.Is(err, errNoModel):
		return &c.NoModel
	case errors.Is(err, errDuplicate):
		return &c.Duplicate
	case errors.Is(err, errCase):
		return &c.Case
	case errors.Is(err, errTooMany):
		return &c.TooMany
	case errors.Is(err, errTooLong):
		return &c.Length
	case errors.Is(err, errBusy):
		return &c.Budget
	default:
		return &c.Syntax
	}
}

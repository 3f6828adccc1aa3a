package extproc

import (
	"errors"
	"strings"
	"unicode/utf8"

	"weir/envoy"
)

// Why a body tells no model. The words complete "the request names no model that
// can be read: …".
var (
	errContentType = errors.New("its content-type is not application/json")
	errEncoding    = errors.New("its content-encoding is not gzip, deflate, zstd or none, or is broken")
	errTooLarge    = errors.New("its content grows too large when it is decompressed")
	errSyntax      = errors.New("its body is not valid JSON")
	errNotObject   = errors.New("its body is not a JSON object")
	errNoModel     = errors.New(`its body has no string "model"`)
	errDuplicate   = errors.New("its body has an object with a repeated key")
	errCase        = errors.New(`its body has a second key that is "model" but for upper case`)
	errTooMany     = errors.New("its body has too many keys or values")
	errPackedAlias = errors.New("it is an alias, which can be resolved in a body that is not compressed alone")
	errTooLong     = errors.New("its body is larger than the limit")
	errBusy        = errors.New("there is no room for its body")
	errGone        = errors.New("the request ended before its body was read")
)

// harmful says whether a body is refused whatever the headers say of its class: it
// may mean another model to an engine, or was made to take long.
func harmful(unread error) bool {
	return errors.Is(unread, errDuplicate) || errors.Is(unread, errCase) || errors.Is(unread, errTooMany)
}

// maxEcho bounds what a refusal repeats of a client's own words, in bytes.
const maxEcho = 120

// refusal is an answer that Envoy gives in an engine's stead.
type refusal struct {
	status            uint32
	retryAfterSeconds int // 0: none said
	body              []byte
	details           string // for access logs
	reason            reason
	shedReason        string // a word of [envoy.HeaderShedReason]; empty: it is not for want of engines
}

// word is the reason for programs, as access logs have it behind "weir_".
func (r *refusal) word() string { return strings.TrimPrefix(r.details, "weir_") }

// reason tells the refusals apart.
type reason int

const (
	reasonUnreadable reason = iota
	reasonUnknownModel
	reasonNoEngine
	reasonShed
	reasonTooLarge
	reasonBusy
)

func badRequest(why error) *refusal {
	return &refusal{
		status: 400, reason: reasonUnreadable, details: "weir_unreadable",
		body: envoy.Unreadable(why.Error()),
	}
}

func noSuchModel(model string) *refusal {
	return &refusal{
		status: 404, reason: reasonUnknownModel, details: "weir_unknown_model",
		body: envoy.UnknownModel("the model `" + clip(model) + "` is not served here, or not at this path"),
	}
}

func noEngine() *refusal {
	return &refusal{
		status: 503, reason: reasonNoEngine, details: "weir_no_engine", retryAfterSeconds: usualRetryAfter,
		body: envoy.NoEngine(),
	}
}

// shed asks the client to come back after so many seconds or up to twice as many: not
// all clients at once.
func shed(key uint64, afterSeconds int, why string) *refusal {
	body := envoy.Overloaded()
	if why == envoy.ShedByLimit {
		body = envoy.Limited()
	}
	return &refusal{
		status: 429, reason: reasonShed, details: "weir_shed", shedReason: why, body: body,
		retryAfterSeconds: afterSeconds + int(mix(key)%uint64(afterSeconds)),
	}
}

// tooLarge says what Envoy says of a body whose length shows only as it comes.
func tooLarge() *refusal {
	return &refusal{
		status: 413, reason: reasonTooLarge, details: "weir_too_large",
		body: envoy.TooLarge(),
	}
}

// busy asks the client to come back in 1 to 3 seconds, by when the bodies are read.
func busy(random uint64) *refusal {
	return &refusal{
		status: 503, reason: reasonBusy, details: "weir_busy",
		retryAfterSeconds: 1 + int(mix(random)%3),
		body:              envoy.Busy(),
	}
}

// clip shortens s to maxEcho bytes at a character's end.
func clip(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	n := maxEcho
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

package extproc

import (
	"slices"
	"strconv"
	"strings"

	"weir/envoy"
	"weir/extproc/wire"
	"weir/fleet"
)

// retryCount is how the clients' SDKs say that a request is asked again.
const retryCount = "x-stainless-retry-count"

// route sends what matches a rule to a class, as the Envoy route of that rule does.
type route struct {
	rule  fleet.Rule
	class *class
}

// head is what the headers of a request say.
type head struct {
	fields   []wire.Header
	host     string
	path     string // without query
	bodyless bool

	response uint64   // hash of the ID of the response that the path names; 0: none, or of no interest
	followed followed // what is known of that

	sought *headerSources // of conversations' names, that were sought last
	found  int            // the first of them
}

func newHead(m *wire.Request) head {
	h := head{fields: m.Headers}
	h.host, _ = h.value(":authority")
	path, _ := h.value(":path")
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	h.path = path
	// Whatever the method: engines read a GET with a body as well. What follows the
	// headers of an upgrade is no body, and has no end.
	h.bodyless = m.EndOfStream || h.upgrades()
	return h
}

// responseIn is the ID of the response that a path names, as in /v1/responses/ID/cancel;
// empty: it names none.
func responseIn(path string) string {
	const begin = envoy.ResponsesPath + "/"
	at := strings.Index(path, begin)
	if at < 0 {
		return ""
	}
	id, _, _ := strings.Cut(path[at+len(begin):], "/")
	if !strings.HasPrefix(id, envoy.ResponseIDPrefix) {
		return ""
	}
	return id
}

// upgrades says whether the client asks for another protocol, a WebSocket. Envoy
// removes the header where it asks for none.
func (h *head) upgrades() bool {
	to, _ := h.value("upgrade")
	return to != ""
}

// connects says whether the client asks for a tunnel, which there is not.
func (h *head) connects() bool {
	method, _ := h.value(":method")
	return method == "CONNECT"
}

// asks says whether the method is one whose requests have no body as a rule, even
// where Envoy learns late that there is none.
func (h *head) asks() bool {
	method, _ := h.value(":method")
	return slices.Contains([]string{"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"}, method)
}

// value returns a header's value; several of one name are joined as Envoy joins
// them to match.
func (h *head) value(name string) (value string, ok bool) {
	for _, f := range h.fields {
		switch {
		case f.Name != name:
		case ok:
			value += "," + f.Value
		default:
			value, ok = f.Value, true
		}
	}
	return value, ok
}

// length is how long the headers say that the body is, in bytes; below 0 they do
// not say.
func (h *head) length() int64 {
	value, _ := h.value("content-length")
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return -1
	}
	return int64(n)
}

// clientRetry says whether the client has asked this before.
func (h *head) clientRetry() bool {
	n, ok := h.value(retryCount)
	return ok && n != "" && n != "0"
}

// matches evaluates all of a rule but what it asks of the body.
func (r *route) matches(h *head) bool {
	return onHost(r.rule.Host, h.host) && r.onPath(h.path) && r.onHeaders(h)
}

func (r *route) onPath(path string) bool {
	if r.rule.Exact {
		return path == r.rule.Path
	}
	return strings.HasPrefix(path, r.rule.Path)
}

func (r *route) onHeaders(h *head) bool {
	for _, want := range r.rule.Headers {
		if got, ok := h.value(want.Name); !ok || got != want.Value {
			return false
		}
	}
	return true
}

// onHost compares a rule's host with an authority, whose port does not count.
func onHost(host, authority string) bool {
	if host == "" {
		return true
	}
	n := len(host)
	return len(authority) >= n && strings.EqualFold(authority[:n], host) && isPort(authority[n:])
}

func isPort(s string) bool {
	if s == "" {
		return true
	}
	digits, ok := strings.CutPrefix(s, ":")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// routeOf returns the first route that matches, nil for none. An empty model is one
// that is not known: it matches the rules that name none, then those of whoever made
// the response that is asked for.
func (t *Table) routeOf(h *head, f *facts) *route {
	for i := range t.routes {
		r := &t.routes[i]
		if (r.rule.Model == "" || r.rule.Model == f.model) && f.features.meet(&r.rule.Body) && r.matches(h) {
			return r
		}
	}
	if f.byPath && f.followed.engine != 0 {
		return t.routeOfMaker(h, f.followed.engine)
	}
	return nil
}

// routeOfMaker returns the first route that leads to an engine, by its hash, and that
// Envoy comes to as well when it is told the model of its rule.
func (t *Table) routeOfMaker(h *head, maker uint64) *route {
	for i := range t.routes {
		r := &t.routes[i]
		if r.class.follows && r.class.made(maker) != nil && t.routeOf(h, &facts{model: r.rule.Model}) == r {
			return r
		}
	}
	return nil
}

// classOf returns the class of the first route that matches, nil for none.
func (t *Table) classOf(h *head, f *facts) *class {
	if r := t.routeOf(h, f); r != nil {
		return r.class
	}
	return nil
}

// candidate returns the first route that matches for some body, nil for none.
func (t *Table) candidate(h *head) *route {
	for i := range t.routes {
		if t.routes[i].matches(h) {
			return &t.routes[i]
		}
	}
	return nil
}

// headersDecide says whether the class does not depend on the body.
func (t *Table) headersDecide(h *head) bool {
	r := t.candidate(h)
	return r != nil && r.byHeaders()
}

// byHeaders says whether the rule asks for nothing of the body.
func (r *route) byHeaders() bool { return r.rule.Model == "" && !r.rule.Body.Any() }

// need is what must be read to decide about a request.
type need int

const (
	nothing    need = iota // it is no class's business: Envoy answers by itself
	theHeaders             // they decide
	theBody
)

// need says what a request with these headers needs. The headers decide the class
// where the first candidate asks for nothing of the body.
func (t *Table) need(h *head) need {
	if h.connects() {
		return nothing
	}
	if h.bodyless {
		var f facts
		f.lookUp(h)
		if t.classOf(h, &f) == nil {
			return nothing
		}
		return theHeaders
	}
	if r := t.candidate(h); r == nil || !r.byHeaders() || r.class.needsBody(h) {
		return theBody
	}
	return theHeaders
}

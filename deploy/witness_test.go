package deploy

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/deploy/stage"
	"weir/fleet"
)

// pathsFleet has five engines of which the test has every request and byte.
const pathsFleet = "testdata/paths.yaml"

// Headers of a test's requests to engines.
const (
	hold = "x-test-hold" // take it and never answer
	only = "x-test-only" // the address of the one engine that is not to answer 503

	after = "x-test-after" // seconds that a 503 asks to wait
	cut   = "x-test-cut"   // the connection is to be cut in place of a 503
)

// witness is an engine of the test's own. It takes every method and path, and keeps
// what it was asked.
type witness struct {
	address string
	server  *httptest.Server

	mu   sync.Mutex // guards seen and what is in it
	seen []*testimony
}

// testimony is one request as an engine saw it.
type testimony struct {
	engine  string
	method  string
	path    string
	length  int64 // as its header says; −1: it does not
	header  http.Header
	trailer http.Header
	body    []byte
	whole   bool // the body has come to its end
	left    bool // the client has left before the end
}

// ServeHTTP answers with the name of the engine.
func (w *witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" || r.URL.Path == "/metrics" {
		return
	}
	x := &testimony{engine: w.address, method: r.Method, path: r.URL.RequestURI(), length: r.ContentLength, header: r.Header.Clone()}
	w.note(func() { w.seen = append(w.seen, x) })
	if r.Header.Get("upgrade") != "" {
		w.echo(out, r, x)
		return
	}
	body, err := io.ReadAll(r.Body)
	w.note(func() { x.body, x.whole, x.trailer = body, err == nil, r.Trailer.Clone() })
	if err != nil || r.Header.Get(hold) != "" {
		<-r.Context().Done()
		w.note(func() { x.left = true })
		return
	}
	out.Header().Set("content-type", "application/json")
	if sum := r.Trailer.Get("x-checksum"); sum != "" { // that of the answer says the same, and something in our name
		out.Header().Set("trailer", "x-checksum, x-weir-pick")
		defer out.Header().Set("x-checksum", sum)
		defer out.Header().Set("x-weir-pick", "forged")
	}
	if one := r.Header.Get(only); one != "" && one != w.address {
		if r.Header.Get(cut) != "" {
			panic(http.ErrAbortHandler)
		}
		if seconds := r.Header.Get(after); seconds != "" {
			out.Header().Set("retry-after", seconds)
		}
		out.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(out, `{"engine":%q}`, w.address)
}

// echo sends back what comes on an upgraded connection, and its name before.
func (w *witness) echo(out http.ResponseWriter, r *http.Request, x *testimony) {
	conn, in, err := http.NewResponseController(out).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	key := sha1.Sum([]byte(r.Header.Get("sec-websocket-key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n%s\n",
		base64.StdEncoding.EncodeToString(key[:]), w.address)
	_, _ = io.Copy(conn, in)
	w.note(func() { x.left = true })
}

func (w *witness) note(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// witnesses are all engines of a fleet.
type witnesses []*witness

// startWitnesses stages a fleet whose engines, at 10.0.0.x in its file, are witnesses.
func startWitnesses(t *testing.T, o stage.Options) (*stage.Stage, witnesses) {
	t.Helper()
	var all witnesses
	var addresses []string // in the file, and in truth
	for i := range 5 {
		w := &witness{}
		server := httptest.NewServer(w)
		t.Cleanup(server.Close)
		w.server, w.address = server, server.Listener.Addr().String()
		all = append(all, w)
		addresses = append(addresses, fmt.Sprintf("10.0.0.%d:8000", i+1), w.address)
	}
	o.FleetFile = pathsFleet
	edit := o.Edit
	o.Edit = func(text string) string {
		text = strings.NewReplacer(addresses...).Replace(text)
		if edit != nil {
			text = edit(text)
		}
		return text
	}
	o.External = func(fleet.PoolID) bool { return true }
	return start(t, o), all
}

// of returns what the engines saw of the requests that a test marked.
func (all witnesses) of(mark string) (seen []testimony) {
	for _, w := range all {
		w.note(func() {
			for _, x := range w.seen {
				if x.header.Get("x-test-id") == mark {
					seen = append(seen, *x)
				}
			}
		})
	}
	return seen
}

// one returns what the engines saw of a request that must have reached one of them,
// once.
func (all witnesses) one(t *testing.T, mark string) testimony {
	t.Helper()
	seen := all.of(mark)
	if len(seen) != 1 {
		t.Errorf("%s: %d requests reached engines, want one", mark, len(seen))
		return testimony{}
	}
	for name := range seen[0].header {
		if strings.HasPrefix(strings.ToLower(name), "x-weir-") {
			t.Errorf("%s: the engine was told %s", mark, name)
		}
	}
	return seen[0]
}

// eachState runs a test with weir-extproc alive, and then dead.
func eachState(t *testing.T, s *stage.Stage, run func(t *testing.T, state string)) {
	t.Run("alive", func(t *testing.T) { run(t, "alive") })
	check(t, s.Process("extproc-main").Kill())
	check(t, s.Await(t.Context(), "main", false))
	t.Run("dead", func(t *testing.T) { run(t, "dead") })
}

// plea is one request of any kind.
type plea struct {
	method  string // empty: POST
	path    string // empty: chat completions
	body    string
	headers map[string]string // JSON unless they say otherwise; "": none of that name
	chunked bool              // the length of the body is not said
}

// sendPlea sends a request with a mark.
func sendPlea(t *testing.T, client *http.Client, s *stage.Stage, mark string, p plea) stage.Reply {
	t.Helper()
	method, path := p.method, p.path
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = "/v1/chat/completions"
	}
	var body io.Reader = http.NoBody
	if p.body != "" {
		body = strings.NewReader(p.body)
	}
	if p.chunked {
		body = io.MultiReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL("main")+path, body)
	check(t, err)
	r.Header.Set("content-type", "application/json")
	r.Header.Set("x-test-id", mark)
	for name, value := range p.headers {
		if r.Header.Set(name, value); value == "" {
			r.Header.Del(name)
		}
	}
	response, err := client.Do(r)
	if err != nil {
		return stage.Reply{Err: err}
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return stage.Reply{Status: response.StatusCode, Header: response.Header, Body: answer, Err: err}
}

// inDocs says whether a document has a row that begins with these cells.
func inDocs(document string, cells ...any) bool {
	row := "|"
	for _, c := range cells {
		row += fmt.Sprintf(" %v |", c)
	}
	return slices.ContainsFunc(strings.Split(document, "\n"), func(line string) bool { return strings.HasPrefix(line, row) })
}

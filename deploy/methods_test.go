package deploy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
)

// ways are requests of every method and path, and the statuses that they get with
// weir-extproc alive and dead; 200 and an engine: it read them byte for byte.
type way struct {
	name        string // as the document calls it
	plea        plea
	alive, dead int
	byEnvoy     bool // a 200 is Envoy's own
}

func ways() []way {
	named := `{` + mine + `}`
	form := func(size int) plea {
		return plea{
			path: "/v1/audio/transcriptions", headers: map[string]string{"content-type": "multipart/form-data; boundary=b"},
			body: "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" +
				strings.Repeat("\x00", size) + "\r\n--b--\r\n",
		}
	}
	preflight := func(path, origin string) plea {
		return plea{method: "OPTIONS", path: path, headers: map[string]string{
			"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type",
		}}
	}
	stored := func(method, body string) plea {
		return plea{method: method, path: "/v1/files/f-1", body: body, headers: map[string]string{"x-tenant": "t", "content-type": "application/octet-stream"}}
	}
	return []way{
		{name: "`GET`, `HEAD /v1/models` and `/v1/models/NAME`", plea: plea{method: "GET", path: "/v1/models?limit=2"}, alive: 200, dead: 200, byEnvoy: true},
		{name: "`GET`, `HEAD /v1/models` and `/v1/models/NAME`", plea: plea{method: "HEAD", path: "/v1/models"}, alive: 200, dead: 200, byEnvoy: true},
		{name: "`GET`, `HEAD /v1/models` and `/v1/models/NAME`", plea: plea{method: "GET", path: "/v1/models/llama-3.3-70b"}, alive: 200, dead: 200, byEnvoy: true},
		{name: "`GET`, `HEAD /v1/models` and `/v1/models/NAME`", plea: plea{method: "HEAD", path: "/v1/models/gpt-4o"}, alive: 200, dead: 200, byEnvoy: true},
		{name: "the same of a model that nobody serves", plea: plea{method: "GET", path: "/v1/models/gpt-9"}, alive: 404, dead: 404},
		{name: "any method with a body that names a model", plea: plea{method: "PATCH", path: "/v1/anything", body: named}, alive: 200, dead: 200},
		{name: "without a body, where no rule takes the path", plea: plea{method: "GET", path: "/v1/responses/r-1"}, alive: 404, dead: 404},
		{name: "without a body, where no rule takes the path", plea: plea{method: "DELETE", path: "/v1/models/llama-3.3-70b"}, alive: 404, dead: 404},
		{name: "without a body, where no rule takes the path", plea: plea{method: "OPTIONS", path: "/v1/chat/completions"}, alive: 404, dead: 404},
		{name: "without a body, where no rule takes the path", plea: plea{method: "TRACE", path: "/v1/chat/completions", headers: map[string]string{"content-type": ""}}, alive: 404, dead: 404},
		{name: "`POST` of a body that names no model, where no rule takes the path", plea: plea{path: "/v1/threads", body: `{}`}, alive: 400, dead: 400},
		{name: "any method, where a rule takes the path", plea: stored("GET", ""), alive: 200, dead: 200},
		{name: "any method, where a rule takes the path", plea: stored("DELETE", ""), alive: 200, dead: 200},
		{name: "any method, where a rule takes the path", plea: stored("PUT", "\x00\x01"), alive: 200, dead: 200},
		{name: "any method, where a rule takes the path", plea: plea{path: "/v1/batches", body: `{"input_file_id":"f-1"}`, headers: map[string]string{"x-tenant": "t"}}, alive: 200, dead: 200},
		{name: "a form with a file (audio), where a rule takes the path", plea: form(1000), alive: 200, dead: 200},
		{name: "the same, larger than `bodyLimit`", plea: form(5 << 20), alive: 200, dead: 200},
		{name: "JSON larger than `bodyLimit`, where path and headers decide all", plea: plea{path: "/v1/files", body: fill(`{"pad":"%s"}`, 5<<20), headers: map[string]string{"x-tenant": "t"}}, alive: 200, dead: 413},
		{name: "a preflight from one of `corsOrigins`", plea: preflight("/v1/chat/completions", "https://app.example.org"), alive: 204, dead: 204, byEnvoy: true},
		{name: "a preflight from elsewhere, where no rule takes the path", plea: preflight("/v1/chat/completions", "https://app.example.org.evil.example"), alive: 404, dead: 404},
	}
}

// Every method and path has its rule, in the document, with weir-extproc alive and
// dead.
func TestMethodsAndPaths(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{})
	text, err := os.ReadFile(requestsDoc)
	check(t, err)
	client := stage.NewClient()
	eachState(t, s, func(t *testing.T, state string) {
		for i, w := range ways() {
			if !inDocs(string(text), w.name, w.alive, w.dead) {
				t.Errorf("%s: docs/REQUESTS.md does not say that it gets %d, and %d", w.name, w.alive, w.dead)
			}
			want := w.alive
			if state == "dead" {
				want = w.dead
			}
			mark := fmt.Sprint(state, i)
			r := sendPlea(t, client, s, mark, w.plea)
			switch {
			case r.Err != nil || r.Status != want:
				t.Errorf("%s, %s: %v, want %d", state, w.name, &r, want)
			case want >= 400:
				mustRefuse(t, r, want)
			case !w.byEnvoy:
				if got := engines.one(t, mark); string(got.body) != w.plea.body || got.method != w.plea.verb() || got.path != w.plea.path {
					t.Errorf("%s, %s: the engine got %s %s with other %d bytes", state, w.name, got.method, got.path, len(got.body))
				}
			}
			if seen := engines.of(mark); len(seen) != 0 && (w.byEnvoy || want >= 400) {
				t.Errorf("%s, %s: reached an engine", state, w.name)
			}
		}
		browsers(t, s, state)
		sameEngine(t, s, engines, state)
	})
}

func (p plea) verb() string {
	if p.method == "" {
		return http.MethodPost
	}
	return p.method
}

// browsers holds that a page of a named origin may read every answer, and no other.
func browsers(t *testing.T, s *stage.Stage, state string) {
	t.Helper()
	client := stage.NewClient()
	for origin, allowed := range map[string]string{"https://app.example.org": "https://app.example.org", "https://evil.example.org": ""} {
		for what, p := range map[string]plea{
			"preflight": {method: "OPTIONS", headers: map[string]string{"access-control-request-method": "POST"}},
			"answer":    {body: `{` + mine + `}`}, "error": {body: `{}`}, "models": {method: "GET", path: "/v1/models"},
		} {
			if p.headers == nil {
				p.headers = map[string]string{}
			}
			p.headers["origin"] = origin
			if got := sendPlea(t, client, s, "browser", p).Header.Get("access-control-allow-origin"); got != allowed {
				t.Errorf("%s: %s for a page of %s is readable by %q, want %q", state, what, origin, got, allowed)
			}
		}
	}
}

// sameEngine holds that what one tenant stores and asks for goes to one engine.
func sameEngine(t *testing.T, s *stage.Stage, engines witnesses, state string) {
	t.Helper()
	client := stage.NewClient()
	used := map[string]bool{}
	for i := range 12 {
		tenant := fmt.Sprint("tenant-", i)
		headers := map[string]string{"x-tenant": tenant}
		mark := state + tenant
		for _, p := range []plea{
			{path: "/v1/files", body: "content", headers: map[string]string{"x-tenant": tenant, "content-type": "multipart/form-data; boundary=b"}},
			{method: "GET", path: "/v1/files/f-1/content", headers: headers},
			{path: "/v1/batches", body: `{"input_file_id":"f-1"}`, headers: headers},
		} {
			if r := sendPlea(t, client, s, mark, p); !r.OK() {
				t.Errorf("%s: %s: %v", state, p.path, &r)
			}
		}
		seen := engines.of(mark)
		for _, x := range seen {
			if x.engine != seen[0].engine {
				t.Errorf("%s: what %s stored on one engine is asked for on another", state, tenant)
			}
		}
		used[seen[0].engine] = true
	}
	if len(used) < 2 {
		t.Errorf("%s: twelve tenants are on %d engine", state, len(used))
	}
}

// wire is a client's connection on which a test writes what it likes.
type wire struct {
	net.Conn
	*bufio.Reader
}

func dial(t *testing.T, s *stage.Stage) wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.Fleet.FrontEnd("main").Listen, 5*time.Second)
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return wire{conn, bufio.NewReader(conn)}
}

func (w wire) say(t *testing.T, lines ...string) {
	t.Helper()
	_, err := io.WriteString(w.Conn, strings.Join(lines, "\r\n"))
	check(t, err)
}

// reply reads an answer whole. One that came early is there even if the connection was
// reset since.
func (w wire) reply(t *testing.T) stage.Reply {
	t.Helper()
	response, err := http.ReadResponse(w.Reader, nil)
	check(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(t, err)
	return stage.Reply{Status: response.StatusCode, Header: response.Header, Body: body}
}

func (w wire) status(t *testing.T) int {
	t.Helper()
	return w.reply(t).Status
}

// WebSockets go where their headers say, one session to one engine, are counted as
// long as they last, and are refused where only a model could tell; so are tunnels
// and other upgrades. None of them is left waiting.
func TestUpgrades(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{})
	upgrade := func(mark, path, to, session string) []string {
		return []string{
			"GET " + path + " HTTP/1.1", "host: x", "connection: keep-alive, Upgrade", "upgrade: " + to, "sec-websocket-version: 13",
			"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", "x-session-id: " + session, "x-test-id: " + mark, "", "",
		}
	}
	eachState(t, s, func(t *testing.T, state string) {
		sessions := map[string]string{} // the engine of each
		for i := range 12 {
			session := fmt.Sprint("s", i%4)
			mark := fmt.Sprint(state, i)
			w := dial(t, s)
			w.say(t, upgrade(mark, "/v1/realtime?model=gpt-realtime", "websocket", session)...)
			if status := w.status(t); status != 101 {
				t.Fatalf("%s: %d, want 101", state, status)
			}
			engine, err := w.ReadString('\n')
			check(t, err)
			if before, known := sessions[session]; known && before != engine {
				t.Errorf("%s: session %s is at %s and %s", state, session, before, engine)
			}
			sessions[session] = engine
			if state == "alive" {
				eventually(t, "it is counted", time.Second, func() bool { return open(t, s, "realtime") == 1 })
			}
			echoed(t, w)
			w.Close()
			eventually(t, "the engine is told that the client has left", time.Second, func() bool { return engines.one(t, mark).left })
			if state == "alive" {
				eventually(t, "it is counted no more", time.Second, func() bool { return open(t, s, "realtime") == 0 })
			}
		}
		for name, c := range map[string]struct {
			lines  []string
			status int
		}{
			"by model":  {upgrade("no", "/v1/chat/completions", "websocket", "s"), 404},
			"other":     {upgrade("no", "/v1/realtime", "tls/1.3", "s"), 403},
			"tunnel":    {[]string{"CONNECT example.org:443 HTTP/1.1", "host: example.org:443", "", ""}, 404},
			"with JSON": {append([]string{"POST /v1/chat/completions HTTP/1.1", "content-type: application/json", "content-length: 40"}, upgrade("no", "", "websocket", "s")[1:]...), 400},
			"no need":   {h2c(state), 200},
		} {
			w := dial(t, s)
			w.say(t, c.lines...)
			if status := w.status(t); status != c.status {
				t.Errorf("%s, %s: %d, want %d", state, name, status, c.status)
			}
		}
	})
	if seen := engines.of("no"); len(seen) != 0 {
		t.Errorf("%d refused upgrades reached an engine", len(seen))
	}
}

// h2c asks for HTTP/2 in the way that curl does, and may be answered in HTTP/1.1.
func h2c(mark string) []string {
	body := `{` + mine + `}`
	return []string{
		"POST /v1/chat/completions HTTP/1.1", "host: x", "connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__",
		"content-type: application/json", fmt.Sprint("content-length: ", len(body)), "x-test-id: h2c" + mark, "", body,
	}
}

// echoed sends a megabyte each way at once.
func echoed(t *testing.T, w wire) {
	t.Helper()
	sent := bytes.Repeat([]byte("frame "), 1<<17)
	go func() { _, _ = w.Conn.Write(sent) }() // what is missing, the reader sees
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(w.Reader, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("the echo differs: %v", err)
	}
}

// open is how many requests of a class weir-extproc says are in flight.
func open(t *testing.T, s *stage.Stage, class string) int {
	t.Helper()
	for line := range strings.Lines(page(t, s.AdminAddress("extproc-main"), "/metrics")) {
		var n int
		if _, err := fmt.Sscanf(line, `weir_extproc_requests_in_flight{class="`+class+`"} %d`, &n); err == nil {
			return n
		}
	}
	return -1
}

// Clients speak HTTP/1.1 or HTTP/2 without TLS; with trailers, in chunks, or asking
// first whether to go on.
func TestVersionsOfHTTP(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{})
	two := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	two.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	body := fill(`{"pad":"%s",`+mine+`}`, 1<<20)
	eachState(t, s, func(t *testing.T, state string) {
		for name, client := range map[string]*http.Client{"1.1": stage.NewClient(), "2": two} {
			mark := state + name
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL("main")+"/v1/chat/completions", io.MultiReader(strings.NewReader(body)))
			check(t, err)
			r.Header.Set("content-type", "application/json")
			r.Header.Set("x-test-id", mark)
			r.Trailer = http.Header{"X-Checksum": {mark}, "X-Weir-Pick": {"forged"}}
			response, err := client.Do(r)
			check(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			check(t, err)
			response.Body.Close()
			if response.StatusCode != 200 || response.Proto != "HTTP/"+strings.Replace(name, "2", "2.0", 1) {
				t.Errorf("%s, with trailers: %s %d", mark, response.Proto, response.StatusCode)
			}
			got := engines.one(t, mark)
			if string(got.body) != body || got.trailer.Get("X-Checksum") != mark || got.trailer.Get("X-Weir-Pick") != "" {
				t.Errorf("%s: the engine read %d bytes of %d and trailers %v", mark, len(got.body), len(body), got.trailer)
			}
			if back := response.Trailer; back.Get("X-Checksum") != mark || back.Get("X-Weir-Pick") != "" {
				t.Errorf("%s: the client read trailers %v", mark, back)
			}
		}
		w := dial(t, s)
		w.say(t, "POST /v1/chat/completions HTTP/1.1", "host: x", "expect: 100-continue", "content-type: application/json",
			"x-test-id: "+state+"continue", fmt.Sprint("content-length: ", len(body)), "", "")
		if status := w.status(t); status != 100 {
			t.Errorf("%s: a client that asks whether to go on gets %d", state, status)
		}
		w.say(t, body)
		if status := w.status(t); status != 200 || string(engines.one(t, state+"continue").body) != body {
			t.Errorf("%s: a client that was told to go on gets %d", state, status)
		}
		w = dial(t, s)
		w.say(t, "POST /v1/chat/completions HTTP/1.0", "host: x", "content-length: 2", "", "{}")
		if status := w.status(t); status != 426 {
			t.Errorf("%s: HTTP/1.0 gets %d, want 426", state, status)
		}
	})
}

// A client that leaves frees its engine within a second: while it uploads, or while
// it waits for an answer in one piece.
func TestClientsThatLeave(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{})
	eachState(t, s, func(t *testing.T, state string) {
		upload := dial(t, s)
		upload.say(t, "POST /v1/audio/transcriptions HTTP/1.1", "host: x", "content-type: multipart/form-data; boundary=b", "content-length: 1000000",
			"x-test-id: "+state+"upload", "", "the first bytes")
		waiting := dial(t, s)
		body := `{` + mine + `}`
		waiting.say(t, "POST /v1/chat/completions HTTP/1.1", "host: x", "content-type: application/json", fmt.Sprint("content-length: ", len(body)),
			hold+": 1", "x-test-id: "+state+"waiting", "", body)
		for _, mark := range []string{"upload", "waiting"} {
			eventually(t, mark+": an engine has it", 5*time.Second, func() bool { return len(engines.of(state+mark)) == 1 })
		}
		check(t, upload.Close())
		check(t, waiting.Close())
		for _, mark := range []string{"upload", "waiting"} {
			eventually(t, mark+": the engine is free", time.Second, func() bool { return engines.one(t, state+mark).left })
		}
		if state == "alive" {
			eventually(t, "nothing is in flight", time.Second, func() bool { return open(t, s, "chat") == 0 && open(t, s, "audio") == 0 })
			leaveBeforeTheEngine(t, s)
		}
	})
}

// leaveBeforeTheEngine leaves in the middle of a body that weir-extproc waits for.
func leaveBeforeTheEngine(t *testing.T, s *stage.Stage) {
	t.Helper()
	undecided := func() (n int) {
		for line := range strings.Lines(page(t, s.AdminAddress("extproc-main"), "/metrics")) {
			_, _ = fmt.Sscanf(line, `weir_extproc_requests_total{outcome="undecided"} %d`, &n)
		}
		return n
	}
	before := undecided()
	half := dial(t, s)
	half.say(t, "POST /v1/chat/completions HTTP/1.1", "host: x", "content-type: application/json", "content-length: 1000000", "", `{"mod`)
	eventually(t, "weir-extproc waits for the body", 5*time.Second, func() bool {
		n, err := s.Stat(t.Context(), "main", "http.weir.downstream_rq_active")
		return err == nil && n > 0
	})
	check(t, half.Close())
	eventually(t, "weir-extproc lets go of it", time.Second, func() bool { return undecided() == before+1 })
}

package admin

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// order is a request to do something, as `weir` makes it but for what a test changes.
func order(change func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/act", strings.NewReader(`{"x":1}`))
	r.RemoteAddr, r.Host = "127.0.0.1:55555", "127.0.0.1:18001"
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	return r
}

// Only a program on the same machine may change anything, and no web page.
func TestWhoMayAct(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	from := func(remote string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = remote } }
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"weir":                  {nil, 200},
		"over IPv6":             {func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:5", "[::1]:18001" }, 200},
		"IPv4 within IPv6":      {from("[::ffff:127.0.0.1]:5"), 200},
		"another loopback":      {host("127.0.0.9"), 200},
		"localhost":             {host("LocalHost:18001"), 200},
		"localhost, no port":    {host("localhost"), 200},
		"with a charset":        {header("Content-Type", "application/json; charset=utf-8"), 200},
		"a page of our own":     {func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:18001") }, 200},
		"another machine":       {from("10.0.0.7:5"), 403},
		"an unreadable peer":    {from("pipe"), 403},
		"a rebound name":        {host("evil.example:18001"), 403},
		"a name that is like":   {host("localhost.evil.example"), 403},
		"an address elsewhere":  {host("10.0.0.7:18001"), 403},
		"0.0.0.0":               {host("0.0.0.0:18001"), 403},
		"no host":               {host(""), 403},
		"a page elsewhere":      {header("Sec-Fetch-Site", "cross-site"), 403},
		"a page of a neighbour": {header("Sec-Fetch-Site", "same-site"), 403},
		"a page's origin":       {header("Origin", "https://evil.example"), 403},
		"a sandboxed page":      {header("Origin", "null"), 403},
		"a form":                {header("Content-Type", "application/x-www-form-urlencoded"), 415},
		"a form that looks so":  {header("Content-Type", "text/plain"), 415},
		"no content type":       {header("Content-Type", ""), 415},
		"a type that lies":      {header("Content-Type", "text/plain; application/json"), 415},
		"too large": {func(r *http.Request) {
			r.Body = http.NoBody
			r.Body = httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat(" ", maxOrder+1))).Body
		}, 413},
		"reading":   {func(r *http.Request) { r.Method = http.MethodGet }, 404}, // an action alone is no page
		"asking":    {func(r *http.Request) { r.Method = http.MethodOptions }, 405},
		"elsewhere": {func(r *http.Request) { r.URL.Path = "/value" }, 405},
	} {
		t.Run(name, func(t *testing.T) {
			acted := 0
			o := testOptions()
			o.Actions = map[string]Action{"/act": func(body []byte) (any, error) {
				acted++
				if string(body) != `{"x":1}` {
					t.Errorf("body %q", body)
				}
				return "done", nil
			}}
			w := httptest.NewRecorder()
			Handler(o).ServeHTTP(w, order(c.change))
			if w.Code != c.status {
				t.Errorf("status %d %s, want %d", w.Code, w.Body, c.status)
			}
			if did := acted == 1; did != (c.status == 200) {
				t.Errorf("acted %d times with status %d", acted, w.Code)
			}
			if w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Error("it lets pages in")
			}
		})
	}
}

func TestWhatActionsAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"the asker's mistake": {fmt.Errorf("%w: no", ErrQuery), 400},
		"not now":             {errors.New("busy"), 503},
	} {
		o := testOptions()
		o.Actions = map[string]Action{"/act": func([]byte) (any, error) { return nil, c.err }}
		w := httptest.NewRecorder()
		Handler(o).ServeHTTP(w, order(nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.err.Error()) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	o := testOptions()
	o.Actions = map[string]Action{"/act": func([]byte) (any, error) { return nil, nil }}
	w := httptest.NewRecorder()
	Handler(o).ServeHTTP(w, order(func(r *http.Request) { r.Method = http.MethodPut }))
	if got := w.Header().Get("Allow"); w.Code != 405 || got != "GET, POST" {
		t.Errorf("PUT: %d, allowed %q", w.Code, got)
	}
}

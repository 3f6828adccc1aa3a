package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// ask returns the status and the body of one request.
func ask(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	if path != "/metrics" {
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s %s: content type %q", method, path, got)
		}
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s is not JSON: %s", method, path, w.Body)
		}
	}
	return w.Code, w.Body.String()
}

func testOptions() Options {
	return Options{
		Metrics: NewRegistry(),
		Ready:   func() error { return nil },
		Pages: map[string]Page{
			"/value":    func() (any, error) { return map[string]int{"x": 1}, nil },
			"/error":    func() (any, error) { return nil, errors.New("not yet") },
			"/infinite": func() (any, error) { return math.Inf(1), nil },
		},
	}
}

func TestHandler(t *testing.T) {
	h := Handler(testOptions())
	for name, c := range map[string]struct {
		method, path string
		status       int
		says         string
	}{
		"value":         {"GET", "/value", 200, `"x": 1`},
		"query":         {"GET", "/value?a=b", 400, `unknown \"a\" in the query: nothing can be asked here`},
		"error":         {"GET", "/error", 503, `{"error":"not yet"}`},
		"no JSON of it": {"GET", "/infinite", 500, "unsupported value"},
		"alive":         {"GET", "/healthz", 200, "alive"},
		"ready":         {"GET", "/readyz", 200, "ready"},
		"metrics":       {"GET", "/metrics", 200, "go_goroutines"},
		"unknown":       {"GET", "/", 404, "/error, /healthz, /infinite, /readyz, /value, /metrics"},
		"below":         {"GET", "/value/x", 404, `/value/x`},
		"post":          {"POST", "/value", 405, "POST is not possible here: this only reads, by GET"},
		"head":          {"HEAD", "/value", 405, "by GET"},
		"delete":        {"DELETE", "/nothing", 405, "by GET"},
		"long":          {"GET", "/" + strings.Repeat("x", 5000), 404, "there is no"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := ask(t, h, c.method, c.path)
			if status != c.status || !strings.Contains(body, c.says) {
				t.Errorf("%d %s; want %d and %q", status, body, c.status, c.says)
			}
			if len(body) > 1000 && c.path != "/metrics" {
				t.Errorf("%d bytes about an error", len(body))
			}
		})
	}
}

func TestCheckKeys(t *testing.T) {
	for query, want := range map[string]string{
		"":                   "",
		"drain=p&lose=eu":    "",
		"drain=p&drain=q":    "",
		"drian=p":            `unknown "drian" in the query: ask by drain, lose`,
		"drain=p&x=1&lose=a": `unknown "x"`,
		"drain=%zz":          "the query cannot be read",
	} {
		err := CheckKeys(query, "drain", "lose")
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

func TestReadyz(t *testing.T) {
	o := testOptions()
	o.Ready = func() error { return errors.New("no plan") }
	h := Handler(o)
	if status, body := ask(t, h, "GET", "/readyz"); status != 503 || !strings.Contains(body, "no plan") {
		t.Errorf("readyz: %d %s", status, body)
	}
	if status, _ := ask(t, h, "GET", "/healthz"); status != 200 {
		t.Errorf("healthz: %d: a process that is not ready is alive", status)
	}
}

func TestPagesAreNotTheCallersToChange(t *testing.T) {
	o := testOptions()
	Handler(o)
	if o.Pages["/healthz"] != nil {
		t.Error("the caller's map was changed")
	}
	o.Pages = nil
	if status, _ := ask(t, Handler(o), "GET", "/healthz"); status != 200 {
		t.Errorf("without pages: %d", status)
	}
}

// Few are answered at once, so that who asks much does not cost much, nor has the process
// taken for dead.
func TestTooManyAtOnce(t *testing.T) {
	inside, leave := make(chan bool), make(chan bool)
	o := testOptions()
	o.Pages["/slow"] = func() (any, error) {
		inside <- true
		<-leave
		return "slow", nil
	}
	server := httptest.NewServer(Handler(o))
	defer server.Close()
	done := make(chan error, maxRequests)
	for range maxRequests {
		go func() { done <- get(server.URL + "/slow") }()
		<-inside
	}
	if err := get(server.URL + "/value"); err == nil || !strings.HasPrefix(err.Error(), "503") {
		t.Errorf("one too many: %v, want 503", err)
	}
	for _, probe := range []string{"/healthz", "/readyz"} {
		if err := get(server.URL + probe); err != nil {
			t.Errorf("%s in the crowd: %v", probe, err)
		}
	}
	for range maxRequests {
		leave <- true
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := get(server.URL + "/value"); err != nil {
		t.Errorf("after the crowd: %v", err)
	}
}

func get(url string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != 200 {
		return errors.New(response.Status)
	}
	return nil
}

func TestRegistriesAreIndependent(t *testing.T) {
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_test_total", Help: "A test."})
	for range 2 { // a global registry would refuse the second
		if err := NewRegistry().Register(own); err != nil {
			t.Error(err)
		}
	}
}

// What must be reckoned is reckoned for one asker at a time.
func TestQueries(t *testing.T) {
	o := testOptions()
	began, end := make(chan struct{}), make(chan struct{})
	o.Queries = map[string]Query{
		"/sum": func(q url.Values) (any, error) {
			if q.Get("of") == "" {
				return nil, fmt.Errorf("%w: say of what", ErrQuery)
			}
			return q["of"], nil
		},
		"/slow": func(url.Values) (any, error) {
			close(began)
			<-end
			return "done", nil
		},
	}
	h := Handler(o)
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/sum?of=a&of=b": {200, `"b"`},
		"/sum":           {400, "say of what"},
		"/nothing":       {404, "/slow, /sum, /error"},
	} {
		if status, body := ask(t, h, "GET", path); status != want.status || !strings.Contains(body, want.says) {
			t.Errorf("%s: %d %s, want %d and %q", path, status, body, want.status, want.says)
		}
	}
	slow := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/slow", nil))
		slow <- w.Code
	}()
	<-began
	if status, body := ask(t, h, "GET", "/sum?of=a"); status != 503 || !strings.Contains(body, "ask again") {
		t.Errorf("while another question is reckoned: %d %s", status, body)
	}
	if status, _ := ask(t, h, "GET", "/value"); status != 200 {
		t.Errorf("a page meanwhile: %d", status)
	}
	close(end)
	if status := <-slow; status != 200 {
		t.Errorf("the first question: %d", status)
	}
	if status, _ := ask(t, h, "GET", "/sum?of=a"); status != 200 {
		t.Errorf("a question afterwards: %d", status)
	}
}

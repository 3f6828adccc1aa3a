package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const patience = 10 * time.Second

// start runs the program and returns its address, a way to stop it, and a
// channel with its exit code.
func start(t *testing.T, args ...string) (address string, stop func(), exit <-chan int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"--listen=127.0.0.1:0"}, args...), in, io.Discard)
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the program said nothing: %v", err)
	}
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("first line %q, want listening on …", line)
	}
	return address, cancel, code
}

func await(t *testing.T, exit <-chan int) int {
	t.Helper()
	select {
	case code := <-exit:
		return code
	case <-time.After(patience):
		t.Fatal("the program does not stop")
		return 0
	}
}

func TestRunServesAndStops(t *testing.T) {
	address, stop, exit := start(t, "--ttft=0s", "--tbt=0s", "--log="+filepath.Join(t.TempDir(), "log"))
	resp, err := http.Post("http://"+address+chatPath, "application/json", strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		t.Errorf("answer %q, %v", body, err)
	}
	stop()
	if code := await(t, exit); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestReady(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		code  int
	}{"ready": {nil, 0}, "loading": {[]string{"--load-time=1h"}, 1}} {
		t.Run(name, func(t *testing.T) {
			address, _, _ := start(t, c.flags...)
			if code := run(t.Context(), []string{"--ready", "--listen=" + address}, io.Discard, io.Discard); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
	if code := run(t.Context(), []string{"--ready", "--listen=127.0.0.1:1"}, io.Discard, io.Discard); code != 1 {
		t.Errorf("nobody there: exit code %d, want 1", code)
	}
}

// feed is a journal's file that hands its lines to a test.
type feed chan string

func (f feed) Write(line []byte) (int, error) { f <- string(line); return len(line), nil }
func (feed) Close() error                     { return nil }

// A client that hangs up is noticed over a real connection.
func TestHangUp(t *testing.T) {
	e, _ := testEngine(t, "--ttft=1h")
	log := make(feed, 2)
	e.journal = &journal{out: log}
	server := httptest.NewServer(e.handler())
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", server.URL+chatPath, strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r) // the headers come at once
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for _, want := range []string{`"event":"arrival"`, `"outcome":"aborted"`} {
		select {
		case line := <-log:
			if !strings.Contains(line, want) {
				t.Errorf("journal line %s, want %s", line, want)
			}
		case <-ctx.Done():
			t.Fatalf("no journal line with %s", want)
		}
	}
}

// What is still in flight after the grace is cut off, and logged as such.
func TestStopDoesNotWaitForever(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	address, stop, exit := start(t, "--ttft=1h", "--log="+file)
	resp, err := http.Post("http://"+address+chatPath, "application/json", strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stop()
	if code := await(t, exit); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer ended well with %q, want it cut off", body)
	}
	if got := readEnds(t, file); len(got) != 1 || got[0].Outcome != aborted {
		t.Errorf("ends = %+v, want one aborted", got)
	}
}

func TestRunRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"taken port", []string{"--listen", taken.Addr().String()}, 1, "address already in use: choose another --listen"},
		{"log in no folder", []string{"--listen=127.0.0.1:0", "--log=/nonexistent/log"}, 1, "--log: open /nonexistent/log"},
		{"unknown flag", []string{"--lisen=x"}, 2, "flag provided but not defined: -lisen"},
		{"argument", []string{"serve"}, 2, `unexpected argument "serve"`},
		{"two wrong values", []string{"--capacity=0", "--models=,"}, 2, "--models: want at least one name\n--capacity: want a rate above 0"},
		{"wrong faults", []string{`--faults={"slow":-1}`}, 2, "faults: slow -1: want a factor above 0"},
		{"wrong source", []string{"--delay=nowhere=1s"}, 2, `"nowhere=1s": want SOURCE=TIME with an IP address`},
		{"wrong delay", []string{"--delay=127.0.0.1=soon"}, 2, `"127.0.0.1=soon": want SOURCE=TIME with a time`},
		{"help", []string{"--help"}, 0, "-ttft-full"},
		{"help on faults", []string{"--help"}, 0, `{"stallAfter":5}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			if code := run(t.Context(), tt.args, &stdout, &stderr); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("stderr %q, want %q", stderr.String(), tt.want)
			}
			if stdout.String() != "" {
				t.Errorf("stdout %q, want nothing", stdout.String())
			}
		})
	}
}

func get(e *engine, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestHealthAndModels(t *testing.T) {
	e, _ := testEngine(t, "--models=base, adapter")
	if got := get(e, "/health").Code; got != 200 {
		t.Errorf("health = %d, want 200", got)
	}
	const want = `{"data":[{"id":"base","object":"model","owned_by":"mock-engine"},` +
		`{"id":"adapter","object":"model","owned_by":"mock-engine"}],"object":"list"}`
	if got := strings.TrimSpace(get(e, "/v1/models").Body.String()); got != want {
		t.Errorf("models = %s\nwant %s", got, want)
	}
	e.draining.Store(true)
	if got := get(e, "/health").Code; got != 503 {
		t.Errorf("health while stopping = %d, want 503", got)
	}
}

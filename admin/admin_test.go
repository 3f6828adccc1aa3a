package admin

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestServeEndsWithItsContext(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, Handler(testOptions())) }()
	if err := get("http://" + l.Addr().String() + "/healthz"); err != nil {
		t.Error(err)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("serve: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still serving 10 s after the end of its context")
	}
	if err := get("http://" + l.Addr().String() + "/healthz"); err == nil {
		t.Error("answered after its end")
	}
}

func TestServeOnADeadListener(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := Serve(t.Context(), l, Handler(testOptions())); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("serve: %v, want an error that names the address", err)
	}
}

func TestListen(t *testing.T) {
	if l, err := Listen(""); l != nil || err != nil {
		t.Errorf("without an address: %v, %v", l, err)
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Listen(l.Addr().String()); err == nil || !strings.Contains(err.Error(), "--admin: ") {
		t.Errorf("a port in use: %v", err)
	}
}

func TestWarning(t *testing.T) {
	for address, warns := range map[string]bool{
		"127.0.0.1:1":          false,
		"127.8.8.8:1":          false,
		"[::1]:1":              false,
		"[::ffff:127.0.0.1]:1": false,
		"0.0.0.0:1":            true,
		"[::]:1":               true,
		"10.0.0.1:1":           true,
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := Warning(a) != ""; got != warns {
			t.Errorf("%s: warns %v, want %v", address, got, warns)
		}
	}
}

func TestFetchStatus(t *testing.T) {
	o := ControlPlane(testSources())
	server := httptest.NewServer(Handler(o))
	defer server.Close()
	got, err := FetchStatus(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	want := newStatus(time.Time{}, testRound(), testClients(), "", "")
	// The ages alone depend on the clock.
	want.Plan.AgeSeconds, want.Plan.RoundAgeSeconds = got.Plan.AgeSeconds, got.Plan.RoundAgeSeconds
	want.Attention = got.Attention
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestAskReady(t *testing.T) {
	o := testOptions()
	var why error
	o.Ready = func() error { return why }
	server := httptest.NewServer(Handler(o))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	if err := AskReady(t.Context(), at); err != nil {
		t.Errorf("ready: %v", err)
	}
	why = errors.New("no plan yet")
	for address, says := range map[string]string{at: "503 Service Unavailable: {", "127.0.0.1:1": "refused", "a b": "want host:port"} {
		if err := AskReady(t.Context(), address); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want %q in it", address, err, says)
		}
	}
}

func TestFetchStatusSaysWhatIsWrong(t *testing.T) {
	other := httptest.NewServer(Handler(testOptions()))
	defer other.Close()
	page := testOptions()
	page.Pages["/status"] = func() (any, error) { return "words", nil }
	wordy := httptest.NewServer(Handler(page))
	defer wordy.Close()
	for name, c := range map[string]struct{ address, says string }{
		"nobody":         {"127.0.0.1:1", "no control plane answers at 127.0.0.1:1: is `weir serve` running"},
		"another daemon": {strings.TrimPrefix(other.URL, "http://"), `there is no "/status"`},
		"another page":   {strings.TrimPrefix(wordy.URL, "http://"), "no status"},
		"no address":     {"a b", "want host:port"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := FetchStatus(t.Context(), c.address); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q in it", err, c.says)
			}
		})
	}
}

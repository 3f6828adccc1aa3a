package main

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestDelayBySource(t *testing.T) {
	d := delays{}
	for _, list := range []string{"127.0.0.0/8=40ms, 127.0.2.0/24=20ms", "127.0.2.7=1ms", "::1=3ms"} {
		if err := d.add(list); err != nil {
			t.Fatal(err)
		}
	}
	for source, want := range map[string]time.Duration{
		"127.0.2.7": time.Millisecond, "127.0.2.8": 20 * time.Millisecond, "127.9.9.9": 40 * time.Millisecond,
		"10.0.0.1": 0, "::1": 3 * time.Millisecond, "::2": 0,
	} {
		if got := d.to(netip.MustParseAddr(source)); got != want {
			t.Errorf("to %s: %v, want %v", source, got, want)
		}
	}
	if got := d.to(netip.Addr{}); got != 0 {
		t.Errorf("to nowhere: %v, want 0", got)
	}
}

func TestEveryRequestIsDelayed(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, log *sink) {
		took := func(method, path, source, body string) time.Duration {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.RemoteAddr = source
			start := time.Now()
			e.handler().ServeHTTP(httptest.NewRecorder(), r)
			return time.Since(start)
		}
		const near, far = "127.0.1.1:999", "[::ffff:127.0.2.1]:999"
		for _, path := range []string{"/health", "/metrics", "/v1/models", "/faults"} {
			if a, b := took("GET", path, near, ""), took("GET", path, far, ""); a != 0 || b != 80*time.Millisecond {
				t.Errorf("GET %s took %v from near and %v from far, want 0 and 80ms", path, a, b)
			}
		}
		if a, b := took("POST", chatPath, near, whole), took("POST", chatPath, far, whole); b-a != 80*time.Millisecond {
			t.Errorf("took %v from near and %v from far, want 80ms more", a, b)
		}
		for i, want := range []arrival{{Source: "127.0.1.1"}, {Source: "127.0.2.1", Delay: 0.08}} {
			got := lines[arrival](t, log, "arrival")[i]
			if got.Source != want.Source || got.Delay != want.Delay {
				t.Errorf("arrival %d from %s with delay %v, want %s and %v", i+1, got.Source, got.Delay, want.Source, want.Delay)
			}
			// The distance is no time of the engine's.
			if end := lines[ending](t, log, "end")[i]; *end.TTFT != 0.2 {
				t.Errorf("TTFT %d = %v, want 0.2", i+1, *end.TTFT)
			}
		}
	}, "--delay=127.0.2.0/24=80ms")
}

func FuzzDelays(f *testing.F) {
	f.Add("127.0.0.1=20ms,::1/64=1s")
	f.Add("127.0.0.1/33=1s")
	f.Add("=,a=b=c")
	f.Fuzz(func(t *testing.T, list string) {
		d := delays{}
		if d.add(list) != nil {
			return
		}
		for i, known := range d {
			if !known.source.IsValid() || known.roundTrip < 0 {
				t.Errorf("%q was read as %v", list, known)
			}
			if i > 0 && d[i-1].source.Bits() < known.source.Bits() {
				t.Errorf("%q: %v stands before %v", list, d[i-1], known)
			}
		}
	})
}

package deploy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/deploy/stage"
)

// peakMiB is the most memory that a process has had.
func peakMiB(t *testing.T, p *stage.Process) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	check(t, err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	check(t, err)
	return kib >> 10
}

// More bodies are announced at once than weir-extproc has room for: some are asked for
// and read, the others are told to come again before they are sent, and do not fail
// when they do.
func TestBodiesKeepToTheBudget(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{ExtProcFlags: []string{"--body-budget", "8"}})
	extproc := s.Process("extproc-main")
	before := peakMiB(t, extproc)
	body := fill(`{"pad":"%s",`+mine+`}`, 3<<20)
	begun := make([]wire, 24)
	for i := range begun {
		begun[i] = dial(t, s)
		begun[i].say(t, "POST /v1/chat/completions HTTP/1.1", "host: x", "content-type: application/json",
			fmt.Sprint("x-test-id: b", i), fmt.Sprint("content-length: ", len(body)), "", "")
	}
	whole := 0
	for i, w := range begun {
		_, _ = io.WriteString(w.Conn, body) // nobody may take it any more
		r := w.reply(t)
		if r.Status == 200 {
			whole++
			if got := engines.one(t, fmt.Sprint("b", i)); string(got.body) != body {
				t.Errorf("an engine read %d bytes of %d", len(got.body), len(body))
			}
			continue
		}
		p := mustRefuse(t, r, 503)
		if after, err := strconv.Atoi(r.Header.Get("retry-after")); err != nil || after < 1 || p.Error.Code != "front_end_busy" {
			t.Errorf("%v, retry-after %q; want the front-end to be busy for seconds", &r, r.Header.Get("retry-after"))
		}
	}
	t.Logf("%d of %d bodies were read; the memory rose from %d to %d MiB", whole, len(begun), before, peakMiB(t, extproc))
	if whole == 0 || whole == len(begun) {
		t.Errorf("%d of %d bodies were read, want some", whole, len(begun))
	}
	client := stage.NewClient()
	for i := range begun {
		if r := sendPlea(t, client, s, fmt.Sprint("again", i), plea{body: body}); !r.OK() {
			t.Errorf("one after the other: %v", &r)
		}
	}
}

// Clients that send much and never come to an end do not fill an Envoy: it refuses
// new requests in the clear, ends the largest, and serves again when they are gone.
func TestUploadsDoNotFillEnvoy(t *testing.T) {
	t.Parallel()
	const heap = 128 // MiB
	s, _ := startWitnesses(t, stage.Options{BootstrapFlags: []string{"--max-heap", strconv.Itoa(heap)}})
	envoy := s.Process("envoy-main")
	before := peakMiB(t, envoy)
	client := stage.NewClient()
	small := plea{body: `{` + mine + `}`}
	if r := sendPlea(t, client, s, "before", small); !r.OK() {
		t.Fatalf("before: %v", &r)
	}
	piece := strings.Repeat("w", 3<<20)
	var uploads []wire
	upload := func() {
		u := dial(t, s)
		check(t, u.SetWriteDeadline(time.Now().Add(time.Second)))
		// Once Envoy has had enough, nobody may take this.
		_, _ = io.WriteString(u.Conn, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 4000000\r\n\r\n"+piece)
		uploads = append(uploads, u)
	}
	eventually(t, "Envoy refuses", 30*time.Second, func() bool {
		upload()
		r := sendPlea(t, client, s, "full", small)
		if r.OK() {
			return false
		}
		if p := mustRefuse(t, r, 503); p.Error.Code != "front_end_busy" || r.Header.Get("retry-after") == "" {
			t.Errorf("a full Envoy says %v", &r)
		}
		return true
	})
	for range 10 {
		upload()
	}
	peak := peakMiB(t, envoy)
	t.Logf("%d uploads of 3 MiB: Envoy's memory rose from %d to %d MiB", len(uploads), before, peak)
	if peak > before+heap*3/2 { // it looks four times a second
		t.Errorf("its memory rose by %d MiB with a heap of %d", peak-before, heap)
	}
	for _, u := range uploads {
		u.Conn.Close()
	}
	eventually(t, "Envoy serves again", 10*time.Second, func() bool {
		r := sendPlea(t, client, s, "again", small)
		return r.OK()
	})
}

// More clients than an Envoy may have at once are turned away as they come, and those
// that are there are served.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 20
	s, _ := startWitnesses(t, stage.Options{BootstrapFlags: []string{"--max-connections", strconv.Itoa(most)}})
	var held []wire
	closed := func(w wire) bool {
		check(t, w.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err := w.Conn.Read(make([]byte, 1))
		return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	}
	eventually(t, "a connection is turned away", 10*time.Second, func() bool {
		w := dial(t, s)
		if closed(w) {
			return true
		}
		held = append(held, w)
		return false
	})
	if len(held) < most/2 || len(held) > most {
		t.Errorf("%d connections were held, want about %d", len(held), most)
	}
	last := held[len(held)-1]
	check(t, last.SetReadDeadline(time.Now().Add(10*time.Second)))
	last.say(t, "GET /v1/models HTTP/1.1", "host: x", "", "")
	if status := last.status(t); status != 200 {
		t.Errorf("one that is held gets %d", status)
	}
	for _, w := range held {
		w.Close()
	}
	eventually(t, "others are let in", 10*time.Second, func() bool { return !closed(dial(t, s)) })
}

package deploy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
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

// A hundred bodies of the largest size at once, for which weir-extproc has not the
// room: some are read, the others are told to come again, and its memory stays within
// a few times the budget.
func TestBodiesKeepToTheBudget(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{ExtProcFlags: []string{"--body-budget", "16"}})
	extproc := s.Process("extproc-main")
	before := peakMiB(t, extproc)
	client := stage.NewClient()
	body := fill(`{"pad":"%s",`+mine+`}`, 4<<20)
	var clients sync.WaitGroup
	replies := make([]stage.Reply, 100)
	for i := range replies {
		clients.Go(func() { replies[i] = sendPlea(t, client, s, fmt.Sprint("b", i), plea{body: body}) })
	}
	clients.Wait()
	whole, clear := 0, 0
	for i, r := range replies {
		if r.OK() {
			whole++
			if got := engines.one(t, fmt.Sprint("b", i)); string(got.body) != body {
				t.Errorf("an engine read %d bytes of %d", len(got.body), len(body))
			}
			continue
		}
		if r.Status == 0 {
			continue // it was refused while it still sent, and its connection closed on it
		}
		clear++
		mustRefuse(t, r, 503)
		if after, err := strconv.Atoi(r.Header.Get("retry-after")); err != nil || after < 1 {
			t.Errorf("a 503 says retry-after %q, want seconds", r.Header.Get("retry-after"))
		}
	}
	peak := peakMiB(t, extproc)
	t.Logf("%d of %d bodies were read; the memory rose from %d to %d MiB", whole, len(replies), before, peak)
	if clear == 0 {
		t.Error("nobody was refused in the clear")
	}
	if whole == 0 || whole == len(replies) {
		t.Errorf("%d of %d bodies were read, want some", whole, len(replies))
	}
	if peak-before > 6*16 {
		t.Errorf("the memory rose by %d MiB for a budget of 16", peak-before)
	}
	if r := sendPlea(t, client, s, "after", plea{body: body}); !r.OK() {
		t.Errorf("afterwards: %v", &r)
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

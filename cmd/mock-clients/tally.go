package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"weir/deploy/stage"
)

// tally counts what became of requests. Its last word is this, as JSON.
type tally struct {
	Name   string `json:"name"` // begins the names of conversations
	Sent   int    `json:"sent"`
	Whole  int    `json:"whole"` // answered, to the last byte
	Shed   int    `json:"shed"`  // 429
	Failed int    `json:"failed"`
	First  string `json:"firstFailure,omitempty"`

	mu    sync.Mutex // guards all: every client adds
	ttfts []time.Duration
}

func (t *tally) add(r *stage.Reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Sent++
	switch {
	case r.OK():
		t.Whole++
		t.ttfts = append(t.ttfts, r.TTFT)
	case r.Status == http.StatusTooManyRequests:
		t.Shed++
	default:
		t.Failed++
		if t.First == "" {
			t.First = r.String()
		}
	}
}

// tell prints a line now and then, with the times to the first token since the last one.
func (t *tally) tell(ctx context.Context, every time.Duration, out io.Writer) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fmt.Fprintln(out, t.line())
		}
	}
}

func (t *tally) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.ttfts)
	line := fmt.Sprintf("%d requests, %d shed, %d failed", t.Sent, t.Shed, t.Failed)
	if n := len(t.ttfts); n > 0 {
		line += fmt.Sprintf("; first token after %v in the middle, %v for one of twenty",
			t.ttfts[n/2].Round(time.Millisecond), t.ttfts[n*19/20].Round(time.Millisecond))
	}
	t.ttfts = t.ttfts[:0]
	return line
}

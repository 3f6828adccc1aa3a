package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"weir/deploy/demo"
)

// toldEvery is the time between two words on how far a simulation is.
const toldEvery = time.Second

// progress tells people how far simulations are.
type progress struct {
	out      io.Writer // nil: nobody is told
	terminal bool

	mu    sync.Mutex // guards what follows, for runs side by side
	total float64    // simulated seconds
	done  float64
	told  time.Time
	shown bool
}

func newProgress(out io.Writer, always bool) *progress {
	p := &progress{terminal: demo.IsTerminal(out)}
	if p.terminal || always {
		p.out = out
	}
	return p
}

func (p *progress) begin(total float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total, p.done, p.told = total, 0, time.Now()
}

// watch tells of one run, and ends it with its context.
func (p *progress) watch(ctx context.Context) func(seconds float64) error {
	last := 0.0
	return func(seconds float64) error {
		p.add(seconds - last)
		last = seconds
		return ctx.Err()
	}
}

func (p *progress) add(seconds float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += seconds
	now := time.Now()
	if p.out == nil || now.Sub(p.told) < toldEvery {
		return
	}
	p.told, p.shown = now, true
	text := fmt.Sprintf("simulated %.0f of %.0f s", min(p.done, p.total), p.total)
	if p.terminal {
		fmt.Fprintf(p.out, "\r%s\x1b[K", text)
		return
	}
	fmt.Fprintln(p.out, text)
}

// end clears the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown && p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	p.shown = false
}

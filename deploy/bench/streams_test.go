package bench

import (
	"bufio"
	"errors"
	"fmt"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"
)

// streams are many answers of many tokens at once.
type streams struct {
	n, tokens int
	gap       time.Duration // between two tokens of one
}

// streamed is what became of them.
type streamed struct {
	failed         []error
	messages       int // to ext_proc
	seconds        float64
	before, after  float64   // MiB resident of weir-extproc
	during         []float64 // the same, a second apart, all streams open
	envoy, extproc float64   // seconds of CPU
}

// measure first runs short streams beside another load, so that memory has grown to
// what so many streams need, and has been collected.
func (s streams) measure(b *bench, beside load) streamed {
	b.t.Helper()
	short := s
	short.tokens = min(s.tokens, 200)
	lines := b.way(wayWeirHeads).open(b.t, beside.size, closedLines)
	done := make(chan sent)
	go func() { done <- closed(lines, 1, time.Duration(short.tokens)*s.gap) }()
	check(b.t, summed(short.run(b).failed))
	check(b.t, summed((<-done).errs))
	return s.run(b)
}

// run opens all streams through Weir and reads them to their ends.
func (s streams) run(b *bench) (out streamed) {
	b.t.Helper()
	w := b.way(wayWeirBodies)
	ask := newText("/v1/chat/completions", small, fmt.Sprintf("%s: %d", askTokens, s.tokens), fmt.Sprintf("%s: %d", askGap, s.gap.Microseconds()))
	lines := make([]*line, s.n)
	for i := range lines {
		var err error
		lines[i], err = newLine(w.address, ask)
		check(b.t, err)
		defer lines[i].conn.Close()
	}
	sentBefore, cpu := b.stat(w, statMessages), w.used(b.t)
	out.before = residentMiB(b.t, w.extproc.PID())
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		out.failed = s.read(lines)
	}()
	out.during = s.watch(b.t, w, done)
	out.seconds = time.Since(began).Seconds()
	used := w.used(b.t)
	out.envoy, out.extproc = used.envoy-cpu.envoy, used.extproc-cpu.extproc
	eventually(b.t, "no request is open", 10*time.Second, func() bool { return b.stat(w, "http.weir.downstream_rq_active") == 0 })
	out.messages = b.stat(w, statMessages) - sentBefore
	out.after = residentMiB(b.t, w.extproc.PID())
	return out
}

const statMessages = "http.weir.ext_proc.stream_msgs_sent"

// watch looks at weir-extproc's memory each second from when all streams are open
// until the first ends.
func (s streams) watch(t *testing.T, w *way, done <-chan struct{}) (all []float64) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	end := time.After(time.Duration(s.tokens) * s.gap)
	for {
		select {
		case <-done:
			return all
		case <-end:
			<-done
			return all
		case <-tick.C:
			all = append(all, residentMiB(t, w.extproc.PID()))
		}
	}
}

// read asks on all lines and reads what comes.
func (s streams) read(lines []*line) (failed []error) {
	var mu sync.Mutex // guards failed
	var under sync.WaitGroup
	for i, l := range lines {
		under.Go(func() {
			if err := s.readOne(l, uint64(i)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Errorf("stream %d: %w", i, err))
			}
		})
	}
	under.Wait()
	return failed
}

// readOne holds that a stream is whole.
func (s streams) readOne(l *line, name uint64) error {
	patience := time.Minute + 2*time.Duration(s.tokens)*s.gap
	if err := l.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := l.send(name); err != nil {
		return err
	}
	h, err := readHead(l.r)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(h.first, "HTTP/1.1 200") {
		return errors.New(h.first)
	}
	tokens, last := 0, ""
	events := bufio.NewScanner(httputil.NewChunkedReader(l.r))
	for events.Scan() {
		if event := events.Bytes(); len(event) > 0 {
			tokens++
			last = string(event[:min(len(event), 12)])
		}
	}
	tokens -= 2 // the last events tell the usage, and that it is the end
	if tokens != s.tokens || last != "data: [DONE]" {
		return fmt.Errorf("%d of %d tokens, the last event %q: %w", tokens, s.tokens, last, events.Err())
	}
	return nil
}

package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// template is a request to send again and again, but for the twelve digits that name its
// conversation.
type template struct {
	head, body, tail []byte
	inHead, inTail   int // where the digits are
}

const digits = "000000000000"

// newText makes a chat of so many bytes: a system prompt and turns of a paragraph
// each, the model last, as openai-python writes it. The conversation's name is in its
// body, and in a header too where the path is of a class that needs no more.
func newText(path string, size int, more ...string) template {
	tail := `],"stream":false,"max_tokens":16,"prompt_cache_key":"conversation-` + digits + `","model":"bench"}`
	body := conversation(size - len(tail))
	lines := []string{
		"POST " + path + " HTTP/1.1", "host: api.example.org", "accept: application/json", "accept-encoding: gzip, deflate, br, zstd",
		"authorization: Bearer sk-0123456789abcdef0123456789abcdef", "content-type: application/json", "user-agent: OpenAI/Python 2.8.1",
		"x-stainless-arch: x64", "x-stainless-async: false", "x-stainless-lang: python", "x-stainless-os: Linux", "x-stainless-package-version: 2.8.1",
		"x-stainless-read-timeout: 600", "x-stainless-retry-count: 0", "x-stainless-runtime: CPython", "x-stainless-runtime-version: 3.13.7",
		fmt.Sprintf("content-length: %d", len(body)+len(tail)),
	}
	head := strings.Join(append(lines, more...), "\r\n") + "\r\n\r\n"
	return template{[]byte(head), []byte(body), []byte(tail), strings.Index(head, digits), strings.Index(tail, digits)}
}

// conversation is the beginning of a body, of exactly so many bytes.
func conversation(size int) string {
	const turn = 1500 // bytes
	const words = `The river rises in spring, and \"the weir\" holds its level;\nwhat is too much runs over it. `
	var b strings.Builder
	b.WriteString(`{"messages":[{"role":"system","content":"You are terse."}`)
	for role := "user"; b.Len() < size; {
		begin, end := `,{"role":"`+role+`","content":"`, `"}`
		left := size - b.Len() - len(begin) - len(end)
		n := min(left, turn)
		if left-n < turn/2 {
			n = left
		}
		said := strings.Repeat(words, max(0, n)/len(words))
		b.WriteString(begin + said + strings.Repeat("x", max(0, n-len(said))) + end)
		role = map[string]string{"user": "assistant", "assistant": "user"}[role]
	}
	return b.String()
}

// line is a connection of a client to an Envoy.
type line struct {
	conn       net.Conn
	r          *bufio.Reader
	text       template
	head, tail []byte // its own
}

func newLine(address string, t template) (*line, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &line{c, bufio.NewReaderSize(c, 16<<10), t, slices.Clone(t.head), slices.Clone(t.tail)}, nil
}

// send sends one request of a conversation.
func (l *line) send(name uint64) error {
	for i := range len(digits) {
		d := byte('0' + name%10)
		name /= 10
		l.tail[l.text.inTail+i] = d
		if l.text.inHead >= 0 {
			l.head[l.text.inHead+i] = d
		}
	}
	parts := net.Buffers{l.head, l.text.body, l.tail}
	_, err := parts.WriteTo(l.conn)
	return err
}

// ask sends a request and reads the answer.
func (l *line) ask(name uint64) error {
	if err := l.send(name); err != nil {
		return err
	}
	h, err := readHead(l.r)
	if err != nil {
		return err
	}
	body := make([]byte, min(h.length, 512))
	n, err := l.r.Read(body)
	if err != nil {
		return err
	}
	if _, err := l.r.Discard(h.length - n); err != nil {
		return err
	}
	if !strings.HasPrefix(h.first, "HTTP/1.1 200") {
		return fmt.Errorf("%s: %s", h.first, bytes.TrimSpace(body[:n]))
	}
	return nil
}

// sent is what became of a load's requests.
type sent struct {
	latencies []time.Duration
	errs      []error
}

func (s *sent) add(o sent) {
	s.latencies = append(s.latencies, o.latencies...)
	s.errs = append(s.errs, o.errs...)
}

// load is a load with bodies of one size.
type load struct {
	name string
	size int     // bytes
	rps  float64 // of an open loop; 0: a closed one
}

const (
	openLines   = 64 // more than are ever busy
	closedLines = 16
)

// run sends for a while.
func (l load) run(t *testing.T, w *way, seed uint64, during time.Duration) sent {
	t.Helper()
	if l.rps > 0 {
		return open(w.open(t, l.size, openLines), seed, during, l.rps)
	}
	return closed(w.open(t, l.size, closedLines), seed, during)
}

// together has each of the lines send, and sums up.
func together(lines []*line, work func(i int, l *line) sent) (all sent) {
	var mu sync.Mutex // guards all
	var under sync.WaitGroup
	for i, l := range lines {
		under.Go(func() {
			s := work(i, l)
			mu.Lock()
			defer mu.Unlock()
			all.add(s)
		})
	}
	under.Wait()
	return all
}

// closed sends the next request of a line when the last is answered.
func closed(lines []*line, seed uint64, during time.Duration) sent {
	end := time.Now().Add(during)
	return together(lines, func(i int, l *line) (s sent) {
		names := rand.New(rand.NewPCG(seed, uint64(i)))
		for now := time.Now(); now.Before(end); {
			if err := l.ask(names.Uint64()); err != nil {
				s.errs = append(s.errs, err)
				return s
			}
			then := now
			now = time.Now()
			s.latencies = append(s.latencies, now.Sub(then))
		}
		return s
	})
}

// open sends at the times of a Poisson process, whatever became of the requests
// before. A latency counts from the time at which the request was meant to be sent:
// what waits for a line, or for this program to wake, waits.
func open(lines []*line, seed uint64, during time.Duration, rps float64) sent {
	meant := make(chan time.Time, int(2*rps*during.Seconds())+100)
	go arrive(meant, seed, during, rps)
	return together(lines, func(i int, l *line) (s sent) {
		names := rand.New(rand.NewPCG(seed, uint64(i)))
		for next := range meant {
			if err := l.ask(names.Uint64()); err != nil {
				s.errs = append(s.errs, err)
				return s
			}
			s.latencies = append(s.latencies, time.Since(next))
		}
		return s
	})
}

// arrive tells the times of a Poisson process as they come.
func arrive(meant chan<- time.Time, seed uint64, during time.Duration, rps float64) {
	defer close(meant)
	rng := rand.New(rand.NewPCG(seed, 1))
	next := time.Now()
	for end := next.Add(during); ; {
		next = next.Add(time.Duration(rng.ExpFloat64() / rps * float64(time.Second)))
		if next.After(end) {
			return
		}
		<-time.After(time.Until(next))
		meant <- next
	}
}

// at returns a quantile, in milliseconds.
func at(latencies []time.Duration, q float64) float64 {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(latencies))
	i := min(len(sorted)-1, int(q*float64(len(sorted))))
	return sorted[i].Seconds() * 1e3
}

// Mock-clients are the clients of a fleet that has none: they hold conversations at
// front-ends, at a given rate and for a bounded time, and say what became of them.
// They never try again, so that what they count as failed did fail.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/deploy/stage"
)

// maxFor bounds a run: clients that nobody stops stop by themselves.
const maxFor = 24 * time.Hour

// target is a front-end and the rate of requests that it gets.
type target struct {
	name, url string
	rps       float64
}

type options struct {
	targets []target
	model   string
	length  time.Duration
	every   time.Duration // between two lines
	turns   int           // of a conversation
	think   time.Duration // mean time between an answer and the next turn
	prompt  int           // bytes of a conversation's system prompt
	stream  bool
	name    string // begins the names of conversations
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run sends until the time is over or ctx ends and returns the exit code: 0 when no
// request failed, 1 when one did or none was sent, 2 for wrong flags.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "mock-clients: %v\n", err)
		return 2
	}
	total := hold(ctx, o, stdout)
	if err := json.NewEncoder(stdout).Encode(total); err != nil || total.Failed > 0 || total.Sent == 0 {
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("mock-clients", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("to", "`NAME=URL=RPS` of a front-end; may come again", func(s string) error {
		t, err := parseTarget(s)
		o.targets = append(o.targets, t)
		return err
	})
	f.StringVar(&o.model, "model", "mock", "`name` of the model to ask for")
	f.DurationVar(&o.length, "for", 10*time.Minute, "`time` after which they stop, 24h at most")
	f.DurationVar(&o.every, "every", 10*time.Second, "`time` between two lines that say what became of requests")
	f.IntVar(&o.turns, "turns", 6, "requests of a conversation")
	f.DurationVar(&o.think, "think", 1500*time.Millisecond, "mean `time` between an answer and the next turn")
	f.IntVar(&o.prompt, "prompt", 4000, "`bytes` of a conversation's system prompt, about four a token")
	f.BoolVar(&o.stream, "stream", true, "ask for streams; false: for answers in one piece")
	f.StringVar(&o.name, "name", "", "beginning of the names of conversations (default: made up, so that no two runs have the same)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.name == "" {
		o.name = strconv.FormatUint(rand.Uint64(), 36)
	}
	return o, o.check(f.Args())
}

func parseTarget(s string) (target, error) {
	parts := strings.Split(s, "=")
	if len(parts) != 3 || parts[0] == "" || !strings.HasPrefix(parts[1], "http://") {
		return target{}, errors.New("want NAME=http://HOST:PORT=RPS")
	}
	rps, err := strconv.ParseFloat(parts[2], 64)
	if err != nil || !(rps > 0 && rps <= 10_000) {
		return target{}, errors.New("want a rate above 0 and up to 10000")
	}
	return target{parts[0], parts[1], rps}, nil
}

func (o *options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: there are flags only", rest[0])
	case len(o.targets) == 0:
		return errors.New("needs --to, once at least")
	case o.length <= 0 || o.length > maxFor:
		return fmt.Errorf("--for: want a time above 0 and up to %v", maxFor)
	case o.every <= 0 || o.turns < 1 || o.think < 0 || o.prompt < 0:
		return errors.New("--every and --turns want more than 0, --think and --prompt nothing negative")
	}
	return nil
}

// hold lets conversations begin at every front-end until the time is over, waits for
// the requests under way, and returns what became of all.
func hold(ctx context.Context, o options, out io.Writer) *tally {
	ctx, cancel := context.WithTimeout(ctx, o.length)
	defer cancel()
	total := &tally{Name: o.name}
	var clients sync.WaitGroup
	clients.Go(func() { total.tell(ctx, o.every, out) })
	for i, t := range o.targets {
		client := stage.NewClient()
		begin := func(n int) { o.talk(ctx, client, t, fmt.Sprintf("%s-%s-%d", o.name, t.name, n), total) }
		clients.Go(func() { stage.Arrive(ctx, t.rps/float64(o.turns), uint64(i), begin) })
	}
	clients.Wait()
	return total
}

// talk holds one conversation. One that is refused ends: its client will not wait.
func (o *options) talk(ctx context.Context, client *http.Client, t target, name string, total *tally) {
	for turn := range o.turns {
		r := stage.Do(context.WithoutCancel(ctx), client, stage.Call{
			URL: t.url, Body: o.body(name, turn), Headers: map[string]string{"x-test-id": fmt.Sprintf("%s/%d", name, turn)},
		})
		total.add(&r)
		if !r.OK() || !rest(ctx, o.think) {
			return
		}
	}
}

// body sends the whole conversation again, as clients do. Nothing but its text names
// it.
func (o *options) body(name string, turn int) []byte {
	const words = " Be terse."
	messages := []map[string]string{
		{"role": "system", "content": "Conversation " + name + "." + strings.Repeat(words, o.prompt/len(words))},
		{"role": "user", "content": "hello, I am " + name},
	}
	for i := range turn {
		messages = append(messages,
			map[string]string{"role": "assistant", "content": fmt.Sprint("answer ", i)},
			map[string]string{"role": "user", "content": fmt.Sprint("and then ", i)})
	}
	body := map[string]any{"model": o.model, "messages": messages, "max_tokens": 4, "stream": o.stream}
	if o.stream {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic("mock-clients: " + err.Error()) // strings always marshal
	}
	return text
}

// rest is the time between an answer and the next turn; false means that all is over.
func rest(ctx context.Context, think time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(rand.ExpFloat64() * float64(think))):
		return true
	}
}

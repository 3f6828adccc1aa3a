package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	listen     string
	name       string   // of the engine in its log; its address when empty
	models     []string // served names; the first labels the metrics
	profile    profile
	window     time.Duration // over which the utilisation is measured
	slots      int           // requests that run at once; more wait
	kvTokens   int           // size of the KV cache in tokens
	block      int           // tokens of a block of the KV cache
	maxOutput  int           // cap of the output tokens of one request
	answer     int           // tokens after which an answer ends by itself; 0: it uses up what it is allowed
	jitter     float64       // every wait is multiplied by 1 ± jitter
	holdHeader bool          // send the response headers with the first token
	log        string        // file of the journal; none when empty
	logHeaders []string      // request headers whose values the journal keeps
	seed       uint64
	loadTime   time.Duration // from the start until the engine is ready
	faults     *faults       // that it starts with
	delays     delays
	ready      bool // ask another engine instead of serving
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	o := options{faults: well()}
	var models, headers string
	f := flag.NewFlagSet("mock-engine", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, manual)
		f.PrintDefaults()
	}
	f.StringVar(&o.listen, "listen", "127.0.0.1:8000", "`address` to serve on; port 0 picks a free one")
	f.StringVar(&o.name, "name", "", "`name` of the engine in its log (default: its address)")
	f.StringVar(&models, "models", "mock", "comma-separated `names` of the models served")
	o.profile.flags(f)
	f.DurationVar(&o.window, "window", 5*time.Second, "time constant of the measured utilisation")
	f.IntVar(&o.slots, "slots", 256, "requests that run at once; more wait in a queue")
	f.IntVar(&o.kvTokens, "kv-tokens", 500_000, "size of the KV cache in tokens")
	f.IntVar(&o.block, "block-size", 16, "`tokens` of a block of the KV cache; prompts share whole blocks")
	f.IntVar(&o.maxOutput, "max-output", 4096, "most output tokens of one request")
	f.IntVar(&o.answer, "answer", 0, "`tokens` after which an answer ends by itself (0: it is as long as the request allows)")
	f.Float64Var(&o.jitter, "jitter", 0, "spread of every wait, 0 to 1: it is multiplied by 1 ± jitter")
	f.BoolVar(&o.holdHeader, "hold-headers", false, "hold a response's headers until its first token")
	f.StringVar(&o.log, "log", "", "append two JSON lines per request to `file`")
	f.StringVar(&headers, "log-headers", "x-session-id,x-conversation-id,x-request-id,x-test-id",
		"comma-separated request `headers` whose values are logged")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the made-up text, jitter and injected errors")
	f.DurationVar(&o.loadTime, "load-time", 0, "time after the start in which everything is answered 503")
	f.Func("faults", "faults to start with, as `JSON`; see PUT /faults", func(s string) (err error) {
		o.faults, err = readFaults(strings.NewReader(s))
		return err
	})
	f.Func("delay", "`SOURCE=TIME`, comma-separated or repeated: round trip to clients of an IP address or CIDR", o.delays.add)
	f.BoolVar(&o.ready, "ready", false, "do not serve, but ask the engine at --listen whether it is ready: exit code 0 or 1; for health checks")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: there are flags only", f.Arg(0))
	}
	o.models = splitList(models)
	o.logHeaders = splitList(strings.ToLower(headers))
	return o, o.validate()
}

func splitList(s string) []string {
	names := strings.Split(s, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == "" })
}

func (o *options) validate() error {
	var errs []error
	check := func(ok bool, flag, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s: want %s", flag, want))
		}
	}
	check(len(o.models) > 0, "models", "at least one name")
	check(o.window > 0, "window", "a time above 0")
	check(o.slots > 0, "slots", "a number above 0")
	check(o.kvTokens > 0, "kv-tokens", "a number above 0")
	check(o.block > 0, "block-size", "a number above 0")
	check(o.maxOutput > 0, "max-output", "a number above 0")
	check(o.answer >= 0, "answer", "no negative number")
	check(o.jitter >= 0 && o.jitter <= 1, "jitter", "a number from 0 to 1")
	check(o.loadTime >= 0, "load-time", "no negative time")
	o.profile.validate(check)
	return errors.Join(errs...)
}

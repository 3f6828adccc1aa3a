package scrape_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"weir/deploy/figures"
	"weir/fleet"
	"weir/signals"
	"weir/signals/scrape"
)

// Variables of the environment by which make bench-signals speaks to the test, and
// the test to the process that plays the engines, so that its work is not counted
// as the scraper's.
const (
	benchVariable   = "BENCH_FOR"
	enginesVariable = "WEIR_BENCH_ENGINES"
)

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(enginesVariable)); err == nil {
		playEngines(n)
		return
	}
	os.Exit(m.Run())
}

// TestBenchSignals measures what scraping a large and a small fleet costs.
func TestBenchSignals(t *testing.T) {
	path := os.Getenv(figures.Variable)
	if path == "" {
		t.Skip("a measurement, run by make bench-signals")
	}
	duration := 30 * time.Second
	if text := os.Getenv(benchVariable); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", benchVariable, err)
		}
	}
	few := measure(t, 100, min(duration, 20*time.Second)) // first, before memory has grown
	many := measure(t, 2000, duration)
	r := figures.Report{Target: "bench-signals"}
	r.AtMost("2,000 engines: CPU", many.cores, "cores", 0.5)
	r.AtMost("2,000 engines: growth of resident memory", many.growthPercent, "%", 10)
	r.AtMost("2,000 engines: scrapes that failed", many.failed, "scrapes", 0)
	r.AtLeast("2,000 engines: scrapes of each", many.rate, "1/s", 0.95)
	r.Tell("2,000 engines: memory resident", many.residentMiB, "MiB")
	r.Tell("2,000 engines: measured for", many.seconds, "s")
	r.AtMost("100 idle engines: CPU", few.cores, "cores", 0.02)
	r.AtLeast("100 idle engines: scrapes of each", few.rate, "1/s", 0.95)
	t.Log("\n" + r.String())
	if err := figures.Write(path, &r); err != nil {
		t.Fatal(err)
	}
}

type cost struct {
	seconds, cores, rate, failed, growthPercent, residentMiB float64
}

// measure scrapes so many engines for a while, after some seconds to warm up.
func measure(t *testing.T, engines int, duration time.Duration) cost {
	t.Helper()
	f := fleetOf(fleet.Pool{ID: "p", EngineType: "vllm", Engines: startEngines(t, engines)})
	var known atomic.Uint64
	s := scrape.New(zap.NewNop(), f, signals.NewEngineClient, func(x scrape.Sample) {
		if x.Values.TTFT.Known() {
			known.Add(1)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	<-time.After(10 * time.Second)
	reads, cpu, began := known.Load(), cpuSeconds(), time.Now()
	memory := watchMemory(duration)
	seconds := time.Since(began).Seconds()
	return cost{
		seconds:       seconds,
		cores:         (cpuSeconds() - cpu) / seconds,
		rate:          float64(known.Load()-reads) / seconds / float64(engines),
		failed:        float64(s.Counters.Timeout.Load() + s.Counters.Unreachable.Load() + s.Counters.Status.Load() + s.Counters.Unrecognised.Load()),
		growthPercent: growth(memory),
		residentMiB:   memory[len(memory)-1],
	}
}

// watchMemory looks at the resident memory once a second, in MiB.
func watchMemory(duration time.Duration) (all []float64) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	end := time.After(duration)
	for {
		select {
		case <-tick.C:
			all = append(all, residentMiB())
		case <-end:
			return append(all, residentMiB())
		}
	}
}

// growth is by how many percent the last third is above the first third, in the
// mean.
func growth(all []float64) float64 {
	third := (len(all) + 2) / 3
	first, last := 0.0, 0.0
	for i := range third {
		first += all[i]
		last += all[len(all)-1-i]
	}
	return 100 * (last/first - 1)
}

func residentMiB() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident float64
	_, _ = fmt.Sscan(string(text), &size, &resident)
	return resident * float64(os.Getpagesize()) / (1 << 20)
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// startEngines starts a process that plays engines, and ends it with the test.
func startEngines(t *testing.T, n int) []fleet.EngineID {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", enginesVariable, n))
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = c.Wait() })
	var ids []fleet.EngineID
	lines := bufio.NewScanner(stdout)
	for len(ids) < n && lines.Scan() {
		ids = append(ids, fleet.EngineID(lines.Text()))
	}
	if len(ids) < n {
		t.Fatalf("%d of %d engines started", len(ids), n)
	}
	return ids
}

// playEngines serves pages as long as vLLM's at n addresses, which it prints,
// until its input ends.
func playEngines(n int) {
	page := []byte(vllmPage())
	serve := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(page)))
		_, _ = w.Write(page)
	}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		go func() { _ = http.Serve(l, http.HandlerFunc(serve)) }()
		fmt.Println(l.Addr())
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// vllmPage is a page of an idle engine, with as many lines and bytes as vLLM's.
func vllmPage() string {
	var b strings.Builder
	const labels = `engine="0",model_name="acme/tern-7b-instruct"`
	for _, name := range strings.Fields("num_requests_running num_requests_waiting kv_cache_usage_perc prompt_tokens_total generation_tokens_total") {
		fmt.Fprintf(&b, "# HELP vllm:%s What it says.\n# TYPE vllm:%s gauge\nvllm:%s{%s} 0.0\n", name, name, name, labels)
	}
	for _, name := range strings.Fields("time_to_first_token_seconds inter_token_latency_seconds e2e_request_latency_seconds " +
		"request_queue_time_seconds request_inference_time_seconds request_prefill_time_seconds request_decode_time_seconds " +
		"request_prompt_tokens request_generation_tokens request_params_n request_params_max_tokens iteration_tokens") {
		fmt.Fprintf(&b, "# HELP vllm:%s Histogram of what it says.\n# TYPE vllm:%s histogram\n", name, name)
		for bound := range 28 {
			fmt.Fprintf(&b, "vllm:%s_bucket{%s,le=\"%d.5\"} 0.0\n", name, labels, bound)
		}
		fmt.Fprintf(&b, "vllm:%s_bucket{%s,le=\"+Inf\"} 0.0\nvllm:%s_count{%s} 0.0\nvllm:%s_sum{%s} 0.0\n", name, labels, name, labels, name, labels)
		fmt.Fprintf(&b, "# TYPE vllm:%s_created gauge\nvllm:%s_created{%s} 1.795952853807315e+09\n", name, name, labels)
	}
	for i := range 40 {
		fmt.Fprintf(&b, "# HELP vllm:other_%d_total Something else that it counts, with a word on it.\n# TYPE vllm:other_%d_total counter\nvllm:other_%d_total{%s} 0.0\n", i, i, i, labels)
	}
	return b.String()
}

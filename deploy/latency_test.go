package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"weir/deploy/stage"
	"weir/fleet"
)

const (
	knownTTFT = 300 * time.Millisecond
	knownTBT  = 20 * time.Millisecond
	slowAfter = 3 * time.Second
)

// startLatency stages engines whose times are known, spread by half where asked.
func startLatency(t *testing.T, flags ...string) *stage.Stage {
	t.Helper()
	return start(t, stage.Options{
		FleetFile:    "testdata/latency.yaml",
		ExtProcFlags: []string{"--slow-after", slowAfter.String()},
		EngineFlags: func(p fleet.PoolID) []string {
			own := append([]string{"--tbt", knownTBT.String()}, flags...)
			if p != "early" {
				own = append(own, "--hold-headers")
			}
			return own
		},
	})
}

// ask is a chat with an answer of so many tokens.
func ask(s *stage.Stage, model, name string, stream bool, tokens int) stage.Call {
	body := map[string]any{
		"model": model, "messages": []any{map[string]string{"role": "user", "content": name}},
		"max_tokens": tokens, "stream": stream,
	}
	if stream {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // plain values always marshal
	}
	return stage.Call{URL: s.URL("home"), Body: text, Headers: map[string]string{"x-test-id": name}}
}

// measures are the metrics of a weir-extproc.
type measures map[string]*dto.MetricFamily

func measuresOf(t *testing.T, s *stage.Stage) measures { return measuresAt(t, s, "home") }

func measuresAt(t *testing.T, s *stage.Stage, id fleet.FrontEndID) measures {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page(t, s.AdminAddress("extproc-"+string(id)), "/metrics")))
	check(t, err)
	return families
}

// of returns the metric with those values of labels, or one of nothing.
func (m measures) of(name string, values ...string) *dto.Metric {
	for _, one := range m[name].GetMetric() {
		var has []string
		for _, l := range one.GetLabel() {
			has = append(has, l.GetValue())
		}
		if !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(has, v) }) {
			return one
		}
	}
	return &dto.Metric{}
}

func (m measures) ttft(pool string) *dto.Histogram {
	return m.of("weir_extproc_time_to_first_token_seconds", pool).GetHistogram()
}

func (m measures) tbt(pool string) *dto.Histogram {
	return m.of("weir_extproc_time_between_tokens_seconds", pool).GetHistogram()
}

// attempts counts those of a pool by outcome.
func (m measures) attempts(pool string) map[string]int {
	all := map[string]int{}
	for _, one := range m["weir_extproc_attempts_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range one.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["pool"] == pool {
			all[labels["outcome"]] += int(one.GetCounter().GetValue())
		}
	}
	return all
}

func meanOf(h *dto.Histogram) float64 { return h.GetSampleSum() / float64(h.GetSampleCount()) }

// binAt returns the bounds of the bin that holds a quantile.
func binAt(h *dto.Histogram, q float64) (above, upTo float64) {
	rank := math.Ceil(q * float64(h.GetSampleCount()))
	for _, b := range h.GetBucket() {
		if float64(b.GetCumulativeCount()) >= rank {
			return above, b.GetUpperBound()
		}
		above = b.GetUpperBound()
	}
	return above, math.Inf(1)
}

// seen is what clients saw of streams, in seconds.
type seen struct{ ttft, tbt []float64 }

// sendStreams sends streams by eight clients at once.
func sendStreams(t *testing.T, s *stage.Stage, model string, n, tokens int) (all seen) {
	t.Helper()
	client := stage.NewClient()
	var mu sync.Mutex // guards all
	var under sync.WaitGroup
	next := make(chan int)
	for range 8 {
		under.Go(func() {
			for i := range next {
				r := stage.Do(t.Context(), client, ask(s, model, fmt.Sprint(model, i), true, tokens))
				if !r.OK() {
					t.Errorf("request %d: %v", i, &r)
				}
				mu.Lock()
				all.ttft = append(all.ttft, r.TTFT.Seconds())
				all.tbt = append(all.tbt, (r.Took-r.TTFT).Seconds()/float64(tokens-1))
				mu.Unlock()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	under.Wait()
	return all
}

// What weir-extproc measures is what clients see, whether engines send their
// headers at once or with the first token.
func TestLatenciesAreThoseThatClientsSee(t *testing.T) {
	t.Parallel()
	s := startLatency(t, "--jitter", "0.5")
	const n, tokens = 120, 16
	for _, pool := range []string{"early", "late"} {
		t.Run(pool, func(t *testing.T) {
			clients := sendStreams(t, s, "model-"+pool, n, tokens)
			var m measures
			eventually(t, "all streams are measured", 5*time.Second, func() bool {
				m = measuresOf(t, s)
				return m.tbt(pool).GetSampleCount() >= n
			})
			like(t, "TTFT", m.ttft(pool), clients.ttft)
			like(t, "TBT", m.tbt(pool), clients.tbt)
			if got := m.attempts(pool); got["answered"] != n {
				t.Errorf("attempts %v, want %d answered", got, n)
			}
			if got := m.of("weir_extproc_output_tokens_total", pool).GetCounter().GetValue(); got != n*tokens {
				t.Errorf("%v output tokens, want %d", got, n*tokens)
			}
			if got := m.of("weir_extproc_requests_with_estimated_tokens_total", pool).GetCounter().GetValue(); got != 0 {
				t.Errorf("tokens of %v requests are estimated, though all answers say them", got)
			}
		})
	}
}

func like(t *testing.T, what string, got *dto.Histogram, want []float64) {
	t.Helper()
	slices.Sort(want)
	sum := 0.0
	for _, x := range want {
		sum += x
	}
	mean, p95 := sum/float64(len(want)), want[int(math.Ceil(0.95*float64(len(want))))-1]
	above, upTo := binAt(got, 0.95)
	t.Logf("%s: mean %.4f s, clients saw %.4f s; p95 in %.4f to %.4f s, clients saw %.4f s", what, meanOf(got), mean, above, upTo, p95)
	if got.GetSampleCount() != uint64(len(want)) {
		t.Errorf("%d samples of %s, want %d", got.GetSampleCount(), what, len(want))
	}
	if off := meanOf(got)/mean - 1; math.Abs(off) > 0.05 {
		t.Errorf("%s: the mean is off by %.1f %%", what, 100*off)
	}
	bin := fleet.BinBound(1) / fleet.BinBound(0)
	if p95 < above/bin || p95 > upTo*bin {
		t.Errorf("%s: p95 is in %.4f to %.4f s, clients saw %.4f s", what, above, upTo, p95)
	}
}

// A stream is measured while it goes on.
func TestTTFTIsReportedBeforeTheStreamEnds(t *testing.T) {
	t.Parallel()
	s := startLatency(t)
	for _, pool := range []string{"early", "late"} {
		t.Run(pool, func(t *testing.T) {
			t.Parallel()
			ended := make(chan stage.Reply, 1)
			began := time.Now()
			go func() { ended <- stage.Do(t.Context(), stage.NewClient(), ask(s, "model-"+pool, "long", true, 300)) }()
			var m measures
			eventually(t, "the first token is reported", knownTTFT+2500*time.Millisecond, func() bool {
				m = measuresOf(t, s)
				return m.ttft(pool).GetSampleCount() == 1
			})
			t.Logf("reported %v after the first token", (time.Since(began) - knownTTFT).Round(time.Millisecond))
			select {
			case r := <-ended:
				t.Fatalf("the stream had ended: %v", &r)
			default:
			}
			if got := meanOf(m.ttft(pool)); math.Abs(got/knownTTFT.Seconds()-1) > 0.05 {
				t.Errorf("TTFT %v s, want %v", got, knownTTFT)
			}
			if r := <-ended; !r.OK() {
				t.Fatal(&r)
			}
			eventually(t, "the stream's end is measured", 5*time.Second, func() bool {
				m = measuresOf(t, s)
				return m.tbt(pool).GetSampleCount() == 1
			})
			if got := m.ttft(pool).GetSampleCount(); got != 1 {
				t.Errorf("the stream's TTFT counts %d times", got)
			}
		})
	}
}

// An engine that hangs shows as slow when its time is up, and its attempts count
// once.
func TestAHungEngineIsSlow(t *testing.T) {
	t.Parallel()
	s := startLatency(t)
	for _, pool := range []fleet.PoolID{"early", "late"} {
		t.Run(string(pool), func(t *testing.T) {
			for _, e := range s.Fleet.Pool(pool).Engines {
				setFaults(t, e, `{"hang": true}`)
			}
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan stage.Reply, 1)
			began := time.Now()
			go func() { left <- stage.Do(ctx, stage.NewClient(), ask(s, "model-"+string(pool), "hung", true, 8)) }()
			eventually(t, "the attempt is slow", slowAfter+2*time.Second, func() bool {
				return measuresOf(t, s).attempts(string(pool))["slow"] == 1
			})
			if took := time.Since(began); took < slowAfter {
				t.Errorf("slow after %v, the limit is %v", took, slowAfter)
			}
			leave()
			<-left
			flushLog(t, s)
			m := measuresOf(t, s)
			if got := m.attempts(string(pool)); got["slow"] != 1 || len(got) != 1 {
				t.Errorf("attempts %v, want the slow one alone", got)
			}
			if got := meanOf(m.ttft(string(pool))); got < slowAfter.Seconds() || got > slowAfter.Seconds()+2 {
				t.Errorf("its TTFT counts as %v s, want what was waited", got)
			}
		})
	}
}

// flushLog waits until the log is heard of up to here: entries come in order.
func flushLog(t *testing.T, s *stage.Stage) {
	t.Helper()
	const noEngine = "weir_extproc_log_entries_elsewhere_total"
	before := measuresOf(t, s).of(noEngine).GetCounter().GetValue()
	r := stage.Do(t.Context(), stage.NewClient(), stage.Call{URL: s.URL("home"), Body: []byte(`{"model":"nobody's"}`)})
	if r.Status != 404 {
		t.Errorf("a request of no class: %v", &r)
	}
	eventually(t, "the log is heard of", 5*time.Second, func() bool {
		return measuresOf(t, s).of(noEngine).GetCounter().GetValue() > before
	})
}

// The time of a retry is that of the engine that answered; the failure is that of
// the one that failed.
func TestRetriesAreAttributed(t *testing.T) {
	t.Parallel()
	s := startLatency(t)
	pools := []fleet.PoolID{"one", "two"}
	for _, p := range pools {
		setFaults(t, s.Fleet.Pool(p).Engines[0], `{"hang": true}`)
	}
	answered := make(chan stage.Reply, 1)
	go func() { answered <- stage.Do(t.Context(), stage.NewClient(), ask(s, "model-both", "retried", true, 8)) }()
	var first fleet.PoolID
	eventually(t, "an engine has the request", 10*time.Second, func() bool {
		for _, a := range arrivals(t, s) {
			if a.Headers["x-test-id"] == "retried" {
				first = a.Pool
			}
		}
		return first != ""
	})
	second := pools[1-slices.Index(pools, first)]
	setFaults(t, s.Fleet.Pool(second).Engines[0], `{}`)
	held := time.NewTimer(1500 * time.Millisecond) // what must not count against the second
	<-held.C
	check(t, s.Process("engine-"+string(s.Fleet.Pool(first).Engines[0])).Kill())
	if r := <-answered; !r.OK() || r.TTFT < time.Second {
		t.Fatal(&r, r.TTFT)
	}
	var m measures
	eventually(t, "the answer is measured", 5*time.Second, func() bool {
		m = measuresOf(t, s)
		return m.tbt(string(second)).GetSampleCount() == 1
	})
	if got := m.attempts(string(first)); got["reset"] != 1 || got["answered"] != 0 {
		t.Errorf("attempts at the engine that died: %v, want a reset", got)
	}
	if got := m.attempts(string(second)); got["answered"] != 1 || len(got) != 1 {
		t.Errorf("attempts at the engine that answered: %v", got)
	}
	if got := meanOf(m.ttft(string(second))); math.Abs(got/knownTTFT.Seconds()-1) > 0.05 {
		t.Errorf("TTFT of the engine that answered: %v s, want %v", got, knownTTFT)
	}
	if got := m.ttft(string(first)).GetSampleCount(); got != 0 {
		t.Errorf("%d TTFT of the engine that died", got)
	}
}

// Each way in which an attempt can end is told from the others, and every attempt
// that Envoy made counts once.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	s := startLatency(t)
	engines := s.Fleet.Pool("early").Engines
	both := func(faults string) func(*testing.T) {
		return func(t *testing.T) {
			for _, e := range engines {
				setFaults(t, e, faults)
			}
		}
	}
	tests := []struct {
		name, outcome string
		prepare       func(*testing.T)
		tokens        int
		timeout       time.Duration
	}{
		{"well", "answered", both(`{}`), 4, 0},
		{"a bad request", "client_error", both(`{}`), 0, 0},
		{"full", "busy", both(`{"busyAbove": 0}`), 4, 0},
		{"unavailable", "busy", both(`{"errorRate": 1, "errorStatus": 503}`), 4, 0},
		{"failing", "server_error", both(`{"errorRate": 1}`), 4, 0},
		{"cutting", "truncated", both(`{"cutAfter": 2}`), 4, 0},
		{"refusing", "reset", both(`{"refuse": true}`), 4, 0},
		{"left", "aborted", both(`{}`), 100, knownTTFT + 200*time.Millisecond},
		{"left early", "aborted", both(`{}`), 100, knownTTFT / 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.prepare(t)
			before := measuresOf(t, s).attempts("early")
			call := ask(s, "model-early", tt.name, true, tt.tokens)
			call.Timeout = tt.timeout
			stage.Do(t.Context(), stage.NewClient(), call)
			var after map[string]int
			eventually(t, "the attempts are counted", 5*time.Second, func() bool {
				after = measuresOf(t, s).attempts("early")
				n, err := s.Stat(t.Context(), "home", "cluster.early.upstream_rq_total")
				check(t, err)
				return total(after) >= n && total(after) > total(before)
			})
			for outcome, n := range after {
				if n != before[outcome] && outcome != tt.outcome {
					t.Errorf("%d attempts are %s, want only %s", n-before[outcome], outcome, tt.outcome)
				}
			}
			if after[tt.outcome] == before[tt.outcome] {
				t.Errorf("no attempt is %s: %v", tt.outcome, after)
			}
		})
	}
	made, err := s.Stat(t.Context(), "home", "cluster.early.upstream_rq_total")
	check(t, err)
	counted := measuresOf(t, s).attempts("early")
	if total(counted) != made {
		t.Errorf("%d attempts are counted, Envoy made %d: %v", total(counted), made, counted)
	}
	both(`{}`)(t)
	for _, e := range engines {
		check(t, s.Process("engine-"+string(e)).Kill())
	}
	stage.Do(t.Context(), stage.NewClient(), ask(s, "model-early", "dead", true, 4))
	eventually(t, "the dead engines are seen", 5*time.Second, func() bool {
		return measuresOf(t, s).attempts("early")["refused"] >= 1
	})
}

func total(attempts map[string]int) (n int) {
	for _, each := range attempts {
		n += each
	}
	return n
}

// Answers in one piece have no TTFT, and their tokens are estimated.
func TestWholeAnswersHaveNoTTFT(t *testing.T) {
	t.Parallel()
	s := startLatency(t)
	r := stage.Do(t.Context(), stage.NewClient(), ask(s, "model-late", "whole", false, 8))
	if !r.OK() {
		t.Fatal(&r)
	}
	var m measures
	eventually(t, "the answer is measured", 5*time.Second, func() bool {
		m = measuresOf(t, s)
		return m.of("weir_extproc_requests_with_estimated_tokens_total", "late").GetCounter().GetValue() == 1
	})
	if ttft, tbt := m.ttft("late").GetSampleCount(), m.tbt("late").GetSampleCount(); ttft+tbt != 0 {
		t.Errorf("%d TTFT and %d TBT of an answer in one piece", ttft, tbt)
	}
	if got := m.attempts("late"); got["answered"] != 1 {
		t.Errorf("attempts %v, want an answered one", got)
	}
}

// Without a receiver for its log Envoy serves as before, and a new one hears of
// what follows.
func TestNobodyReceivesTheLog(t *testing.T) {
	t.Parallel()
	s := startLatency(t)
	extproc := s.Process("extproc-home")
	sendStreams(t, s, "model-early", 16, 4)
	check(t, extproc.Kill())
	check(t, s.Await(t.Context(), "home", false))
	if clients := sendStreams(t, s, "model-early", 32, 4); len(clients.ttft) != 32 {
		t.Errorf("%d requests ended, want 32", len(clients.ttft))
	}
	check(t, extproc.Start())
	check(t, s.Await(t.Context(), "home", true))
	sendStreams(t, s, "model-early", 16, 4)
	eventually(t, "the new receiver hears", 10*time.Second, func() bool {
		return measuresOf(t, s).ttft("early").GetSampleCount() > 0
	})
}

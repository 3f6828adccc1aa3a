package bench

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"weir/deploy/figures"
)

// plan is what is measured, and how long.
type plan struct {
	rounds     int
	warm, slot time.Duration // of one way under one load, in each round
	idle       time.Duration
	loads      []load
	streams    streams
}

// Sizes of bodies, in bytes.
const (
	small  = 400
	medium = 64 << 10
	large  = 1 << 20
)

// TestBenchPath measures. It holds its bars where nothing else runs on the machine.
func TestBenchPath(t *testing.T) {
	path := os.Getenv(figures.Variable)
	if path == "" {
		t.Skip("a measurement, run by make bench-path")
	}
	r := begin(t).measure(plan{
		rounds: 9, warm: 200 * time.Millisecond, slot: 800 * time.Millisecond, idle: 15 * time.Second,
		loads: []load{
			{"closed loop of 16, 400 B", small, 0},
			{"open loop of 300/s, 400 B", small, 300},
			{"closed loop of 16, 64 KiB", medium, 0},
			{"open loop of 300/s, 64 KiB", medium, 300},
			{"closed loop of 16, 1 MiB", large, 0},
			{"open loop of 60/s, 1 MiB", large, 60}, // of 300 no two cores get through
		},
		streams: streams{n: 1000, tokens: 2000, gap: 50 * time.Millisecond},
	})
	f := r.figures()
	fmt.Println(f)
	check(t, figures.Write(path, f))
}

// The same in a few seconds. What it says of time is chance, but every request is
// answered, by the way that it should take.
func TestBenchPathInShort(t *testing.T) {
	t.Parallel()
	r := begin(t).measure(plan{
		rounds: 1, warm: 50 * time.Millisecond, slot: 200 * time.Millisecond, idle: 200 * time.Millisecond,
		loads:   []load{{"closed", small, 0}, {"open", medium, 100}},
		streams: streams{n: 20, tokens: 60, gap: 20 * time.Millisecond},
	})
	if len(r.streams.failed) > 0 || r.streams.messages != 2*r.plan.streams.n {
		t.Errorf("streams: %v, %d messages to ext_proc for %d", r.streams.failed, r.streams.messages, r.plan.streams.n)
	}
	t.Logf("\n%v", r.figures())
}

// cell is what was measured of one way under one load.
type cell struct {
	load load
	way  string
	p50  []float64 // ms, of each round
	sent sent
	used use
}

// p50Over is the median over the rounds of how many times another's median latency
// this one's is.
func (c *cell) p50Over(other *cell) float64 {
	ratios := make([]float64, len(c.p50))
	for i := range ratios {
		ratios[i] = c.p50[i] / other.p50[i]
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// result is all that was measured.
type result struct {
	plan    plan
	idle    float64 // cores
	streams streamed
	cells   []*cell
}

func (r *result) cell(l load, way string) *cell {
	i := slices.IndexFunc(r.cells, func(c *cell) bool { return c.load == l && c.way == way })
	return r.cells[i]
}

// measure runs the plan. Ways take turns within each load and round, and each round
// begins with another, so that noise of the machine hits all alike.
func (b *bench) measure(p plan) *result {
	b.t.Helper()
	r := &result{plan: p, idle: b.idle(p.idle)}
	r.streams = p.streams.measure(b, p.loads[0])
	for _, l := range p.loads {
		for _, w := range b.ways {
			r.cells = append(r.cells, &cell{load: l, way: w.name})
		}
	}
	for round := range p.rounds {
		for _, l := range p.loads {
			for i := range b.ways {
				w := b.ways[(i+round)%len(b.ways)]
				b.slot(r.cell(l, w.name), p, w, uint64(round))
			}
		}
	}
	return r
}

// slot measures one way under one load for a while, and holds that each request
// cost the messages that it should.
func (b *bench) slot(c *cell, p plan, w *way, seed uint64) {
	b.t.Helper()
	messages := b.stat(w, statMessages)
	warm := c.load.run(b.t, w, seed+1000, p.warm)
	before := w.used(b.t)
	s := c.load.run(b.t, w, seed, p.slot)
	after := w.used(b.t)
	if err := summed(append(warm.errs, s.errs...)); err != nil {
		b.t.Fatalf("%s, %s: %v", c.load.name, w.name, err)
	}
	asked := len(warm.latencies) + len(s.latencies)
	if got := b.stat(w, statMessages) - messages; got != w.messages*asked {
		b.t.Errorf("%s, %s: %d messages to ext_proc for %d requests, want %d each", c.load.name, w.name, got, asked, w.messages)
	}
	c.p50 = append(c.p50, at(s.latencies, 0.5))
	c.sent.add(s)
	c.used.envoy += after.envoy - before.envoy
	c.used.extproc += after.extproc - before.extproc
}

// summed words some errors as one.
func summed(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d failed, the first: %w", len(errs), errs[0])
}

// idle is what weir-extproc uses while nothing is asked, in cores.
func (b *bench) idle(during time.Duration) float64 {
	b.t.Helper()
	pid := b.way(wayWeirHeads).extproc.PID()
	before, began := cpuSeconds(b.t, pid), time.Now()
	<-time.After(during)
	return (cpuSeconds(b.t, pid) - before) / time.Since(began).Seconds()
}

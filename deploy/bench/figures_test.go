package bench

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"weir/deploy/figures"
)

// report is what was measured, also of each way under each load.
type report struct {
	figures.Report
	Cells []row `json:"cells"`
}

// String shows all figures as tables, and which bars do not hold.
func (f *report) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LOAD\tWAY\tP50\tP95\tP99\tENVOY\tEXT_PROC\tREQUESTS")
	for _, r := range f.Cells {
		fmt.Fprintf(w, "%s\t%s\t%.2f ms\t%.2f ms\t%.2f ms\t%.0f µs\t%.0f µs\t%d\n",
			r.Load, r.Way, r.P50ms, r.P95ms, r.P99ms, r.EnvoyMicros, r.ExtProcMicros, r.Requests)
	}
	fmt.Fprintln(w)
	_ = w.Flush()
	return text.String() + f.Report.String()
}

// row is what was measured of one way under one load.
type row struct {
	Load          string  `json:"load"`
	Way           string  `json:"way"`
	P50ms         float64 `json:"p50Ms"`
	P95ms         float64 `json:"p95Ms"`
	P99ms         float64 `json:"p99Ms"`
	EnvoyMicros   float64 `json:"envoyCpuMicrosPerRequest"`
	ExtProcMicros float64 `json:"extProcCpuMicrosPerRequest"`
	Requests      int     `json:"requests"`
}

func (c *cell) row() row {
	n := float64(len(c.sent.latencies))
	return row{
		Load: c.load.name, Way: c.way,
		P50ms: at(c.sent.latencies, 0.5), P95ms: at(c.sent.latencies, 0.95), P99ms: at(c.sent.latencies, 0.99),
		EnvoyMicros: 1e6 * c.used.envoy / n, ExtProcMicros: 1e6 * c.used.extproc / n,
		Requests: len(c.sent.latencies),
	}
}

// Bars.
const (
	latencyBar   = 1.15 // headers: Weir's median latency, of the trivial ext_proc's
	cpuBar       = 1.5  // headers: CPU time a request of Envoy and ext_proc, likewise
	bodyBar      = 1.2  // bodies: median latency, of the trivial buffered one's
	headsRateBar = 10_000
	bodyRateBar  = 4_000
	idleBar      = 2  // % of a core
	growthBar    = 10 // %
)

func (r *result) figures() *report {
	f := &report{Report: figures.Report{Target: "bench-path"}}
	for _, c := range r.cells {
		f.Cells = append(f.Cells, c.row())
	}
	for _, l := range r.plan.loads {
		r.compareLatency(f, l)
	}
	for _, l := range r.plan.loads {
		r.compareCPU(f, l)
	}
	r.rates(f)
	f.AtMost("idle with 100 engines: CPU of weir-extproc", 100*r.idle, "% of a core", idleBar)
	r.streams.figures(f, r.plan.streams)
	return f
}

// compareLatency compares medians within each round and takes the median of that.
func (r *result) compareLatency(f *report, l load) {
	heads, bodies := r.cell(l, wayWeirHeads), r.cell(l, wayWeirBodies)
	f.AtMost("keys in headers, p50 of trivial headers-only: "+l.name, heads.p50Over(r.cell(l, wayTrivialHeads)), "", latencyBar)
	f.AtMost("keys in bodies, p50 of trivial buffered: "+l.name, bodies.p50Over(r.cell(l, wayTrivialBuffered)), "", bodyBar)
}

func (r *result) compareCPU(f *report, l load) {
	heads, trivial := r.cell(l, wayWeirHeads).row(), r.cell(l, wayTrivialHeads).row()
	what := "keys in headers, CPU a request of trivial headers-only"
	f.AtMost(what+": "+l.name, (heads.EnvoyMicros+heads.ExtProcMicros)/(trivial.EnvoyMicros+trivial.ExtProcMicros), "", cpuBar)
	f.Tell(what+", the ext_proc alone: "+l.name, heads.ExtProcMicros/trivial.ExtProcMicros, "")
	bodies, buffered := r.cell(l, wayWeirBodies).row(), r.cell(l, wayTrivialBuffered).row()
	what = "keys in bodies, CPU a request of trivial buffered"
	f.Tell(what+": "+l.name, (bodies.EnvoyMicros+bodies.ExtProcMicros)/(buffered.EnvoyMicros+buffered.ExtProcMicros), "")
	f.Tell(what+", the ext_proc alone: "+l.name, bodies.ExtProcMicros/buffered.ExtProcMicros, "")
}

// rates tells how many requests a core of weir-extproc decides about in a second,
// its access log included.
func (r *result) rates(f *report) {
	for _, l := range r.plan.loads {
		heads, bodies := 1e6/r.cell(l, wayWeirHeads).row().ExtProcMicros, 1e6/r.cell(l, wayWeirBodies).row().ExtProcMicros
		const unit = "/s and core"
		switch {
		case l.rps == 0 && l.size == small:
			f.AtLeast("decisions, keys in headers: "+l.name, heads, unit, headsRateBar)
			f.Tell("decisions, keys in bodies: "+l.name, bodies, unit)
		case l.rps == 0 && l.size == medium:
			f.Tell("decisions, keys in headers: "+l.name, heads, unit)
			f.AtLeast("decisions, keys in bodies: "+l.name, bodies, unit, bodyRateBar)
		}
	}
}

func (s *streamed) figures(f *report, plan streams) {
	what := fmt.Sprintf("%d streams of %d tokens: ", plan.n, plan.tokens)
	n := float64(plan.n)
	f.AtMost(what+"failed", float64(len(s.failed)), "streams", 0)
	f.AtMost(what+"messages to ext_proc of each", float64(s.messages)/n, "", 2)
	f.AtMost(what+"growth of weir-extproc's memory meanwhile", growth(s.during), "%", growthBar)
	f.Tell(what+"memory of weir-extproc before", s.before, "MiB")
	f.Tell(what+"memory of weir-extproc meanwhile, the most", most(s.during), "MiB")
	f.Tell(what+"memory of weir-extproc after", s.after, "MiB")
	f.Tell(what+"memory of weir-extproc, of each stream", 1024*(most(s.during)-s.before)/n, "KiB")
	f.Tell(what+"CPU of Envoy, of each token", 1e6*s.envoy/n/float64(plan.tokens), "µs")
	f.Tell(what+"CPU of weir-extproc, of each token", 1e6*s.extproc/n/float64(plan.tokens), "µs")
	f.Tell(what+"took", s.seconds, "s")
}

// growth is by how many percent the last third is above the first third, in the mean.
func growth(all []float64) float64 {
	third := (len(all) + 2) / 3
	first, last := 0.0, 0.0
	for i := range third {
		first += all[i]
		last += all[len(all)-1-i]
	}
	return 100 * (last/first - 1)
}

func most(all []float64) (x float64) {
	for _, y := range all {
		x = max(x, y)
	}
	return x
}

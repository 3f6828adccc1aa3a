package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

// figures are what was measured, for programs to read.
type figures struct {
	Target  string   `json:"target"`
	Figures []figure `json:"figures"`
	Cells   []row    `json:"cells"`
}

type figure struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Bar   string  `json:"bar,omitempty"` // empty: it is only told
	Holds bool    `json:"holds"`
}

func (f *figures) tell(what string, value float64, unit string) {
	f.Figures = append(f.Figures, figure{what, value, unit, "", true})
}

func (f *figures) atLeast(what string, value float64, unit string, bar float64) {
	f.Figures = append(f.Figures, figure{what, value, unit, fmt.Sprintf("≥ %v", bar), value >= bar})
}

func (f *figures) atMost(what string, value float64, unit string, bar float64) {
	f.Figures = append(f.Figures, figure{what, value, unit, fmt.Sprintf("≤ %v", bar), value <= bar})
}

func (f *figures) write(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// String shows all figures as tables, and which bars do not hold.
func (f *figures) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LOAD\tWAY\tP50\tP95\tP99\tENVOY\tEXT_PROC\tREQUESTS")
	for _, r := range f.Cells {
		fmt.Fprintf(w, "%s\t%s\t%.2f ms\t%.2f ms\t%.2f ms\t%.0f µs\t%.0f µs\t%d\n",
			r.Load, r.Way, r.P50ms, r.P95ms, r.P99ms, r.EnvoyMicros, r.ExtProcMicros, r.Requests)
	}
	fmt.Fprintln(w)
	_ = w.Flush()
	for _, x := range f.Figures {
		missed := ""
		if !x.Holds {
			missed = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%.4g %s\t%s\t%s\n", x.What, x.Value, x.Unit, x.Bar, missed)
	}
	_ = w.Flush()
	return text.String()
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

func (r *result) figures() *figures {
	f := &figures{Target: "bench-path"}
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
	f.atMost("idle with 100 engines: CPU of weir-extproc", 100*r.idle, "% of a core", idleBar)
	r.streams.figures(f, r.plan.streams)
	return f
}

// compareLatency compares medians within each round and takes the median of that.
func (r *result) compareLatency(f *figures, l load) {
	heads, bodies := r.cell(l, wayWeirHeads), r.cell(l, wayWeirBodies)
	f.atMost("keys in headers, p50 of trivial headers-only: "+l.name, heads.p50Over(r.cell(l, wayTrivialHeads)), "", latencyBar)
	f.atMost("keys in bodies, p50 of trivial buffered: "+l.name, bodies.p50Over(r.cell(l, wayTrivialBuffered)), "", bodyBar)
}

func (r *result) compareCPU(f *figures, l load) {
	heads, trivial := r.cell(l, wayWeirHeads).row(), r.cell(l, wayTrivialHeads).row()
	what := "keys in headers, CPU a request of trivial headers-only"
	f.atMost(what+": "+l.name, (heads.EnvoyMicros+heads.ExtProcMicros)/(trivial.EnvoyMicros+trivial.ExtProcMicros), "", cpuBar)
	f.tell(what+", the ext_proc alone: "+l.name, heads.ExtProcMicros/trivial.ExtProcMicros, "")
	bodies, buffered := r.cell(l, wayWeirBodies).row(), r.cell(l, wayTrivialBuffered).row()
	what = "keys in bodies, CPU a request of trivial buffered"
	f.tell(what+": "+l.name, (bodies.EnvoyMicros+bodies.ExtProcMicros)/(buffered.EnvoyMicros+buffered.ExtProcMicros), "")
	f.tell(what+", the ext_proc alone: "+l.name, bodies.ExtProcMicros/buffered.ExtProcMicros, "")
}

// rates tells how many requests a core of weir-extproc decides about in a second,
// its access log included.
func (r *result) rates(f *figures) {
	for _, l := range r.plan.loads {
		heads, bodies := 1e6/r.cell(l, wayWeirHeads).row().ExtProcMicros, 1e6/r.cell(l, wayWeirBodies).row().ExtProcMicros
		const unit = "/s and core"
		switch {
		case l.rps == 0 && l.size == small:
			f.atLeast("decisions, keys in headers: "+l.name, heads, unit, headsRateBar)
			f.tell("decisions, keys in bodies: "+l.name, bodies, unit)
		case l.rps == 0 && l.size == medium:
			f.tell("decisions, keys in headers: "+l.name, heads, unit)
			f.atLeast("decisions, keys in bodies: "+l.name, bodies, unit, bodyRateBar)
		}
	}
}

func (s *streamed) figures(f *figures, plan streams) {
	what := fmt.Sprintf("%d streams of %d tokens: ", plan.n, plan.tokens)
	n := float64(plan.n)
	f.atMost(what+"failed", float64(len(s.failed)), "streams", 0)
	f.atMost(what+"messages to ext_proc of each", float64(s.messages)/n, "", 2)
	f.atMost(what+"growth of weir-extproc's memory meanwhile", growth(s.during), "%", growthBar)
	f.tell(what+"memory of weir-extproc before", s.before, "MiB")
	f.tell(what+"memory of weir-extproc meanwhile, the most", most(s.during), "MiB")
	f.tell(what+"memory of weir-extproc after", s.after, "MiB")
	f.tell(what+"memory of weir-extproc, of each stream", 1024*(most(s.during)-s.before)/n, "KiB")
	f.tell(what+"CPU of Envoy, of each token", 1e6*s.envoy/n/float64(plan.tokens), "µs")
	f.tell(what+"CPU of weir-extproc, of each token", 1e6*s.extproc/n/float64(plan.tokens), "µs")
	f.tell(what+"took", s.seconds, "s")
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

package demo

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"weir/fleet"
)

// picture is what the view shows at one moment.
type picture struct {
	elapsed, length time.Duration
	cells           []cell // since the start
	now             []cell // of the last seconds
	pools           []poolLoad
	current         map[fleet.FrontEndID]map[fleet.PoolID]float64
	sent, failed    int
}

// poolLoad is what a pool was asked for lately against what it can do.
type poolLoad struct {
	id            fleet.PoolID
	rps, capacity float64
}

// draw writes a picture as a table.
func (p *picture) draw(out io.Writer) {
	fmt.Fprintf(out, "Weir, the talk's example on this machine: %.0f of %.0f s, %d requests, %d failed\n\n",
		p.elapsed.Seconds(), p.length.Seconds(), p.sent, p.failed)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FRONT-END → POOL\tPLANNED NOW\tMEASURED NOW\tSINCE START\tPLANS ASKED\tREQUESTS\tz\tTTFT p50\tp95")
	for i, c := range p.cells {
		if c.got == 0 && c.expected == 0 {
			continue
		}
		fmt.Fprintf(w, "%s → %s\t%s\t%s\t%s\t%s\t%d\t%+.1f\t%s\t%s\n", c.frontEnd, c.pool,
			percent(p.current[c.frontEnd][c.pool], 1), percent(float64(p.now[i].got), p.now[i].requests),
			percent(float64(c.got), c.requests), percent(c.expected, c.requests), c.got, c.z(),
			milliseconds(quantile(c.ttfts, 0.5)), milliseconds(quantile(c.ttfts, 0.95)))
	}
	w.Flush()
	fmt.Fprintln(out)
	for _, l := range p.pools {
		fmt.Fprintf(out, "pool %s  %s %3.0f%%  %.1f of %.0f RPS\n", l.id, bar(l.rps/l.capacity), 100*l.rps/l.capacity, l.rps, l.capacity)
	}
}

func percent(part float64, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*part/float64(of))
}

func milliseconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

const barLength = 30

func bar(x float64) string {
	n := min(barLength, int(math.Round(barLength*x)))
	return strings.Repeat("█", n) + strings.Repeat("░", barLength-n)
}

package demo

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/fleet"
)

// recent is how far back "now" reaches in the view.
const recent = 5 * time.Second

// picture is what the view shows at one moment. It fits 80 columns.
type picture struct {
	title, act      string
	elapsed, length time.Duration
	told            map[fleet.FrontEndID]planned   // the plans in force
	refused         map[fleet.Stream]refusals      // of the last seconds
	cells           []cell                         // of the last seconds
	ttfts           map[fleet.Link][]time.Duration // of the last seconds, sorted
	journals        bool                           // the engines note where requests went; else it is not known
	pools           []poolLoad                     // nil without journals
	outcomes        outcomes                       // since the start
	at              fleet.FrontEndID
	affinity        [kinds]affinity // there, in the last seconds
}

// refusals are how many of the requests of a stream were refused.
type refusals struct{ asked, refused int }

// poolLoad is what a pool was asked for lately against what it can do.
type poolLoad struct {
	id            fleet.PoolID
	rps, capacity float64
}

func (d *director) picture(all []turn, a *act) *picture {
	now := time.Now()
	f := d.stage.Fleet
	p := &picture{
		title: d.title, act: a.title, at: a.at, elapsed: now.Sub(d.started), length: d.length,
		told: map[fleet.FrontEndID]planned{}, refused: map[fleet.Stream]refusals{}, cells: newCells(f), ttfts: map[fleet.Link][]time.Duration{},
	}
	lately := func(t *turn) bool { return now.Sub(t.reply.Sent) < recent }
	recently := slices.DeleteFunc(slices.Clone(all), func(t turn) bool { return !lately(&t) })
	for _, fe := range f.FrontEnds {
		p.told[fe.ID] = d.history.at(fe.ID, now)
	}
	count(p.cells, &d.history, recently)
	for _, t := range recently {
		link := fleet.Link{FrontEnd: t.frontEnd, Pool: t.pool}
		p.ttfts[link] = append(p.ttfts[link], t.reply.TTFT)
		stream := fleet.Stream{FrontEnd: t.frontEnd, Class: t.class}
		r := p.refused[stream]
		if r.asked++; t.reply.Status == http.StatusTooManyRequests {
			r.refused++
		}
		p.refused[stream] = r
	}
	for _, ttfts := range p.ttfts {
		slices.Sort(ttfts)
	}
	if p.journals = d.stage.Journals(); p.journals {
		p.pools = d.loads(recently, min(recent, p.elapsed))
	}
	p.affinity = follow(all, func(t *turn) bool { return t.frontEnd == a.at && lately(t) })
	for _, each := range d.script {
		o := each.tally(all)
		p.outcomes.sent += o.sent
		p.outcomes.shed += o.shed
		p.outcomes.cut += o.cut
		p.outcomes.failed += o.failed
	}
	return p
}

func (d *director) loads(lately []turn, over time.Duration) []poolLoad {
	var all []poolLoad
	for i := range d.stage.Fleet.Pools {
		p := &d.stage.Fleet.Pools[i]
		l := poolLoad{id: p.ID}
		for _, e := range p.Engines {
			if !d.dead[e] {
				l.capacity += p.Profile.CapacityRps
			}
		}
		for _, t := range lately {
			if t.pool == p.ID {
				l.rps += 1 / over.Seconds()
			}
		}
		all = append(all, l)
	}
	return all
}

// draw writes a picture.
func (p *picture) draw(out io.Writer) {
	fmt.Fprintf(out, "Weir, %s, %.0f of %.0f s: %s\n", p.title, min(p.elapsed, p.length).Seconds(), p.length.Seconds(), p.act)
	fmt.Fprintf(out, "%d requests, %s\n\n", p.outcomes.sent, p.outcomes)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "LAST %.0f s\tPLANNED\tMEASURED\tTTFT p50\tp95\n", recent.Seconds())
	for i := range p.cells {
		c := &p.cells[i]
		planned := p.told[c.frontEnd].shares[c.place]
		if c.got == 0 && planned == 0 {
			continue
		}
		ttfts := p.ttfts[fleet.Link{FrontEnd: c.frontEnd, Pool: c.pool}]
		fmt.Fprintf(w, "%s %s → %s\t%s\t%s\t%s\t%s\n", c.frontEnd, c.class, c.pool,
			percent(planned, 1), percent(float64(c.got), float64(c.began)),
			milliseconds(quantile(ttfts, 0.5)), milliseconds(quantile(ttfts, 0.95)))
	}
	p.refusedRows(w)
	w.Flush()
	fmt.Fprintln(out)
	for _, l := range p.pools {
		fmt.Fprintf(out, "pool %-8s %s %3.0f%%  %.1f of %.0f RPS\n", l.id, bar(l.rps/l.capacity), 100*l.rps/l.capacity, l.rps, l.capacity)
	}
	fmt.Fprintf(out, "\nconversations at %s, named ...\n", p.at)
	for k, a := range p.affinity {
		moved := "unknown"
		if p.journals {
			moved = fmt.Sprint(a.moved)
		}
		fmt.Fprintf(out, "  %-16s %3d turns, %3s moved, %s of their prompts cached\n", kind(k), a.followUps, moved, share(a.cachedShare()))
	}
}

// refusedRows shows where requests are refused, or ought to be.
func (p *picture) refusedRows(w io.Writer) {
	var last fleet.Stream
	for i := range p.cells {
		id := fleet.Stream{FrontEnd: p.cells[i].frontEnd, Class: p.cells[i].class}
		planned, got := p.told[id.FrontEnd].refused[id.Class], p.refused[id]
		if id == last || planned < 5e-4 && got.refused == 0 {
			continue
		}
		last = id
		fmt.Fprintf(w, "%s %s refused\t%s\t%s\t\t\n", id.FrontEnd, id.Class, percent(planned, 1), percent(float64(got.refused), float64(got.asked)))
	}
}

func (o outcomes) String() string {
	text := "none failed"
	if o.failed > 0 {
		text = fmt.Sprintf("%d FAILED", o.failed)
	}
	if o.shed > 0 {
		text += fmt.Sprintf(", %d shed with a 429", o.shed)
	}
	if o.cut > 0 {
		text += fmt.Sprintf(", %d cut with their engine", o.cut)
	}
	return text
}

func share(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*x)
}

func percent(part, of float64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*part/of)
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

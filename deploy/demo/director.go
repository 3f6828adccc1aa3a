package demo

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// director runs one showing: it sends, collects and draws.
type director struct {
	stage   *stage.Stage
	length  time.Duration
	history history
	started time.Time
	done    bool // the whole length was shown

	mu      sync.Mutex // guards samples: clients write, the view reads
	samples []sample
}

func newDirector(s *stage.Stage, length time.Duration) *director {
	return &director{stage: s, length: length, history: history{plans: map[fleet.FrontEndID][]planned{}}}
}

// awaitPlans waits until every front-end has been told a plan.
func (d *director) awaitPlans(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, fe := range d.stage.Fleet.FrontEnds {
		for d.history.at(fe.ID, time.Now()) == nil {
			select {
			case <-ctx.Done():
				return fmt.Errorf("front-end %q was told no plan: %w", fe.ID, context.Cause(ctx))
			case <-tick.C:
			}
		}
	}
	return nil
}

// send lets the clients of every front-end ask for the whole length, and draws
// meanwhile.
func (d *director) send(ctx context.Context, out io.Writer) error {
	d.started = time.Now()
	sending, stop := context.WithTimeout(ctx, d.length)
	defer stop()
	var clients sync.WaitGroup
	for i, fe := range d.stage.Fleet.FrontEnds {
		client := stage.NewClient()
		for class, rps := range fe.Demand {
			model := d.stage.Fleet.Class(class).Models()[0]
			clients.Go(func() {
				stage.Arrive(sending, rps, uint64(i), func(n int) { d.ask(ctx, client, fe.ID, model, n) })
			})
		}
	}
	err := d.draw(sending, out)
	clients.Wait()
	d.done = err == nil && ctx.Err() == nil
	return err
}

// ask sends the first turn of a new conversation.
func (d *director) ask(ctx context.Context, client *http.Client, id fleet.FrontEndID, model string, n int) {
	s := sample{frontEnd: id, id: fmt.Sprintf("%s-%d", id, n), at: time.Now()}
	reply := stage.Do(ctx, client, stage.Call{
		URL:     d.stage.URL(id),
		Body:    stage.Chat(model, "conversation "+s.id, true, 0),
		Headers: map[string]string{"x-test-id": s.id},
	})
	s.ttft, s.ok = reply.TTFT, reply.OK()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.samples = append(d.samples, s)
}

const redraw = time.Second

// draw shows the state of things each second: in place on a terminal, else every
// fifth one below the other.
func (d *director) draw(ctx context.Context, out io.Writer) error {
	terminal := isTerminal(out)
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !terminal && n%5 != 0 {
			continue
		}
		p, err := d.look()
		if err != nil {
			return err
		}
		var text strings.Builder
		p.draw(&text)
		if terminal {
			fmt.Fprint(out, "\x1b[H\x1b[2J")
		}
		fmt.Fprintln(out, text.String())
	}
}

// recent is how far back "now" reaches in the view.
const recent = 5 * time.Second

func (d *director) look() (*picture, error) {
	samples, err := d.joined()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	f := d.stage.Fleet
	p := &picture{elapsed: now.Sub(d.started), length: d.length, sent: len(samples), current: map[fleet.FrontEndID]map[fleet.PoolID]float64{}}
	var lately []sample
	for _, s := range samples {
		if !s.ok {
			p.failed++
		}
		if now.Sub(s.at) < recent {
			lately = append(lately, s)
		}
	}
	p.cells, p.now = cells(f, &d.history, samples), cells(f, &d.history, lately)
	for _, fe := range f.FrontEnds {
		p.current[fe.ID] = d.history.at(fe.ID, now)
	}
	p.pools = loads(f, lately, min(recent, p.elapsed))
	return p, nil
}

func loads(f *fleet.Fleet, lately []sample, over time.Duration) []poolLoad {
	var all []poolLoad
	for i := range f.Pools {
		p := &f.Pools[i]
		l := poolLoad{id: p.ID, capacity: p.Profile.CapacityRps * float64(len(p.Engines))}
		for _, s := range lately {
			if s.pool == p.ID {
				l.rps += 1 / over.Seconds()
			}
		}
		all = append(all, l)
	}
	return all
}

// joined gives each sample the pool in whose engines' journals it stands.
func (d *director) joined() ([]sample, error) {
	arrivals, err := d.stage.Arrivals()
	if err != nil {
		return nil, err
	}
	pools := make(map[string]fleet.PoolID, len(arrivals))
	for _, a := range arrivals {
		pools[a.Headers["x-test-id"]] = a.Pool
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	samples := make([]sample, len(d.samples))
	for i, s := range d.samples {
		s.pool = pools[s.id]
		samples[i] = s
	}
	return samples, nil
}

// verdict prints the summary and judges it.
func (d *director) verdict(out io.Writer) error {
	p, err := d.look()
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	p.draw(out)
	w := worst(p.cells)
	switch {
	case p.sent == 0:
		return fmt.Errorf("no request was sent in %v: lengthen --for", d.length)
	case p.failed > 0:
		return fmt.Errorf("%d of %d requests failed", p.failed, p.sent)
	case math.Abs(w.z()) > zLimit:
		return fmt.Errorf("measured is not planned: %s → %s got %d requests, the plans in force asked for %.1f (z = %.1f)",
			w.frontEnd, w.pool, w.got, w.expected, w.z())
	}
	fmt.Fprintf(out, "\nMeasured met planned: all of %d requests answered, the worst share is %.1f standard deviations from its plan (limit %d).\n",
		p.sent, math.Abs(w.z()), zLimit)
	return nil
}

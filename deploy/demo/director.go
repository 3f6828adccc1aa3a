package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// director plays the acts: it sends, collects and draws.
type director struct {
	stage       *stage.Stage
	title       string
	length      time.Duration
	seed        uint64 // of the conversations' names
	promptBytes int    // of every conversation's system prompt
	history     history
	started     time.Time
	script      []*act
	dead        map[fleet.EngineID]bool // engines that are killed

	mu    sync.Mutex // guards turns: clients write, the view reads
	turns []turn
}

func newDirector(s *stage.Stage, title string, length time.Duration) *director {
	d := &director{stage: s, title: title, length: length, promptBytes: mockPromptBytes, history: history{plans: map[fleet.FrontEndID][]planned{}}, dead: map[fleet.EngineID]bool{}}
	d.script = d.acts()
	return d
}

// awaitPlans waits until every front-end has been told a plan.
func (d *director) awaitPlans(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, fe := range d.stage.Fleet.FrontEnds {
		for d.history.at(fe.ID, time.Now()).shares == nil {
			select {
			case <-ctx.Done():
				return fmt.Errorf("front-end %q was told no plan: %w", fe.ID, context.Cause(ctx))
			case <-tick.C:
			}
		}
	}
	return nil
}

// play lets clients talk at every front-end while the acts come one after the
// other.
func (d *director) play(ctx context.Context, out io.Writer) error {
	d.started = time.Now()
	talking, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for i, fe := range d.stage.Fleet.FrontEnds {
		client := stage.NewClient()
		for class, rps := range fe.Demand {
			clients.Go(func() { d.resume(talking, client, fleet.Stream{FrontEnd: fe.ID, Class: class}, rps) })
			clients.Go(func() {
				stage.Arrive(talking, rps/turns, uint64(i), func(n int) {
					d.talk(talking, client, fleet.Stream{FrontEnd: fe.ID, Class: class}, n, 0)
				})
			})
		}
	}
	for _, a := range d.script {
		a.begun = time.Now()
		if err := a.begin(ctx); err != nil {
			return fmt.Errorf("act %q: %w", a.title, err)
		}
		if err := d.show(ctx, out, a); err != nil || ctx.Err() != nil {
			return err
		}
		a.ended = time.Now()
	}
	return nil
}

// resume lets as many conversations be under way from the start as there will be
// later, so that the demand is there at once.
func (d *director) resume(ctx context.Context, client *http.Client, stream fleet.Stream, rps float64) {
	var clients sync.WaitGroup
	defer clients.Wait()
	for i := range int(rps * think.Seconds()) {
		clients.Go(func() { d.talk(ctx, client, stream, -1-i, 1+i%(turns-1)) })
	}
}

func (d *director) add(t turn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns = append(d.turns, t)
}

// show draws each second until the act's time is over: in place on a terminal, else
// once, at its end.
func (d *director) show(ctx context.Context, out io.Writer, a *act) error {
	terminal := IsTerminal(out)
	over := time.After(time.Duration(a.share * float64(d.length)))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-over:
			return d.draw(out, a, terminal)
		case <-tick.C:
			if terminal {
				if err := d.draw(out, a, terminal); err != nil {
					return err
				}
			}
		}
	}
}

func (d *director) draw(out io.Writer, a *act, terminal bool) error {
	all, err := d.located()
	if err != nil {
		return err
	}
	var text strings.Builder
	if terminal {
		text.WriteString("\x1b[H\x1b[2J")
	}
	d.picture(all, a).draw(&text)
	_, err = fmt.Fprintln(out, text.String())
	return err
}

// located gives each turn the engine in whose journal it stands first, and orders
// them by the time they were sent.
func (d *director) located() ([]turn, error) {
	arrivals, err := d.stage.Arrivals()
	if err != nil {
		return nil, err
	}
	first := make(map[string]stage.Arrival, len(arrivals))
	for _, a := range slices.Backward(arrivals) {
		first[a.Headers["x-test-id"]] = a
	}
	d.mu.Lock()
	all := slices.Clone(d.turns)
	d.mu.Unlock()
	for i := range all {
		a := first[all[i].mark()]
		all[i].engine, all[i].pool = a.Engine, a.Pool
	}
	slices.SortStableFunc(all, func(a, b turn) int { return a.reply.Sent.Compare(b.reply.Sent) })
	return all, nil
}

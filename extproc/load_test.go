package extproc

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

// ask sends one whole request.
func ask(t *testing.T, c *client, body string, lines ...string) {
	t.Helper()
	c.headers(post("/v1/chat/completions", lines...))
	c.body(body)
}

func TestTake(t *testing.T) {
	t.Parallel()
	v := twoPools()
	v.Routes = append(v.Routes, fleet.ViewRoute{Class: "batch", Rule: fleet.Rule{Model: "slow"}})
	v.Classes = append([]fleet.ViewClass{{ID: "batch", Pools: v.Classes[0].Pools}}, v.Classes...) // admits none
	s, conn := serve(t, v)
	if got := s.Take(); got != nil {
		t.Errorf("at first: %v", got)
	}
	for _, line := range []string{"x-stainless-retry-count: 0", "x-stainless-retry-count: 1", "x: y"} {
		ask(t, open(t, conn), `{"model":"small"}`, line)
		ask(t, open(t, conn), `{"model":"slow"}`, line)
	}
	ask(t, open(t, conn), `{"model":"nobody's"}`)
	s.Swap(NewTable(&fleet.View{}))
	want := []fleet.ClassLoad{{Class: "batch", Arrivals: 2, Shed: 2}, {Class: "chat", Arrivals: 2}}
	if diff := cmp.Diff(want, s.Take()); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	if got := s.Take(); got != nil {
		t.Errorf("taken again: %v", got)
	}
	got := s.Counters()
	if a, shed, unknown := got.Admitted.Load(), got.Shed.Load(), got.UnknownModel.Load(); a != 3 || shed != 3 || unknown != 1 {
		t.Errorf("admitted %d, shed %d, unknown %d; want 3, 3, 1: retries count here", a, shed, unknown)
	}
}

// A class that no engine can serve is demand all the same.
func TestArrivalsWithoutEngine(t *testing.T) {
	t.Parallel()
	v := twoPools()
	v.Classes[0].Pools = nil
	s, conn := serve(t, v)
	ask(t, open(t, conn), `{"model":"small"}`)
	if diff := cmp.Diff([]fleet.ClassLoad{{Class: "chat", Arrivals: 1}}, s.Take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whoever takes while others count, each arrival is taken once.
func TestTakeLosesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger()
	const writers, each = 4, 2000
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range each {
				c := &class{id: fleet.ClassID(fmt.Sprint("c", i%3))}
				l.arrive(&decision{class: c}, false)
				l.enter(c.id, "e")
				l.leave(c.id, "e")
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	total := uint64(0)
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
		}
		for _, c := range l.take() {
			total += c.Arrivals
		}
	}
	if total != writers*each {
		t.Errorf("taken %d, want %d", total, writers*each)
	}
	if n := len(l.classes); n != 0 {
		t.Errorf("%d idle classes are remembered", n)
	}
}

// The ledger forgets idle classes, keeps those with open requests, and has a bound.
func TestLedgerBound(t *testing.T) {
	t.Parallel()
	l := newLedger()
	l.enter("kept", "e")
	for i := range maxClasses + 10 {
		l.arrive(&decision{class: &class{id: fleet.ClassID(fmt.Sprint(i))}}, false)
	}
	if n := len(l.classes); n != maxClasses {
		t.Errorf("%d classes, want %d", n, maxClasses)
	}
	l.enter("one too many", "e")
	l.leave("one too many", "e")
	l.take()
	if n := len(l.classes); n != 1 || l.inFlight("kept", "e") != 1 {
		t.Errorf("%d classes after taking, %d in flight, want 1 and 1", n, l.inFlight("kept", "e"))
	}
	l.leave("kept", "e")
	if n := l.inFlight("kept", "e"); n != 0 {
		t.Errorf("in flight: %d, want 0", n)
	}
}

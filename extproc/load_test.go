package extproc

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

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

// Whoever takes while others count and tables come and go, each arrival is taken once,
// no more are shed than arrived, and nothing stays open.
func TestTakeLosesNothing(t *testing.T) {
	t.Parallel()
	s := New(zap.NewNop())
	s.Swap(NewTable(twoPools()))
	const writers, each = 4, 2000
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range each {
				x := exchange{table: s.table.Load()}
				x.head = newHead(headersOf(post("/", fmt.Sprint("x-session: ", i))))
				s.settle(&x, facts{model: "small"}, nil)
				s.leave(&x)
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
			s.Swap(NewTable(twoPools()))
		}
		for _, c := range s.Take() {
			total += c.Arrivals
			if c.Shed > c.Arrivals {
				t.Errorf("%d shed of %d", c.Shed, c.Arrivals)
			}
		}
	}
	if total != writers*each {
		t.Errorf("taken %d, want %d", total, writers*each)
	}
	if open := s.Open(); open != nil {
		t.Errorf("open at the end: %v", open)
	}
}

// The ledger forgets classes and engines that no table has, a while after their last
// request, and keeps those that one has for ever.
func TestLedgerForgets(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := New(zap.NewNop())
	s.swapAt(NewTable(twoPools()), now)
	x := exchange{table: s.table.Load()}
	s.settle(&x, facts{model: "small"}, nil)
	count := func() string { return fmt.Sprint(len(s.ledger.classes), " ", len(s.ledger.engines)) }
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { now = now.Add(time.Hour); s.refreshAt(now) }, "1 6"},
		{func() { s.swapAt(NewTable(&fleet.View{}), now) }, "1 6"},
		{func() { now = now.Add(2 * keptAfter); s.refreshAt(now) }, "1 1"}, // of the open request
		{func() { s.Take(); s.refreshAt(now) }, "1 1"},
		{func() { s.leave(&x); s.refreshAt(now) }, "0 0"},
	} {
		if step.do(); count() != step.want {
			t.Errorf("%s classes and engines, want %s", count(), step.want)
		}
	}
}

package watch

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"weir/fleet"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// stand is a pool whose engines take longer than its profile says, by a factor, and what
// is made of that.
type stand struct {
	t       *testing.T
	watcher *Watcher
	fleet   *fleet.Fleet
	adopted map[fleet.PoolID]fleet.Adoption
	slower  float64
	at      time.Time
	history []fleet.Span
}

func newStand(t *testing.T, slower float64, adopt bool) *stand {
	s := &stand{t: t, slower: slower, at: noon, adopted: map[fleet.PoolID]fleet.Adoption{}}
	s.fleet = &fleet.Fleet{Pools: []fleet.Pool{{ID: "p", AdoptFit: adopt, Profile: fleet.Profile{
		CapacityRps: 10, Reference: fleet.Tokens{Prompt: 1000, Output: 200}, OutputTokenCost: 4,
		TTFT: fleet.Curve{{Utilisation: 0, Seconds: 0.2}, {Utilisation: 1, Seconds: 0.6}},
	}}}}
	s.watcher = New(nil, func(id fleet.PoolID, a fleet.Adoption) bool {
		s.adopted[id] = a
		return true
	}, zap.NewNop())
	return s
}

// minutes of traffic at loads that change, each judged, as the loop takes what is adopted.
func (s *stand) minutes(n int) fleet.ProfileNews {
	for range n {
		load := []float64{0.1, 0.8, 0.3, 0.7, 0.5, 0.2, 0.6, 0.4}[len(s.history)%8]
		from := s.at
		s.at = s.at.Add(time.Minute)
		requests := load * 10 * 4 * 60
		s.history = append(s.history[:len(s.history):len(s.history)], fleet.Span{
			From: from, To: s.at, EngineSeconds: 4 * 60, Issued: requests, Ended: requests, Tokens: fleet.Tokens{Prompt: 1000, Output: 200},
			TTFT: fleet.Timing{Items: requests, Seconds: s.slower * (0.2 + 0.4*load)},
		})
		s.look()
	}
	return s.watcher.News()[0]
}

func (s *stand) look() {
	f := s.fleet.Adopt(s.adopted)
	s.watcher.look(s.t.Context(), s.at, &fleet.State{Fleet: f, Pools: map[fleet.PoolID]fleet.PoolState{"p": {History: s.history}}})
}

// What drifts is named and fitted, and nothing is done.
func TestDriftIsTold(t *testing.T) {
	s := newStand(t, 1.3, false)
	n := s.minutes(3)
	if len(n.Drifts) > 0 || n.Fitted != nil || n.Spans != 3 || n.Compared != 3 {
		t.Errorf("after three minutes: %+v", n)
	}
	n = s.minutes(27)
	truth := 10 * (0.6/1.3 - 0.2) / 0.4
	if len(n.Drifts) == 0 || n.Fitted == nil || n.Fitted.CapacityRps < 0.97*truth || n.Fitted.CapacityRps > 1.03*truth {
		t.Errorf("%+v, want a drift, and a capacity of %.2f rps", n, truth)
	}
	if len(s.adopted) > 0 || n.Adopted || n.CapacityRps != 10 {
		t.Errorf("nobody asked for it, and it is adopted: %+v", n)
	}
	if s.slower = 1; len(s.minutes(30).Drifts) > 0 {
		t.Errorf("engines are as the profile says for half an hour, and still %+v", s.watcher.News())
	}
}

func TestTooLittleIsTold(t *testing.T) {
	s := newStand(t, 1.3, false)
	for range 30 {
		s.minutes(1)
		s.history[len(s.history)-1].Issued = 1200 // always the same load
		s.history[len(s.history)-1].TTFT.Seconds = 1.3 * 0.4
		s.look()
	}
	n := s.minutes(1)
	if len(n.Drifts) == 0 || n.Fitted != nil || !strings.Contains(n.Unfitted, "traffic does not show enough") {
		t.Errorf("%+v, want a drift, and why there is no fit", n)
	}
}

// Where the file asks for it the profile follows the fit step by step, and the file's
// is back when it asks no more, or says something else.
func TestAdoption(t *testing.T) {
	s := newStand(t, 1.3, true)
	before := s.minutes(10).CapacityRps
	for range 60 {
		now := s.minutes(1).CapacityRps
		if now < 0.9*before-1e-9 || now > before*1.1 {
			t.Errorf("a step from %.3f rps to %.3f", before, now)
		}
		before = now
	}
	n := s.watcher.News()[0]
	truth := 10 * (0.6/1.3 - 0.2) / 0.4
	if !n.Adopted || n.FileRps != 10 || before < 0.95*truth || before > 1.06*truth {
		t.Errorf("%+v, want the profile in use near the true %.2f rps", n, truth)
	}
	if steps := s.watcher.Counters.Adoptions.Load(); steps < 2 || steps > 7 {
		t.Errorf("%d steps in an hour, want some, ten minutes apart", steps)
	}
	registry := prometheus.NewPedanticRegistry()
	if err := s.watcher.RegisterMetrics(registry); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}

	s.fleet.Options.DeclaredOnly = true
	if n := s.minutes(1); n.Adopted || n.CapacityRps != 10 {
		t.Errorf("%+v: the file's capacities rule", n)
	}
	s.fleet.Options.DeclaredOnly = false
	if n := s.minutes(1); !n.Adopted || n.CapacityRps != before {
		t.Errorf("%+v: what is measured rules, and what was adopted is gone", n)
	}
	s.fleet.Pools[0].Profile.CapacityRps = 9 // by hand
	fits := s.watcher.Counters.Fits.Load()
	if n := s.minutes(1); n.Adopted || n.CapacityRps != 9 || s.watcher.Counters.Fits.Load() != fits+1 {
		t.Errorf("%+v, want what the file says anew, and a fit to that", n)
	}
	s.fleet.Pools[0].AdoptFit = false
	if n := s.minutes(1); n.Adopted || n.CapacityRps != 9 {
		t.Errorf("%+v, want the file's", n)
	}
	s.fleet.Pools = nil
	if s.look(); len(s.watcher.News()) > 0 || len(s.watcher.pools) > 0 {
		t.Error("pools are remembered that are gone")
	}
}

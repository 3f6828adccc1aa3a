package solver

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/fleet"
)

const tickSeconds = 2

// history plans tick after tick, each plan the next one's previous.
type history struct {
	t     testing.TB
	state *fleet.State
	plan  *fleet.Plan
}

func begin(t testing.TB, s *fleet.State) *history {
	h := &history{t: t, state: s}
	h.tick()
	return h
}

// tick plans once more, and returns the share of the admitted traffic that moved.
func (h *history) tick() float64 {
	h.t.Helper()
	before := h.plan
	h.state.Previous, h.state.ElapsedSeconds = before, tickSeconds
	h.plan = mustPlan(h.t, h.state)
	if before == nil {
		return 0
	}
	return fleet.Moved(before, h.plan)
}

// latencyOf is the mean latency of a plan's routes by the state's own network.
func latencyOf(s *fleet.State, plan *fleet.Plan) float64 {
	seconds, total := 0.0, 0.0
	for _, r := range plan.Routes {
		for _, share := range r.Shares {
			seconds += share.Rps * (s.RoundTrip(fleet.Link{FrontEnd: r.FrontEnd, Pool: share.Pool}) + share.EngineSeconds)
			total += share.Rps
		}
	}
	return seconds / total
}

// Latencies that are measured 2 ms too high or too low, differently each tick, move
// nearly nobody, and cost nearly nothing.
func TestNoiseMovesNobody(t *testing.T) {
	const (
		noise = 0.002 // seconds, either way, evenly spread
		ticks = 60
	)
	random := rand.New(rand.NewPCG(11, 13))
	truth := sized(50, 200)
	truth.Fleet.Options.MinShare = 0
	truth.Fleet.Options.ChurnHalving = time.Minute
	optimum := mustPlan(t, truth)

	noisy := *truth
	f := *truth.Fleet
	f.Network.Measured = true
	noisy.Fleet = &f
	noisy.Network, noisy.NetworkNoise = map[fleet.Link]float64{}, map[fleet.Link]float64{}
	shake := func() {
		for _, fe := range f.FrontEnds {
			for i := range f.Pools {
				link := fleet.Link{FrontEnd: fe.ID, Pool: f.Pools[i].ID}
				noisy.Network[link] = max(0, f.Network.RoundTripSeconds[link]+noise*(2*random.Float64()-1))
				noisy.NetworkNoise[link] = noise / 1.732 // standard deviation of an even spread
			}
		}
	}
	shake()
	h := begin(t, &noisy)
	moved, most := 0.0, 0.0
	for range ticks {
		shake()
		m := h.tick()
		moved += m / ticks
		most = max(most, m)
	}
	t.Logf("a tick moved %.3f %% on average, %.3f %% at most", 100*moved, 100*most)
	if most > 0.01 {
		t.Errorf("a tick moved %.2f %% of the traffic, want at most 1 %%", 100*most)
	}
	got, want := latencyOf(truth, h.plan), latencyOf(truth, optimum)
	t.Logf("mean latency %.4f ms, optimal %.4f ms", 1000*got, 1000*want)
	if got > want*1.001 {
		t.Errorf("mean latency %.4f ms, more than 0.1 %% above the best, %.4f ms", 1000*got, 1000*want)
	}
}

// Half of a pool's capacity that is lost is missed at once, and its traffic is back
// once it is repaired.
func TestLossIsAnsweredAndRepairTaken(t *testing.T) {
	s := talk()
	s.Fleet.Options.ChurnSeconds, s.Fleet.Options.ChurnHalving = 0.005, time.Minute
	atB := fleet.Stream{FrontEnd: "B", Class: "chat"}
	h := begin(t, s)
	for range 5 {
		h.tick()
	}
	home := h.plan.Route(atB).ShareOf("B")
	s.Pools["B"] = fleet.PoolState{CapacityFactor: 0.5}
	h.tick()
	if got := rps(h.plan)[atB]["B"]; got > 50+1e-6 || h.plan.Status != fleet.Shedding {
		t.Errorf("with half of B lost: %v RPS still go there, status %s", got, h.plan.Status)
	}
	s.Pools["B"] = fleet.PoolState{}
	h.tick()
	if got := h.plan.Route(atB).ShareOf("B"); got < home-1e-6 {
		t.Errorf("after the repair %v of B's traffic is at home, was %v", got, home)
	}
}

// A gain that lasts is taken as soon as what moving must gain has halved below it:
// 10 ms at first, 2 ms after 2.3 minutes.
func TestALastingGainIsTaken(t *testing.T) {
	s := talk()
	for i := range s.Fleet.Pools { // no queueing: network alone decides
		s.Fleet.Pools[i].Profile.TTFT = fleet.Curve{{Utilisation: 0, Seconds: 0.2}}
	}
	ask(s, "A", "chat", 50)
	s.Fleet.Options.ChurnSeconds, s.Fleet.Options.ChurnHalving = 0.005, time.Minute
	h := begin(t, s)
	atB := fleet.Stream{FrontEnd: "B", Class: "chat"}
	s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "B", Pool: "A"}] = 0.058 // 2 ms nearer than C
	seconds := 0
	for h.plan.Route(atB).ShareOf("A") == 0 && seconds < 600 {
		h.tick()
		seconds += tickSeconds
	}
	if seconds < 138 || seconds > 142 { // 60 s × log2(10 / 2) = 139.3 s
		t.Errorf("a gain of 2 ms was taken after %d s, want 140 s", seconds)
	}
	if settled := h.plan.Route(atB).SettledSeconds; settled >= float64(seconds) {
		t.Errorf("after a sixth of it moved, it counts as settled for %v s", settled)
	}
	// What moved last is dear to move back.
	s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "B", Pool: "A"}] = 0.061
	if moved := h.tick(); moved != 0 {
		t.Errorf("%v moved back for 1 ms", moved)
	}
}

// Moving conversations costs the prefill of what they had cached.
func TestCachedTokensHoldTraffic(t *testing.T) {
	atB := fleet.Stream{FrontEnd: "B", Class: "chat"}
	for cached, want := range map[float64]float64{0: 20, 500: 0} { // 500 of 1,000 tokens: 100 ms of the TTFT
		s := talk()
		for i := range s.Fleet.Pools {
			s.Fleet.Pools[i].Profile.TTFT = fleet.Curve{{Utilisation: 0, Seconds: 0.2}}
		}
		ask(s, "A", "chat", 50)
		h := begin(t, s)
		s.Tokens = map[fleet.ClassID]fleet.TokenBelief{"chat": {Mean: fleet.Tokens{Prompt: 1000, Output: 200, Cached: cached}}}
		s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: "B", Pool: "A"}] = 0.010
		h.tick()
		if got := rps(h.plan)[atB]["A"]; got < want-1e-6 || got > want+1e-6 {
			t.Errorf("with %v tokens cached, %v RPS move for 50 ms, want %v", cached, got, want)
		}
	}
}

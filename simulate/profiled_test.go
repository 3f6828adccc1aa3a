package simulate

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

var bent = fleet.Profile{
	CapacityRps: 8, Reference: fleet.Tokens{Prompt: 1000, Output: 200}, OutputTokenCost: 3,
	TTFT: fleet.Curve{{Utilisation: 0, Seconds: 0.1}, {Utilisation: 0.7, Seconds: 0.2}, {Utilisation: 1, Seconds: 0.8}},
	TBT:  fleet.Curve{{Utilisation: 0, Seconds: 0.02}, {Utilisation: 1, Seconds: 0.04}},
}

// references are requests of the reference's size, as regular as can be.
func references(rps float64) []Request {
	var all []Request
	for i := range 400 {
		all = append(all, Request{At: float64(i) / rps, Key: uint64(i), Prompt: 1000, Output: 200})
	}
	return all
}

// An engine of a profile has its latency at its load, between the knots too.
func TestEngineOfAProfile(t *testing.T) {
	for _, u := range []float64{0.05, 0.5, 0.85} {
		e := EngineOf(&bent, 1_000_000, 16)
		e.Slots, e.Jitter = 1000, 0
		jobs, _ := alone(e, references(u*bent.CapacityRps))
		var ttft, tbt []float64
		for _, j := range jobs[200:300] { // the meter has settled, and more come
			ttft = append(ttft, j.first-j.reached)
			tbt = append(tbt, (j.seen-j.first)/float64(j.Output-1))
		}
		// A request does not meet itself, and the meter falls between two that come: by
		// half a request's work in its window either way.
		slack := 1 / bent.CapacityRps / profiledWindow
		low, high := bent.TTFT.At(u-slack), bent.TTFT.At(u+slack)
		if got := mean(ttft); got < low || got > high {
			t.Errorf("TTFT at %v is %.4f s, want %.4f to %.4f", u, got, low, high)
		}
		low, high = bent.TBT.At(u-slack), bent.TBT.At(u+slack)
		if got := mean(tbt); got < low || got > high {
			t.Errorf("TBT at %v is %.5f s, want %.5f to %.5f", u, got, low, high)
		}
	}
}

// A straight curve is the line.
func TestStraightCurvesAreLines(t *testing.T) {
	line := h100
	line.Reference, line.OutputTokenCost, line.Window, line.Block, line.Slots = fleet.Tokens{Prompt: 1000, Output: 200}, 3, 5, 16, 40
	curve := line
	straight := func(l Line) fleet.Curve {
		return fleet.Curve{{Utilisation: 0, Seconds: l.Idle}, {Utilisation: 1, Seconds: l.Full}}
	}
	curve.TTFT, curve.TBT, curve.TTFTCurve, curve.TBTCurve = Line{}, Line{}, straight(h100.TTFT), straight(h100.TBT)
	ours, _ := alone(curve, references(7))
	theirs, _ := alone(line, references(7))
	for i := range ours {
		if math.Abs(ours[i].first-theirs[i].first) > 1e-9 || math.Abs(ours[i].seen-theirs[i].seen) > 1e-9 {
			t.Fatalf("request %d: %+v and %+v", i, ours[i], theirs[i])
		}
	}
}

// brief is the talk's fleet under made-up conversations for a minute.
func brief(t *testing.T, seed uint64) Config {
	t.Helper()
	s, err := theTalk(sessions, 90)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.config(seed)
	if err != nil {
		t.Fatal(err)
	}
	c.Policy, c.Parts = nearest, 9
	return c
}

func TestPartsAddUp(t *testing.T) {
	c := brief(t, 3)
	for i := range c.Fleet.Pools {
		c.Fleet.Pools[i].PriceSeconds = 0.25
	}
	r, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	arrived, answered, longest := 0, 0, 0.0
	for i, p := range r.Parts {
		arrived += p.Arrived
		answered += int(p.TTFT.Count())
		longest = max(longest, p.EndToEnd.Quantile(1))
		if p.At != float64(i)*10 || len(p.Utilisations) != len(c.Fleet.Pools) {
			t.Errorf("part %d: %+v", i, p)
		}
	}
	if arrived != r.Arrived || answered != r.Served {
		t.Errorf("parts have %d and %d requests, the run %d and %d", arrived, answered, r.Arrived, r.Served)
	}
	// The last three parts are what is measured.
	for k := range c.Fleet.Pools {
		got := (r.Parts[6].Utilisations[k] + r.Parts[7].Utilisations[k] + r.Parts[8].Utilisations[k]) / 3
		if want := r.Utilisations[c.Fleet.Pools[k].ID]; math.Abs(got-want) > 1e-9 {
			t.Errorf("pool %d: utilisation of the parts is %.4f, of the run %.4f", k, got, want)
		}
	}
	if r.PriceSeconds != 0.25 {
		t.Errorf("price = %v s", r.PriceSeconds)
	}
}

func TestWatchEndsARun(t *testing.T) {
	enough := errors.New("enough")
	c := brief(t, 3)
	var seen []float64
	c.Watch = func(seconds float64) error {
		if seen = append(seen, seconds); len(seen) == 3 {
			return enough
		}
		return nil
	}
	if _, err := Run(c); !errors.Is(err, enough) {
		t.Errorf("%v, want the watcher's error", err)
	}
	if diff := cmp.Diff([]float64{2, 4, 6}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Under every policy of a comparison a line is drawn, with a value for each part.
func TestCharts(t *testing.T) {
	c, err := Compare(func(seed uint64) (Config, error) { return brief(t, seed), nil }, []Named{{"nearest", nearest}, {"even", even}}, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	charts := Charts(c, []string{"A", "B", "C"}, 2)
	for name, lines := range map[string]int{"ttft": 2, "end-to-end": 2, "shed": 2, "utilisation-nearest": 3, "utilisation-even": 3} {
		if charts[name] == nil || len(charts[name].Traces) != lines || len(charts[name].Traces[0].Value) != 9 {
			t.Errorf("%s: %+v", name, charts[name])
		}
	}
	if len(charts) != 5 {
		t.Errorf("%d charts", len(charts))
	}
}

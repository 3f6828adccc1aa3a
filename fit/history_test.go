package fit

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/fleet"
)

// hours of traffic that goes from nearly idle to nine tenths of what the file says.
func (g *traffic) hours(n int) []fleet.Span {
	var h []fleet.Span
	for m := range n * 60 {
		h = append(h, g.minute(day(8*m))) // a day in three hours
	}
	return h
}

// TestFitHistory fits profiles to the traffic of engines that are slower than their
// profile, and holds them against the truth.
func TestFitHistory(t *testing.T) {
	const pools = 40
	var capacity, ttft []float64
	refused := 0
	for seed := range uint64(pools) {
		file := someEngine(seed)
		known := file.slower(1.2)
		g := newTraffic(known, seed)
		r, err := FitHistory(g.hours(4), time.Time{}, file.profile(), Options{Resamples: 10})
		if err != nil {
			refused++
			t.Logf("pool %d: %v", seed, err)
			continue
		}
		cross := 0.0 // utilisation, by the file, at which the slower engine breaks the file's target
		for known.ttft.At(cross) < file.ttft.At(1) {
			cross += 1e-4
		}
		capacity = append(capacity, math.Abs(r.Profile.CapacityRps/(cross*file.capacityRps)-1))
		worst := 0.0
		for u := 0.25; u <= 0.85; u += 0.05 {
			worst = max(worst, math.Abs(r.Profile.TTFT.At(u*file.capacityRps/r.Profile.CapacityRps)/known.ttft.At(u)-1))
		}
		ttft = append(ttft, worst)
		if !strings.Contains(string(r.YAML()), "fitted to traffic, not to a benchmark") {
			t.Errorf("%s does not say where it comes from", r.YAML())
		}
	}
	slices.Sort(capacity)
	slices.Sort(ttft)
	at := func(of []float64, part float64) float64 { return of[int(part*float64(len(of)-1))] }
	t.Logf("refused %d of %d; capacity within %.3f (median), %.3f (9 of 10); TTFT at its worst load within %.3f, %.3f", refused, pools, at(capacity, 0.5), at(capacity, 0.9), at(ttft, 0.5), at(ttft, 0.9))
	if refused > pools/10 || at(capacity, 0.9) > 0.08 || at(ttft, 0.9) > 0.1 {
		t.Errorf("want one in ten refused at most, nine of ten capacities within 8 %% and TTFTs within 10 %%")
	}
}

func TestMeasurements(t *testing.T) {
	of := func(change func(i int, s *fleet.Span)) []fleet.Span {
		h := newTraffic(someEngine(3), 1).hours(1)
		for i := range h {
			change(i, &h[i])
		}
		return h
	}
	same := func(int, *fleet.Span) {}
	for name, c := range map[string]struct {
		history []fleet.Span
		from    time.Time
		taken   int
		says    string // in the notes, or in why it is refused
	}{
		"all":       {of(same), time.Time{}, 60, "fitted to traffic"},
		"none":      {nil, time.Time{}, 0, "no history yet"},
		"too few":   {of(same)[:5], time.Time{}, 0, "has 5 spans, and 8 are needed"},
		"too young": {of(same), noon.Add(55 * time.Minute), 0, "has 5 spans since 2026-01-01 12:55:00 UTC"},
		"since":     {of(same), noon.Add(30 * time.Minute), 30, "from 2026-01-01 12:30:00 UTC"},
		"unlike requests": {of(func(i int, s *fleet.Span) {
			if i%4 == 0 {
				s.Tokens.Prompt = 4000
			}
		}), time.Time{}, 45, "15 spans with other requests"},
		"another part cached": {of(func(i int, s *fleet.Span) {
			if s.Tokens.Cached = 600; i%4 == 0 {
				s.Tokens.Cached = 0
			}
		}), time.Time{}, 45, "60 % of the prompts' tokens were found in caches"},
		"a load that rises": {of(func(i int, s *fleet.Span) {
			if i%4 == 0 {
				s.Issued *= 2 // half of it is under way yet
			}
		}), time.Time{}, 45, "15 whose load was not steady"},
		"nothing was sent": {of(func(_ int, s *fleet.Span) { s.Issued = 0 }), time.Time{}, 0, "has 0 spans"},
	} {
		t.Run(name, func(t *testing.T) {
			ms, notes, err := Measurements(c.history, c.from)
			said := strings.Join(notes, "\n")
			if err != nil {
				said = err.Error()
			}
			if len(ms) != c.taken || !strings.Contains(said, c.says) || (err == nil) != (c.taken > 0) {
				t.Errorf("%d measurements, %q, want %d and %q", len(ms), said, c.taken, c.says)
			}
		})
	}
}

// What ends steadily less than begins has a queue that grows: its TTFT is no curve's.
func TestGrowingQueuesAreOverload(t *testing.T) {
	h := newTraffic(someEngine(3), 1).hours(1)
	for i := range h {
		h[i].Issued, h[i].Ended = 1000, 700
	}
	ms, _, err := Measurements(h, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	points, _, err := prepare(ms, Options{}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		if p.Fate != Overloaded {
			t.Fatalf("%+v, want it to be overloaded", p)
		}
	}
}

// Directions count: what caches and sizes of prompts explain is no drift.
func TestDriftThatIsExplained(t *testing.T) {
	known := someEngine(5)
	known.capacityRps = 10
	for name, c := range map[string]struct {
		ttft   float64 // shown / said
		prompt float64
		cached float64
		drifts bool
	}{
		"slower":                            {1.4, 1000, 0, true},
		"faster":                            {0.7, 1000, 0, true},
		"slower, though prompts are cached": {1.4, 1000, 500, true},
		"faster, for prompts are cached":    {0.7, 1000, 500, false},
		"slower, for prompts are longer":    {1.4, 2000, 0, false},
		"slower, prompts cached to size":    {1.4, 2000, 1000, true},
		"faster, though prompts are longer": {0.7, 2000, 0, true},
		"by less than anybody minds":        {1.08, 1000, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTraffic(known, 9)
			var h []fleet.Span
			for range windowSpans {
				s := g.minute(0.3)
				s.TTFT.Seconds *= c.ttft
				s.Tokens.Prompt, s.Tokens.Cached = c.prompt, c.cached
				h = append(h, s)
			}
			p := known.profile()
			p.TTFT = fleet.Curve{{Utilisation: 0, Seconds: p.TTFT.At(0.3)}} // level, for prompts change the load
			for i := range h {
				h[i].TTFT.Seconds *= p.TTFT.At(0) / known.ttft.At(h[i].Rps()/known.capacityRps)
			}
			got := Compare(p, h, g.at, time.Minute)
			if (len(got.Drifts) > 0) != c.drifts || !c.drifts && c.ttft != 1.08 && got.Why == "" {
				t.Errorf("%+v, want a drift: %v, else the reason", got, c.drifts)
			}
		})
	}
}

// Some bad minutes are no drift, nor is what nobody was there to see.
func TestDriftLasts(t *testing.T) {
	known := someEngine(5)
	g := newTraffic(known, 4)
	var h []fleet.Span
	for i := range windowSpans {
		s := g.minute(0.3)
		if i >= 8 && i < 12 {
			s.TTFT.Seconds *= 3
		}
		h = append(h, s)
	}
	if got := Compare(known.profile(), h, g.at, time.Minute).Drifts; len(got) > 0 {
		t.Errorf("four bad minutes are named: %v", got)
	}
	for i := range h {
		h[i].TTFT.Seconds *= 2
	}
	if got := Compare(known.profile(), h, g.at, time.Minute).Drifts; len(got) != 1 {
		t.Errorf("%v, want a drift", got)
	}
	if got := Compare(known.profile(), h, g.at.Add(3*time.Hour), time.Minute); len(got.Drifts) > 0 || got.Spans > 0 {
		t.Errorf("%v rests on what is three hours old", got)
	}
	for i := range h {
		h[i].Issued *= 10
	}
	if got := Compare(known.profile(), h, g.at, time.Minute); got.Spans > 0 || !strings.Contains(got.Why, "more load") {
		t.Errorf("%+v compares loads beyond the capacity", got)
	}
}

func TestAdopt(t *testing.T) {
	file := someEngine(2)
	inForce := file.profile()
	g := newTraffic(file.slower(1.3), 2)
	r, err := FitHistory(g.hours(4), time.Time{}, inForce, Options{Resamples: 20})
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for {
		next, err := Adopt(inForce, r)
		if err != nil {
			if steps == 0 || !strings.Contains(err.Error(), "as the fit") {
				t.Errorf("after %d steps: %v", steps, err)
			}
			break
		}
		if steps++; steps > 20 {
			t.Fatal("it never comes there")
		}
		if change := unlikeness(inForce, &next); change > 1+1e-6 {
			t.Errorf("step %d is %.2f of the most that one may be", steps, change)
		}
		inForce = &next
	}
	t.Logf("%d steps from %.2f rps to %.2f rps", steps, file.capacityRps, inForce.CapacityRps)
	if math.Abs(inForce.CapacityRps/r.Profile.CapacityRps-1) > adoptTrifle {
		t.Errorf("it ends at %v rps, want %v", inForce.CapacityRps, r.Profile.CapacityRps)
	}
	for name, spoil := range map[string]func(r *Result, p *fleet.Profile){
		"uncertain": func(r *Result, _ *fleet.Profile) { r.CapacityRps.High *= 1.3 },
		"unknown":   func(r *Result, _ *fleet.Profile) { r.CapacityRps.Low = math.NaN() },
		"too far":   func(r *Result, _ *fleet.Profile) { r.levels = r.levels[:2] },
		"beside":    func(r *Result, _ *fleet.Profile) { r.TTFTResidual = 0.2 },
		"no TBT":    func(r *Result, p *fleet.Profile) { r.Profile.TBT = nil },
	} {
		bad := *r
		spoil(&bad, inForce)
		if _, err := Adopt(file.profile(), &bad); err == nil {
			t.Errorf("%s: it is adopted", name)
		}
	}
	without := file.profile()
	without.TBT = nil
	if next, err := Adopt(without, r); err != nil || next.TBT != nil {
		t.Errorf("%v, %v: want a step that adds no TBT", next, err)
	}
}

package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/config"
	"weir/fleet"
)

// anEngine draws a known engine and what benchmarks show of it.
func anEngine(t *rapid.T) (truth, []Measurement) {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	known := someTruth(random)
	return known, known.campaign(random, 1+random.IntN(2))
}

func mustFit(t interface{ Fatal(...any) }, ms []Measurement, o Options) *Result {
	r, err := Fit(ms, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The laws of a curve: the solver needs it rising and convex.
func TestCurvesAreConvex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, ms := anEngine(t)
		for i := range ms { // nonsense too: whatever is fitted keeps the laws
			ms[i].TTFTSeconds *= rapid.Float64Range(0.5, 2).Draw(t, "ttft")
			ms[i].TBTSeconds *= rapid.Float64Range(0.5, 2).Draw(t, "tbt")
		}
		r, err := Fit(ms, Options{Resamples: -1, MaxPoints: rapid.IntRange(3, 12).Draw(t, "points")})
		if err != nil {
			return
		}
		for _, c := range []fleet.Curve{r.Profile.TTFT, r.Profile.TBT} {
			if c[0].Utilisation != 0 || !slices.ContainsFunc(c, func(p fleet.CurvePoint) bool { return p.Utilisation == 1 }) {
				t.Errorf("curve %v, want points at 0 and 1", c)
			}
			slope := -1e-9
			for i := 1; i < len(c); i++ {
				next := (c[i].Seconds - c[i-1].Seconds) / (c[i].Utilisation - c[i-1].Utilisation)
				if next < slope-1e-6*c[i].Seconds || c[i-1].Seconds <= 0 {
					t.Errorf("curve %v is not convex and rising at %d", c, i)
				}
				slope = next
			}
		}
		if got := r.Profile.TTFT.At(1); math.Abs(got/r.TargetSeconds-1) > 1e-6 {
			t.Errorf("TTFT at the capacity is %v, want the target %v", got, r.TargetSeconds)
		}
	})
}

func TestOrderAndDuplicatesDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, ms := anEngine(t)
		want := mustFit(t, ms, Options{Resamples: 2})
		other := append(slices.Clone(ms), ms[:rapid.IntRange(0, len(ms)).Draw(t, "twice")]...)
		other = rapid.Permutation(other).Draw(t, "order")
		got := mustFit(t, other, Options{Resamples: 2})
		if diff := cmp.Diff(string(want.YAML()), string(got.YAML())); diff != "" {
			t.Error(diff)
		}
	})
}

// Twice as fast an engine has twice the capacity at half the times; and loads of
// two engines are those of one twice.
func TestUnitsAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, ms := anEngine(t)
		by := rapid.Float64Range(0.01, 100).Draw(t, "by")
		one := mustFit(t, ms, Options{Resamples: -1})
		for i := range ms {
			ms[i].OfferedRps *= 2 * by
			ms[i].TTFTSeconds /= by
			ms[i].TBTSeconds /= by
		}
		fast := mustFit(t, ms, Options{Engines: 2, Resamples: -1})
		near := func(name string, got, want float64) {
			if math.Abs(got/want-1) > 1e-6 {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		near("capacity", fast.Profile.CapacityRps, one.Profile.CapacityRps*by)
		for _, u := range []float64{0, 0.5, 1} {
			near("TTFT", fast.Profile.TTFT.At(u), one.Profile.TTFT.At(u)/by)
			near("TBT", fast.Profile.TBT.At(u), one.Profile.TBT.At(u)/by)
		}
	})
}

// What is written is read as the profile that it was.
func TestYAMLIsAFleetFilesProfile(t *testing.T) {
	around, err := os.ReadFile(filepath.Join("..", "testdata", "fleets", "first.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(around), "    profile:\n")
	_, tail, _ := strings.Cut(rest, "\n\n")
	rapid.Check(t, func(t *rapid.T) {
		_, ms := anEngine(t)
		r := mustFit(t, ms, Options{Resamples: 2})
		indented := "    " + strings.ReplaceAll(strings.TrimSpace(string(r.YAML())), "\n", "\n    ")
		f, err := config.LoadFrom("fitted", strings.NewReader(head+indented+"\n\n"+tail))
		if err != nil {
			t.Fatalf("%v\n%s", err, r.YAML())
		}
		got := f.Pools[0].Profile
		if math.Abs(got.CapacityRps/r.Profile.CapacityRps-1) > 1e-3 || got.Reference != r.Profile.Reference {
			t.Errorf("read %+v, want %+v", got, r.Profile)
		}
		for u := 0.0; u < 1; u += 0.05 {
			if math.Abs(got.TTFT.At(u)/r.Profile.TTFT.At(u)-1) > 2e-3 || math.Abs(got.TBT.At(u)/r.Profile.TBT.At(u)-1) > 2e-3 {
				t.Errorf("curves at %v are read as %v and %v, want %v and %v", u, got.TTFT.At(u), got.TBT.At(u), r.Profile.TTFT.At(u), r.Profile.TBT.At(u))
			}
		}
	})
}

// steady are runs at these loads of an engine that saturates at 10 RPS.
func steady(loads ...float64) []Measurement {
	var ms []Measurement
	for _, l := range loads {
		ms = append(ms, Measurement{
			Source: fmt.Sprintf("%v rps", l), OfferedRps: l, AchievedRps: l, TTFTSeconds: 0.1 + 0.02*l/(11-l), TBTSeconds: 0.02,
			Tokens: fleet.Tokens{Prompt: 1000, Output: 200}, Requests: 1e4,
		})
	}
	return ms
}

// perHour are steady runs in a unit that was taken wrong.
func perHour(loads ...float64) []Measurement {
	ms := steady(loads...)
	for i := range ms {
		ms[i].OfferedRps, ms[i].AchievedRps = ms[i].OfferedRps/12345.678, ms[i].AchievedRps/12345.678
	}
	return ms
}

func overloaded(offered, achieved float64) Measurement {
	return Measurement{
		Source: "overload", OfferedRps: offered, AchievedRps: achieved, TTFTSeconds: 30, TBTSeconds: 0.02,
		Tokens: fleet.Tokens{Prompt: 1000, Output: 200}, Requests: 1e4,
	}
}

func TestCapacityIsBoundBy(t *testing.T) {
	tests := map[string]struct {
		runs    []Measurement
		target  float64
		bound   Bound
		low     float64
		high    float64
		mention string // of a note
	}{
		"the target":                {append(steady(1, 3, 5, 7, 9, 10), overloaded(15, 10.2)), 0.14, ByTarget, 6, 8, ""},
		"saturation":                {append(steady(1, 3, 5, 7, 9), overloaded(15, 10.2)), 0, BySaturation, 10.2, 10.2, ""},
		"all at once":               {append(steady(1, 3, 5, 7, 9), overloaded(math.Inf(1), 10.2)), 0, BySaturation, 10.2, 10.2, ""},
		"saturation, far away":      {append(steady(1, 3, 5, 7, 7.5), overloaded(15, 10.2)), 0, BySaturation, 10.2, 10.2, "nothing was measured between"},
		"the target, a little away": {steady(0.5, 3, 5, 7, 8.5), 0.19, ByExtrapolation, 8.5, 10.7, "is a guess"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := mustFit(t, tt.runs, Options{TargetSeconds: tt.target, Resamples: 10})
			c := r.Profile.CapacityRps
			if r.Bound != tt.bound || c < tt.low || c > tt.high || r.CapacityRps.Low > c || r.CapacityRps.High < c {
				t.Errorf("capacity %v in %v by %s, want %v to %v by %s", c, r.CapacityRps, r.Bound, tt.low, tt.high, tt.bound)
			}
			if got := r.Profile.TTFT.At(1); math.Abs(got/r.TargetSeconds-1) > 1e-6 {
				t.Errorf("TTFT at the capacity is %v, want the target %v", got, r.TargetSeconds)
			}
			if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, tt.mention) {
				t.Errorf("notes %q, want %q", notes, tt.mention)
			}
		})
	}
}

func TestTooLittleIsRefused(t *testing.T) {
	changed := func(change func(*Measurement)) []Measurement {
		ms := steady(1, 3, 5, 7, 9, 10)
		change(&ms[2])
		return ms
	}
	tests := map[string]struct {
		runs   []Measurement
		target float64
		want   string
	}{
		"nothing":             {nil, 0, "0 loads that the engine kept up with are too few for a curve: measure at 6 or more"},
		"three loads":         {steady(1, 1, 5, 9), 0, "3 loads that"},
		"the rest overloaded": {append(steady(1, 5, 9), overloaded(20, 10), overloaded(30, 10)), 0, "(2 more runs were overloaded"},
		"low loads":           {steady(1, 2, 3, 4), 0, "the capacity is not in sight: at the highest load, 4 rps, TTFT is 111ms of a target of"},
		"a narrow range":      {append(steady(1, 2, 3, 4), overloaded(20, 10)), 0, "the loads from 1 to 4 rps are less than half of the capacity of 10 rps: measure the rest too: at 1, "},
		"high loads":          {append(steady(7, 8, 9, 10), overloaded(20, 10.1)), 1, "less than half of the capacity"},
		"too tight a target":  {steady(1, 3, 5, 9), 0.05, "the TTFT target 50ms is not above the TTFT without load"},
		"unlike requests":     {changed(func(m *Measurement) { m.Tokens.Prompt = 4000 }), 0, "5 rps: its requests have 4000 prompt and 200 output tokens, the usual ones 1000 and 200; fit"},
		"no tokens":           {changed(func(m *Measurement) { m.Tokens = fleet.Tokens{} }), 0, "say --tokens PROMPT,OUTPUT"},
		"no TTFT":             {changed(func(m *Measurement) { m.TTFTSeconds = 0 }), 0, "5 rps: TTFT is not known"},
		"no load":             {changed(func(m *Measurement) { m.OfferedRps, m.AchievedRps = 0, 0 }), 0, "5 rps: the load is not known"},
		"failures of unknown": {changed(func(m *Measurement) { m.Failed, m.Requests = 1000, 0 }), 0, "5 rps: 1000 requests failed, and how many did not is not known; give the requests"},
		"an odd unit":         {changed(func(m *Measurement) { m.TTFTSeconds = 1e5 }), 0, "5 rps: 100000 TTFT in seconds cannot be; look at its unit"},
		"too many requests":   {changed(func(m *Measurement) { m.Requests = 1e308 }), 0, "5 rps: 1e+308 completed requests cannot be; look at its unit: 0 to 1e+09 are taken"},
		"too many failures":   {changed(func(m *Measurement) { m.Failed = 1e308 }), 0, "5 rps: 1e+308 failed requests cannot be"},
		"too many clients":    {changed(func(m *Measurement) { m.Concurrency = 1e308 }), 0, "5 rps: 1e+308 requests under way cannot be"},
		"too long":            {changed(func(m *Measurement) { m.DurationSeconds = 1e308 }), 0, "5 rps: 1e+308 seconds of duration cannot be; look at its unit: 0 to 1e+07 are taken"},
		"a long odd value":    {changed(func(m *Measurement) { m.TTFTSeconds = 12345.678912345 }), 0, "5 rps: 12350 TTFT in seconds cannot be; look at its unit: 1e-06 to 3600 are taken"},
		"a long negative":     {changed(func(m *Measurement) { m.TTFTSeconds = -0.00123456789 }), 0, "5 rps: -0.001235 is no measured value"},
		"per hour":            {perHour(1, 3, 5, 7, 9, 10), 0.14, "a capacity of 0.000611 rps is less than a fleet file takes, 0.001 rps; look"},
		"not a number":        {changed(func(m *Measurement) { m.TBTSeconds = math.NaN() }), 0, "5 rps: NaN is no measured value"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Fit(tt.runs, Options{TargetSeconds: tt.target}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// More can be completed than was offered only by chance, of which short runs have more.
func TestAheadOfWhatWasOffered(t *testing.T) {
	tests := map[string]struct {
		offered, achieved, requests float64
		refused                     bool
	}{
		"swapped":                     {1, 10, 1e4, true},
		"swapped, nobody counted":     {1, 10, 0, true},
		"swapped, few":                {1, 10, 10, true},
		"a fifth more":                {10, 12, 1e4, false},
		"somewhat more than a fifth":  {10, 12.1, 1e4, true},
		"a short run by chance":       {1, 1.3, 10, false},
		"so much is no chance":        {1, 1.3, 1e3, true},
		"nothing was offered as such": {0, 10, 1e4, false},
		"all at once":                 {math.Inf(1), 10, 1e4, false},
		"nobody says what came of it": {10, 0, 1e4, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := steady(1)[0]
			m.OfferedRps, m.AchievedRps, m.Requests = tt.offered, tt.achieved, tt.requests
			if err := m.check(); (err != nil) != tt.refused {
				t.Errorf("error %v, want one: %v", err, tt.refused)
			}
		})
	}
}

// What becomes of runs that are not like the others.
func TestFates(t *testing.T) {
	burst := overloaded(math.Inf(1), 1.25) // five at once are no load
	burst.Source, burst.Requests, burst.TTFTSeconds = "burst", 5, 0.1
	ms := append(steady(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), overloaded(20, 10), burst)
	ms[0].TTFTSeconds *= 3
	ms[4].Failed = 2000
	ms[6].Failed, ms[6].Requests, ms[6].DurationSeconds = 1, 0, 100 // of seven hundred, by its rate
	r := mustFit(t, ms, Options{TargetSeconds: 0.25})
	fates := map[string]Fate{}
	for _, p := range r.Points {
		fates[p.Source] = p.Fate
	}
	want := map[string]Fate{"1 rps": Outlier, "5 rps": Failing, "overload": Overloaded, "burst": Burst}
	for _, m := range ms {
		wanted := want[m.Source]
		if wanted == "" {
			wanted = Used
		}
		if fates[m.Source] != wanted {
			t.Errorf("%s is %q, want %s", m.Source, fates[m.Source], wanted)
		}
	}
	if got := r.UnloadedSeconds; math.Abs(got/0.1-1) > 0.03 {
		t.Errorf("TTFT without load is %v: the cold start was not left out", got)
	}
}

// Clients that wait for their answers: more of them bring no more, in the end.
func TestConcurrency(t *testing.T) {
	var ms []Measurement
	for _, c := range [][3]float64{{1, 0.9, 0.1}, {2, 1.8, 0.102}, {4, 3.5, 0.106}, {8, 6.3, 0.115}, {16, 8.8, 0.14}, {32, 9.9, 0.2}, {64, 10, 3}, {128, 10, 9}} {
		ms = append(ms, Measurement{Concurrency: c[0], AchievedRps: c[1], TTFTSeconds: c[2], Tokens: fleet.Tokens{Prompt: 100, Output: 10}})
	}
	r := mustFit(t, ms, Options{})
	if r.Bound != BySaturation || r.Profile.CapacityRps != 10 || r.Profile.TBT != nil {
		t.Errorf("capacity %v by %s, TBT %v, want 10 by saturation and none", r.Profile.CapacityRps, r.Bound, r.Profile.TBT)
	}
}

func TestNonNegative(t *testing.T) {
	// (c0 − 3)² + (c1 + 2)², coupled by nothing: 3 and 0.
	got := nonNegative([][]float64{{1, 0}, {0, 1}}, []float64{3, -2})
	if diff := cmp.Diff([]float64{3, 0}, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); diff != "" {
		t.Error(diff)
	}
}

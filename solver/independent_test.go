package solver

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"weir/fleet"
)

// python finds an interpreter that has HiGHS.
func python(t *testing.T) string {
	path := os.Getenv("WEIR_PYTHON")
	if path == "" {
		var err error
		if path, err = filepath.Abs("../.venv/bin/python3"); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(path, "-c", "import highspy, numpy").CombinedOutput(); err != nil {
		t.Skipf("the independent model needs a Python with highspy and numpy at $WEIR_PYTHON or .venv/bin/python3, which make setup provides: %v %s", err, out)
	}
	return path
}

// answer is what a model says of a fleet. Cost is Σ rps × (network + base) +
// waiting + churn; what refusals are priced at stands apart, since it would hide
// everything else.
type answer struct {
	Cost     float64 `json:"cost"`
	ShedCost float64 `json:"shedCost"`
}

func TestIndependentModelAgrees(t *testing.T) {
	const fleets = 1000
	interpreter := python(t)
	var input, complaints bytes.Buffer
	var want []answer
	for i := range fleets {
		s := states.Example(i)
		want = append(want, ours(t, s))
		if err := json.NewEncoder(&input).Encode(dump(s)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), interpreter, "testdata/independent.py")
	cmd.Stdin, cmd.Stderr = &input, &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &complaints)
	}
	shedding := 0
	decoder := json.NewDecoder(bytes.NewReader(out))
	for i := range fleets {
		var got answer
		if err := decoder.Decode(&got); err != nil {
			t.Fatal(err)
		}
		compare(t, i, want[i], got)
		if want[i].ShedCost > 0 {
			shedding++
		}
	}
	if shedding < fleets/10 || shedding > fleets*9/10 {
		t.Errorf("%d of %d fleets shed: too one-sided a test", shedding, fleets)
	}
}

func compare(t *testing.T, fleet int, ours, theirs answer) {
	t.Helper()
	if !agree(ours.Cost, theirs.Cost) || !agree(ours.ShedCost, theirs.ShedCost) {
		t.Errorf("fleet %d: cost %v and %v for shedding, independently %v and %v",
			fleet, ours.Cost, ours.ShedCost, theirs.Cost, theirs.ShedCost)
	}
}

func agree(a, b float64) bool {
	return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b), 1e-3)
}

func ours(t *testing.T, s *fleet.State) answer {
	p := newProgram(newModel(s))
	solution, err := p.solve(solve)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{Cost: solution.Objective}
	for _, c := range p.sheds {
		cost := solution.X[c.column] * p.Columns[c.column].Cost
		a.Cost -= cost
		a.ShedCost += cost
	}
	return a
}

// The dump is the fleet and the beliefs as they are, nothing of our model.
type (
	dumpedFleet struct {
		Headroom float64        `json:"headroom"`
		Churn    float64        `json:"churn"`
		Halving  float64        `json:"halving"`
		Elapsed  float64        `json:"elapsed"`
		Limits   []dumpedLimit  `json:"limits"`
		Pools    []dumpedPool   `json:"pools"`
		Classes  []dumpedClass  `json:"classes"`
		Streams  []dumpedStream `json:"streams"`
	}
	dumpedPool struct {
		Models          []string     `json:"models"`
		Region          string       `json:"region"`
		Engines         []string     `json:"engines"` // readiness of each
		Health          float64      `json:"health"`
		Factor          float64      `json:"factor"`
		CapacityRps     float64      `json:"capacityRps"`
		Reference       [3]float64   `json:"reference"` // prompt, output, cached
		CacheStated     bool         `json:"cacheStated"`
		OutputTokenCost float64      `json:"outputTokenCost"`
		Price           float64      `json:"price"`
		MinRps          float64      `json:"minRps"`
		MaxRps          float64      `json:"maxRps"`
		TTFT            [][2]float64 `json:"ttft"`
		TBT             [][2]float64 `json:"tbt"`
	}
	dumpedClass struct {
		Models   []string   `json:"models"`
		Regions  []string   `json:"regions"`
		Priority int        `json:"priority"`
		Tokens   [3]float64 `json:"tokens"` // prompt, output, cached
		Weights  [2]float64 `json:"weights"`
	}
	dumpedStream struct {
		FrontEnd string    `json:"frontEnd"`
		Class    int       `json:"class"`
		Rps      float64   `json:"rps"`
		Network  []float64 `json:"network"`  // by pool
		Noise    []float64 `json:"noise"`    // of it
		Previous []float64 `json:"previous"` // share by pool; none: nothing was admitted before
		Settled  float64   `json:"settled"`
	}
	dumpedLimit struct {
		FrontEnd string  `json:"frontEnd"`
		Class    *int    `json:"class"` // none: all
		Pool     int     `json:"pool"`
		Min      float64 `json:"min"`
		Max      float64 `json:"max"`
	}
)

func dump(s *fleet.State) dumpedFleet {
	o := &s.Fleet.Options
	out := dumpedFleet{
		Headroom: o.Headroom, Churn: o.ChurnSeconds, Halving: o.ChurnHalving.Seconds(), Elapsed: s.ElapsedSeconds,
		Limits: dumpLimits(s.Fleet),
	}
	for i := range s.Fleet.Pools {
		out.Pools = append(out.Pools, dumpPool(s, &s.Fleet.Pools[i]))
	}
	for i := range s.Fleet.Classes {
		c := &s.Fleet.Classes[i]
		size := s.TokensOf(c)
		out.Classes = append(out.Classes, dumpedClass{
			Models:   c.Models(),
			Regions:  c.Requires.Regions,
			Priority: c.Priority,
			Tokens:   [3]float64{size.Prompt, size.Output, size.Cached},
			Weights:  [2]float64{c.Weights.TTFT, c.Weights.TBT},
		})
	}
	for _, f := range s.Fleet.FrontEnds {
		for i := range s.Fleet.Classes {
			out.Streams = append(out.Streams, dumpStream(s, f.ID, i))
		}
	}
	return out
}

func dumpLimits(f *fleet.Fleet) []dumpedLimit {
	out := []dumpedLimit{}
	for _, l := range f.Limits {
		dumped := dumpedLimit{FrontEnd: string(l.FrontEnd), Min: l.Min, Max: l.Max}
		dumped.Pool = slices.IndexFunc(f.Pools, func(p fleet.Pool) bool { return p.ID == l.Pool })
		if i := slices.IndexFunc(f.Classes, func(c fleet.Class) bool { return c.ID == l.Class }); i >= 0 {
			dumped.Class = &i
		}
		out = append(out, dumped)
	}
	return out
}

func dumpPool(s *fleet.State, p *fleet.Pool) dumpedPool {
	points := func(c fleet.Curve) [][2]float64 {
		out := [][2]float64{}
		for _, point := range c {
			out = append(out, [2]float64{point.Utilisation, point.Seconds})
		}
		return out
	}
	out := dumpedPool{
		Models:          p.Models,
		Region:          p.Region,
		Health:          s.Pools[p.ID].Health,
		Factor:          s.Pools[p.ID].CapacityFactor,
		CapacityRps:     p.Profile.CapacityRps,
		Reference:       [3]float64{p.Profile.Reference.Prompt, p.Profile.Reference.Output, p.Profile.Reference.Cached},
		CacheStated:     p.Profile.CacheStated,
		OutputTokenCost: p.Profile.OutputTokenCost,
		Price:           p.PriceSeconds,
		MinRps:          p.MinRps,
		MaxRps:          p.MaxRps,
		TTFT:            points(p.Profile.TTFT),
		TBT:             points(p.Profile.TBT),
	}
	for _, e := range p.Engines {
		out.Engines = append(out.Engines, s.Readiness(p.ID, e).String())
	}
	return out
}

func dumpStream(s *fleet.State, f fleet.FrontEndID, class int) dumpedStream {
	id := fleet.Stream{FrontEnd: f, Class: s.Fleet.Classes[class].ID}
	out := dumpedStream{FrontEnd: string(f), Class: class, Rps: s.Demand[id].Rps}
	var previous *fleet.Route
	if s.Previous != nil {
		previous = s.Previous.Route(id)
	}
	if previous != nil {
		out.Settled = previous.SettledSeconds
	}
	for _, p := range s.Fleet.Pools {
		link := fleet.Link{FrontEnd: f, Pool: p.ID}
		rtt := s.Fleet.Network.RoundTripSeconds[link]
		if measured, ok := s.Network[link]; ok && s.Fleet.Network.Measured {
			rtt = measured
		}
		out.Network = append(out.Network, rtt)
		noise := s.NetworkNoise[link]
		if !s.Fleet.Network.Measured {
			noise = 0
		}
		out.Noise = append(out.Noise, noise)
		if previous != nil && previous.ShedRps < previous.DemandRps {
			out.Previous = append(out.Previous, previous.ShareOf(p.ID))
		}
	}
	return out
}

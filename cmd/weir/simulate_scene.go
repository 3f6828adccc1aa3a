package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"weir/fleet"
	"weir/simulate"
)

const (
	maxRequests     = 5_000_000   // of one run: what is kept of each bounds the memory
	sampleRows      = 20_000      // of a trace, for measuring how much an engine holds
	sampleTokens    = 500_000_000 // of their prompts
	sessionSeconds  = 240
	mostWarmUp      = 60    // seconds
	longestTokens   = 16000 // a made-up conversation that has reached them ends
	drainSeconds    = 600   // that requests under way at the end are waited for
	labSeed         = 99
	sessionBlock    = 128 // tokens
	networkNoise    = 0.05
	controlSeconds  = 0.05
	planningSeconds = 0.02
)

// scene is all of a simulation but policy and seed.
type scene struct {
	fleet    *fleet.Fleet
	file     string
	traffic  string // what to call it
	engines  map[fleet.PoolID]simulate.Engine
	workload func(seed uint64) (simulate.Workload, error)
	lab      func(rps float64) (simulate.Workload, error) // the same for one engine
	block    int                                          // tokens of a block of the KV cache
	rps      float64
	seconds  float64
	warmUp   float64
	parts    int
	notes    []string
}

// config is that of a run, but for its policy.
func (sc *scene) config(seed uint64) (simulate.Config, error) {
	w, err := sc.workload(seed)
	return simulate.Config{
		Fleet: sc.fleet, Engines: sc.engines, Workload: w, Seed: seed,
		Seconds: sc.seconds, WarmUpSeconds: sc.warmUp, DrainSeconds: drainSeconds,
		Delays: simulate.Delays{NetworkNoise: networkNoise, ControlWay: controlSeconds, Planning: planningSeconds},
		Parts:  sc.parts,
	}, err
}

// scene reads what a simulation needs.
func (s *simulation) scene(c *cobra.Command, file string) (*scene, error) {
	if file == "-" && s.trace == "-" {
		return nil, usage("fleet and trace cannot both be standard input")
	}
	f, name, err := loadFleet(c, file)
	if err != nil {
		return nil, err
	}
	sc := &scene{fleet: f, file: name}
	m, err := s.mapping.parse()
	if err != nil {
		return nil, err
	}
	if s.sessions {
		err = s.talk(sc, m)
	} else {
		err = s.replay(sc, m, c.InOrStdin())
	}
	if err != nil {
		return nil, err
	}
	if err := s.times(sc, c.Flags().Changed("warm-up")); err != nil {
		return nil, err
	}
	return sc, s.model(c, sc)
}

// times settles how long the run is, and its warm-up: none is one, if it was asked for.
func (s *simulation) times(sc *scene, warmUpGiven bool) error {
	if s.duration > 0 {
		sc.seconds = s.duration.Seconds()
	}
	sc.warmUp = min(mostWarmUp, sc.seconds/4)
	if warmUpGiven {
		sc.warmUp = s.warmUp.Seconds()
	}
	switch n := sc.rps * sc.seconds; {
	case sc.warmUp >= sc.seconds:
		return usage("--warm-up %v: requests come for %.3g s only, so nothing would be measured", s.warmUp, sc.seconds)
	case n > maxRequests:
		return usage("%.3g requests a run are more than %d: say a shorter --duration or a lower --rate", n, maxRequests)
	}
	return nil
}

// replay makes a trace the traffic of a scene.
func (s *simulation) replay(sc *scene, m *simulate.Mapping, stdin io.Reader) error {
	t, name, err := readTrace(s.trace, stdin)
	if err != nil {
		return err
	}
	mix, marked, err := m.Mix(sc.fleet, t)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	lasts := simulate.Lasts(t.Rows)
	if !(lasts > 0) {
		return fmt.Errorf("%s: the trace has no two rows at different times; record more requests", name)
	}
	own := float64(len(t.Rows)) / lasts
	if sc.rps, err = s.rateOf(own); err != nil {
		return err
	}
	speed := sc.rps / own
	sc.traffic, sc.seconds, sc.block = name, lasts/speed, t.BlockTokens
	of := simulate.Replay{Rows: t.Rows, Mix: mix, Marked: marked, BlockTokens: t.BlockTokens, Speed: speed}
	sc.workload, sc.lab = of.New, labOf(t, speed)
	return nil
}

// labOf makes the workload of one engine of a trace: a part of its conversations, as
// fast as they come in the whole.
func labOf(t *simulate.Trace, speed float64) func(rps float64) (simulate.Workload, error) {
	rows := sample(t.Rows)
	own := speed * float64(len(rows)) / simulate.Lasts(rows)
	return func(rps float64) (simulate.Workload, error) {
		busy := max(own, rps)
		mix := simulate.Mix{Sources: []simulate.Source{{Rps: busy}}}
		return simulate.Replay{Rows: rows, Mix: mix, BlockTokens: t.BlockTokens, Keep: rps / busy}.New(labSeed)
	}
}

// sample is the start of a trace, as long as it is worth.
func sample(rows []simulate.Row) []simulate.Row {
	tokens := 0
	for i := range rows {
		tokens += rows[i].Prompt
		if i >= 2 && (i == sampleRows || tokens > sampleTokens) && rows[i-1].At > 0 {
			return rows[:i]
		}
	}
	return rows
}

func readTrace(file string, stdin io.Reader) (*simulate.Trace, string, error) {
	from, name := stdin, "standard input"
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, file, err
		}
		defer f.Close()
		from, name = f, file
	}
	t, err := simulate.ReadTrace(from)
	if err != nil {
		return nil, name, fmt.Errorf("%s: %w", name, err)
	}
	return t, name, nil
}

// talk makes made-up conversations the traffic of a scene.
func (s *simulation) talk(sc *scene, m *simulate.Mapping) error {
	mix, _, err := m.Mix(sc.fleet, &simulate.Trace{Rows: make([]simulate.Row, 1)})
	if err != nil {
		return fmt.Errorf("%s: made-up conversations: %w", sc.file, err)
	}
	declared := 0.0
	for i := range sc.fleet.FrontEnds {
		for _, rps := range sc.fleet.FrontEnds[i].Demand {
			declared += rps
		}
	}
	if sc.rps, err = s.rateOf(declared); err != nil {
		return err
	}
	of := s.talks
	of.Prompt.Sigma, of.Output.Sigma = 1, 0.8
	of.AnswerSeconds, of.Longest, of.BlockTokens = 5, longestTokens, sessionBlock
	of.Mix = mix.Scaled(sc.rps / mix.Rps())
	if n := of.UnderWay(); n > simulate.MaxTalks {
		return usage("%.3g conversations under way at once are more than %d: say a lower --rate or fewer --think-seconds", n, simulate.MaxTalks)
	}
	sc.traffic, sc.seconds, sc.block = "made-up conversations", sessionSeconds, sessionBlock
	sc.workload = of.New
	sc.lab = func(rps float64) (simulate.Workload, error) {
		one := of
		one.Mix = simulate.Mix{Sources: []simulate.Source{{Rps: rps}}}
		return one.New(labSeed)
	}
	return nil
}

// rateOf is how many requests are to come, by the rate that was asked for.
func (s *simulation) rateOf(own float64) (float64, error) {
	text := strings.TrimSpace(s.rate)
	number, isRate := strings.CutSuffix(text, "rps")
	by, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(number, "x")), 64)
	if err != nil || !(by > 0 && by <= 1e9) {
		return 0, usage("--rate %q: write a factor like 2x, or a rate like 40rps", s.rate)
	}
	if isRate {
		return by, nil
	}
	if own == 0 {
		return 0, usage("the fleet file declares no demand: declare it, or say --rate like 40rps")
	}
	return by * own, nil
}

// model makes the engines of every pool by its profile.
func (s *simulation) model(c *cobra.Command, sc *scene) error {
	sc.engines = map[fleet.PoolID]simulate.Engine{}
	slots := map[string]int{} // by profile
	var timeless []string
	for i := range sc.fleet.Pools {
		if err := c.Context().Err(); err != nil {
			return fmt.Errorf("interrupted: %w", err)
		}
		p := &sc.fleet.Pools[i]
		if len(p.Engines) == 0 {
			return fmt.Errorf("%s: pool %q has no engine: a simulation finds none, so list as many as it is to have, at any addresses", sc.file, p.ID)
		}
		e := simulate.EngineOf(&p.Profile, s.kvTokens, sc.block)
		same := fmt.Sprint(p.Profile)
		if slots[same] = cmp.Or(slots[same], s.slots); slots[same] == 0 {
			n, err := simulate.SlotsFor(e, sc.lab, labSeed)
			if err != nil {
				return fmt.Errorf("%s: pool %q: %w; say --slots", sc.file, p.ID, err)
			}
			slots[same] = n
		}
		e.Slots = slots[same]
		sc.engines[p.ID] = e
		if len(p.Profile.TBT) == 0 {
			timeless = append(timeless, string(p.ID))
		}
	}
	if len(timeless) > 0 {
		sc.notes = append(sc.notes, "profiles without tbt, whose engines are simulated as if they decoded in no time: "+strings.Join(timeless, ", "))
	}
	return nil
}

// parse reads what was said of a mapping.
func (m *mappingFlags) parse() (*simulate.Mapping, error) {
	out := &simulate.Mapping{}
	var errs [4]error
	out.FrontEnds.Names, errs[0] = pairs("--map-front-end", m.mapFrontEnds)
	out.Classes.Names, errs[1] = pairs("--map-class", m.mapClasses)
	out.FrontEnds.Spread, errs[2] = weights("--front-end", m.frontEnds)
	out.Classes.Spread, errs[3] = weights("--class", m.classes)
	return out, errors.Join(errs[:]...)
}

func pairs(flag string, texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		i := strings.LastIndex(text, "=")
		if i < 1 || i == len(text)-1 {
			return nil, usage("%s %q: write NAME=NAME, that of the trace first", flag, text)
		}
		out[text[:i]] = text[i+1:]
	}
	return out, nil
}

func weights(flag string, texts []string) (map[string]float64, error) {
	out := map[string]float64{}
	for _, text := range texts {
		name, number, given := strings.Cut(text, "=")
		weight := 1.0
		if given {
			var err error
			if weight, err = strconv.ParseFloat(number, 64); err != nil || math.IsNaN(weight) {
				return nil, usage("%s %q: write NAME, or NAME=WEIGHT", flag, text)
			}
		}
		out[name] = weight
	}
	return out, nil
}

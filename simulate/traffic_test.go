package simulate

import (
	"cmp"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"weir/fleet"
)

// cases is where the recorded traces of others are, read there and not copied.
const cases = "../../shared/cases/traces"

// traffic is a kind of workload.
type traffic struct {
	name  string
	block int     // tokens of a block of the KV cache
	light float64 // requests that cost as much as one of 1,000 and 200 tokens, about
	// of makes the workload of a mix. keep above 0 thins it: so many of the
	// conversations are left.
	of func(m Mix, keep float64, seed uint64) (Workload, error)
}

// sessions are made-up conversations, which find most of their history cached.
var sessions = traffic{"sessions", 128, 1.7, func(m Mix, keep float64, seed uint64) (Workload, error) {
	return Sessions{
		Mix: m.Scaled(cmp.Or(keep, 1)), Turns: 4, ThinkSeconds: 8, AnswerSeconds: 5, System: 256,
		Prompt: Sizes{300, 1}, Output: Sizes{200, 0.8}, Longest: 16000, BlockTokens: 128,
	}.New(seed)
}}

// replayed is a recorded trace.
func replayed(name string, rows []Row, block int, light float64) traffic {
	return traffic{name, max(1, block), light, func(m Mix, keep float64, seed uint64) (Workload, error) {
		return Replay{Rows: rows, Mix: m, BlockTokens: block, Keep: keep}.New(seed)
	}}
}

// azure is the arrivals and sizes of Azure's conversations, which know of no prefix.
func azure(t *testing.T) traffic {
	return replayed("azure", readTrace(t, "azure-llm-2023-conv.csv", ReadAzure), 0, 0.9)
}

// mooncake is Mooncake's conversations: long prompts that repeat others' starts.
func mooncake(t *testing.T) traffic {
	return replayed("mooncake", readTrace(t, "mooncake-fast25-conversation-first30min.jsonl", ReadMooncake), 512, 0.13)
}

// readTrace skips the test where the trace is missing.
func readTrace(t *testing.T, name string, read func(io.Reader) ([]Row, error)) []Row {
	t.Helper()
	f, err := os.Open(filepath.Join(cases, name))
	if err != nil {
		t.Skipf("the trace is not here: %v", err)
	}
	defer f.Close()
	rows, err := read(f)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Kinds of engines, by what they do with a prompt of 1,000 tokens and an answer of
// 200.
var (
	b200    = Engine{CapacityRps: 14, TTFT: Line{0.08, 0.25}, TBT: Line{0.012, 0.028}, KVTokens: 1_600_000}
	h100    = Engine{CapacityRps: 8, TTFT: Line{0.12, 0.40}, TBT: Line{0.018, 0.040}, KVTokens: 800_000}
	a100    = Engine{CapacityRps: 4, TTFT: Line{0.25, 0.80}, TBT: Line{0.030, 0.060}, KVTokens: 400_000}
	l40s    = Engine{CapacityRps: 2, TTFT: Line{0.40, 1.20}, TBT: Line{0.045, 0.090}, KVTokens: 200_000}
	talkGPU = Engine{CapacityRps: 25, TTFT: Line{0.20, 0.25}, TBT: Line{0.010, 0.012}, KVTokens: 2_000_000}
)

// machine is a kind of engine under some traffic, and what is believed of it.
type machine struct {
	Engine
	profile fleet.Profile
}

// fitted makes an engine of a kind whose batch fits the traffic, and measures it as an
// operator would. It gets a part of the traffic of a fleet that is asked for so many
// requests of the usual size a second.
func (k traffic) fitted(e Engine, asked float64) (machine, error) {
	busy := asked * k.light
	e.Reference, e.OutputTokenCost = fleet.Tokens{Prompt: 1000, Output: 200}, 3
	e.Window, e.Block, e.Jitter = 5, k.block, 0.1
	lab := func(rps float64) (Workload, error) {
		return k.of(Mix{Sources: []Source{{Rps: busy}}}, rps/busy, 99)
	}
	var err error
	if e.Slots, err = SlotsFor(e, lab, 1); err != nil {
		return machine{}, err
	}
	p, err := Fit(e, lab, 1)
	return machine{e, p}, err
}

func TestSessionsRefuse(t *testing.T) {
	for name, spoil := range map[string]func(*Sessions){
		"less than no system prompt": func(s *Sessions) { s.System = -1000 },
		"endless thought":            func(s *Sessions) { s.ThinkSeconds = math.Inf(1) },
		"a million at once":          func(s *Sessions) { s.ThinkSeconds = MaxTalks / 10 },
		"endless answers":            func(s *Sessions) { s.AnswerSeconds = math.Inf(1) },
		"endless prompts":            func(s *Sessions) { s.Prompt.Mean = math.Inf(1) },
		"no number":                  func(s *Sessions) { s.Output.Mean = math.NaN() },
		"no turn":                    func(s *Sessions) { s.Turns = 0 },
	} {
		s := Sessions{
			Mix: Mix{Sources: []Source{{Rps: 10}}}, Turns: 4, ThinkSeconds: 8, AnswerSeconds: 5,
			Prompt: Sizes{300, 1}, Output: Sizes{200, 0.8}, Longest: 16000, BlockTokens: 128,
		}
		if _, err := s.New(1); err != nil {
			t.Fatal(err)
		}
		spoil(&s)
		if _, err := s.New(1); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

func TestFittedProfilesTellTheEngine(t *testing.T) {
	m, err := sessions.fitted(h100, 500)
	if err != nil {
		t.Fatal(err)
	}
	p := m.profile
	rising := slices.IsSortedFunc(p.TBT, func(a, b fleet.CurvePoint) int { return cmp.Compare(a.Seconds, b.Seconds) })
	if !rising {
		t.Errorf("TBT falls under load: %v", p.TBT)
	}
	if got, want := p.TBT.At(1), h100.TBT.At(1); math.Abs(got/want-1) > 0.06 {
		t.Errorf("TBT is %.4f s at utilisation 1, the engine's is %.4f s", got, want)
	}
	// A prompt repeats most of what was said: more requests fit than without a cache.
	whole := h100.CapacityRps * 1600 / (p.Reference.Prompt + 3*p.Reference.Output)
	if p.CapacityRps < 1.3*whole {
		t.Errorf("%.1f RPS fit, %.1f would without any cache", p.CapacityRps, whole)
	}
	if knee := p.TTFT.At(1) / p.TTFT.At(0.1); knee < 1.5 {
		t.Errorf("the TTFT hardly rises under load: %v", p.TTFT)
	}
}

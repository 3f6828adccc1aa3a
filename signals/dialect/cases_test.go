package dialect_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/signals/dialect"
)

// read is a page as a user sees it; nil stands for unknown.
type read struct {
	Dialect                       string
	Running, Waiting, KVUsage     any
	TTFT, TBT                     any // means, seconds
	PromptTokens, GeneratedTokens any
	Dropped                       int
}

func view(p *dialect.Page) read {
	v := &p.Values
	return read{
		p.Dialect, shown(v.Running), shown(v.Waiting), shown(v.KVUsage), shown(v.TTFT.Mean()), shown(v.TBT.Mean()),
		shown(v.PromptTokens), shown(v.GeneratedTokens), p.Dropped,
	}
}

// shown is a value, to nine digits.
func shown(v dialect.Value) any {
	if !v.Known() {
		return nil
	}
	if v.X == 0 {
		return 0.0
	}
	digits := math.Pow(10, 9-math.Ceil(math.Log10(math.Abs(v.X))))
	return math.Round(v.X*digits) / digits
}

func TestDialectCasesShared(t *testing.T) {
	const dir = "../../../shared/cases/metrics"
	want := map[string]read{
		"vllm-0.5-before-first-request-no-samples.prom": {Dialect: "vllm"},
		"vllm-0.6.3.post1.prom":                         {"vllm", 3.0, 1.0, 0.388494878, 1.99 / 3, 0.032, 512.0, 37.0, 0},
		"vllm-0.8.5.prom":                               {"vllm", 3.0, 1.0, 0.4219, 0.148, 9.153 / 359, 1020.0, 364.0, 0},
		"vllm-0.10.2.prom":                              {"vllm", 3.0, 1.0, 0.4219, 0.148, 9.153 / 359, 1020.0, 364.0, 0},
		"vllm-0.33.0.prom":                              {"vllm", 3.0, 1.0, 0.4219, 0.148, 9.153 / 359, 1020.0, 364.0, 0},
		"vllm-0.33.0-dp2.prom":                          {"vllm", 7.0, 1.0, 0.87, 0.148, 9.153 / 359, 2040.0, 728.0, 0},
		"vllm-0.33.0-idle.prom":                         {"vllm", 0.0, 0.0, 0.0, nil, nil, 0.0, 0.0, 0},
		"sglang-0.4.10.post2.prom":                      {"sglang", 12.0, 3.0, 0.28, 0.215, 0.02, 3015.0, 735.0, 0},
		"sglang-0.5.23.prom":                            {"sglang", 12.0, 3.0, 0.28, 0.215, 0.02, 3015.0, 735.0, 0},
		"sglang-0.5.23-idle.prom":                       {"sglang", 0.0, 0.0, 0.0, nil, nil, nil, nil, 0},
		"tgi-3.3-composed.prom":                         {"tgi", 6.0, 2.0, nil, nil, 0.07 / 3, nil, nil, 0},
		"trtllm-serve-2026-gauges-composed.prom":        {"trtllm", 5.0, 2.0, 0.4875, nil, nil, nil, nil, 0},
		"triton-trtllm-backend-readme-v1.prom":          {Dialect: "triton"},
		"llamacpp-2026-composed.prom":                   {"llamacpp", 4.0, 46.0, nil, nil, nil, 6886.0, 3469.0, 0},
		"dynamo-frontend-2026-01.prom":                  {"dynamo", 0.0, 0.0, nil, 1.562570157, 0.612691729 / 299, 33.0, 300.0, 0},
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.prom"))
	if err != nil || len(pages) == 0 {
		t.Skipf("no pages of engines in %s", dir)
	}
	for _, path := range pages {
		name := filepath.Base(path)
		w, ok := want[name]
		if !ok {
			t.Logf("%s: no values to compare with", name)
			continue
		}
		w.TTFT, w.TBT = rounded(w.TTFT), rounded(w.TBT)
		comparePage(t, path, w)
	}
}

func rounded(x any) any {
	if x == nil {
		return nil
	}
	return shown(dialect.Is(x.(float64)))
}

func comparePage(t *testing.T, path string, want read) {
	t.Run(filepath.Base(path), func(t *testing.T) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p, err := dialect.NewReader(dialect.NewTable(dialect.Dialects()...)).Read(f, "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(view(&p), want); diff != "" {
			t.Errorf("values (-got +want):\n%s\nnotes: %q", diff, p.Notes)
		}
	})
}

// Fixtures of our own stand beside what must be read from them.
func TestFixtures(t *testing.T) {
	text, err := os.ReadFile("testdata/want.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]read
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("testdata/*.prom")
	if err != nil || len(pages) != len(want) {
		t.Fatalf("%d pages in testdata, want %d: %v", len(pages), len(want), err)
	}
	for _, path := range pages {
		w := want[filepath.Base(path)]
		w.TTFT, w.TBT = rounded(w.TTFT), rounded(w.TBT)
		comparePage(t, path, w)
	}
}

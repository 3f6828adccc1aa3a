package deploy

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weir/deploy/figures"
	"weir/deploy/stage"
	"weir/fit"
	"weir/fleet"
)

// toolsVariable names the Python that has inference-perf.
const toolsVariable = "WEIR_INFERENCE_PERF"

// The mock engine that inference-perf measures: TTFT rises in a straight line to four times
// the unloaded one, which is what capacity keeps to, at so many requests per second.
const (
	toolCapacity = 20
	toolIdle     = 50 * time.Millisecond
	toolTBT      = 10 * time.Millisecond
)

// Profiles that weir fit makes of what inference-perf itself wrote of a mock engine are that
// engine's, and of a llama.cpp engine it makes one. Results are kept beside the figures.
func TestFitByInferencePerf(t *testing.T) {
	path, python := os.Getenv(figures.Variable), os.Getenv(toolsVariable)
	if path == "" || python == "" {
		t.Skip("wants inference-perf, which is large: use make test-fit-tools")
	}
	f := figures.Report{Target: "test-fit-tools"}
	results := filepath.Dir(path)
	t.Run("mock", func(t *testing.T) {
		s := start(t, stage.Options{FleetFile: "testdata/llama.yaml", EngineFlags: func(fleet.PoolID) []string {
			return []string{
				"--capacity", fmt.Sprint(toolCapacity), "--ttft", toolIdle.String(), "--ttft-full", (fit.DefaultTargetMultiple * toolIdle).String(), "--tbt", toolTBT.String(),
				"--window", "500ms",
			} // much less than a stage of the tool lasts
		}})
		p := fitByTool(t, s, python, filepath.Join(results, "inference-perf-mock"), "--words", "--rates", "1,4,7,10,13,16,19,22,25")
		off := func(what string, got, want float64) {
			f.AtMost("mock: "+what+" is off by", math.Abs(got/want-1), "of 1", 0.1)
		}
		idle := toolIdle.Seconds()
		off("capacity", p.CapacityRps, toolCapacity)
		off("TTFT without load", p.TTFT.At(0), idle)
		off("TTFT at half of it", p.TTFT.At(0.5), (1+fit.DefaultTargetMultiple)*idle/2)
		off("TBT at half of it", p.TBT.At(0.5), toolTBT.Seconds())
	})
	t.Run("llama.cpp", func(t *testing.T) {
		l := llamaEngines(t, "--parallel", "8", "--context", "2048", "--dim", "128", "--layers", "3", "--prompt-cache", "0")
		s := start(t, stage.Options{FleetFile: "testdata/llama.yaml", Llama: l})
		alone(t, s, s.Fleet.Pool("llama").Engines[0])
		p := fitByTool(t, s, python, filepath.Join(results, "inference-perf-llama"), "--rates", "3,8,13,18,23,28,33,38,43,48,55,65")
		f.AtLeast("llama.cpp: capacity, within what was offered", p.CapacityRps, "rps", 3)
		f.AtMost("llama.cpp: likewise", p.CapacityRps, "rps", 65)
	})
	check(t, figures.Write(path, &f))
	t.Log("\n" + f.String())
}

// fitByTool has inference-perf measure a stage's first engine, and returns what weir fit
// makes of its files.
func fitByTool(t *testing.T, s *stage.Stage, python, results string, flags ...string) *fleet.Profile {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	check(t, os.RemoveAll(results))
	pool := s.Fleet.Pool("llama")
	args := append([]string{"../tools/inference-perf", "--url", "http://" + string(pool.Engines[0]), "--model", pool.Models[0], results}, flags...)
	if out, err := exec.CommandContext(ctx, python, args...).CombinedOutput(); err != nil {
		t.Fatalf("inference-perf: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(results, "report", "stage_*_lifecycle_metrics.json"))
	check(t, err)
	var all []fit.Measurement
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(t, err)
		ms, err := fit.Read(filepath.Base(file), text)
		check(t, err)
		all = append(all, ms...)
	}
	r, err := fit.Fit(all, fit.Options{})
	check(t, err)
	t.Log("\n" + string(r.YAML()))
	return &r.Profile
}

package fit

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// recorded are the stages that inference-perf 0.7 wrote of an engine, as `make
// test-fit-tools` has it measure.
func recorded(t *testing.T, engine string) []Measurement {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "inference-perf-0.7", engine, "stage_*_lifecycle_metrics.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no stages:", err)
	}
	var all []Measurement
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := Read(file, text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ms...)
	}
	return all
}

func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if off := math.Abs(got/want - 1); !(off <= part) {
		t.Errorf("%s is %.4g, which is off by %.1f %%; want %.4g within %.0f %%", what, got, 100*off, want, 100*part)
	}
}

// The mock engine had a capacity of 20 rps, tokens each 10 ms, and a TTFT from 50 ms to four
// times that, which is the target.
func TestRecordedOfAMockEngine(t *testing.T) {
	r, err := Fit(recorded(t, "mock"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "capacity", r.Profile.CapacityRps, 20, 0.1)
	near(t, "TTFT without load", r.Profile.TTFT.At(0), 0.05, 0.05)
	near(t, "TTFT at half of it", r.Profile.TTFT.At(0.5), 0.125, 0.05)
	near(t, "TBT at half of it", r.Profile.TBT.At(0.5), 0.01, 0.05)
}

// Of llama.cpp each load in turn is left out, and its TTFT predicted from the others, up to
// nine tenths of the capacity: beyond it TTFT is rather how long a run lasts. One stage of ten
// seconds may waver by more than that: that at 38 rps had a longer TTFT than that at 43. So the
// median is judged.
func TestRecordedOfLlama(t *testing.T) {
	all := recorded(t, "llama")
	var off []float64
	for i, out := range all {
		r, err := Fit(slices.Delete(slices.Clone(all), i, i+1), Options{})
		if err != nil {
			t.Fatal(err)
		}
		u := out.OfferedRps / r.Profile.CapacityRps
		if u > 0.9 {
			continue
		}
		predicted := r.Profile.TTFT.At(u)
		off = append(off, math.Abs(predicted/out.TTFTSeconds-1))
		t.Logf("%2.0f rps, %.0f %% of the capacity: TTFT %.1f ms, predicted %.1f ms", out.OfferedRps, 100*u, 1e3*out.TTFTSeconds, 1e3*predicted)
	}
	slices.Sort(off)
	if len(off) < 8 {
		t.Fatalf("%d loads are below nine tenths of the capacity; want 8 or more", len(off))
	}
	if median := off[len(off)/2]; median > 0.2 {
		t.Errorf("half of the predictions are off by more than %.1f %%; want at most 20", 100*median)
	}
}

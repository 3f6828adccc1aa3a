package fit

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/fleet"
)

// Files as the tools write them, with the keys that are read and some of those
// that are not.
const (
	vllmFile = `{"date": "20260101-120000", "backend": "vllm", "model_id": "m", "num_prompts": 400, "request_rate": 4.0, "burstiness": 1.0, "max_concurrency": null,
 "duration": 102.5, "completed": 398, "failed": 2, "total_input_tokens": 398000, "total_output_tokens": 79600, "request_throughput": 3.9, "request_goodput": null,
 "mean_ttft_ms": 81.5, "median_ttft_ms": 80.1, "p99_ttft_ms": 120.0, "mean_tpot_ms": 12.5, "mean_itl_ms": 12.9}`

	guideLLMFile = `{"metadata": {"version": 2, "guidellm_version": "0.8.1"}, "config": {}, "benchmarks": [
 {"config": {"strategy": {"type_": "synchronous"}}, "duration": 60.0, "metrics": {"request_totals": {"successful": 30, "errored": 0, "incomplete": 1, "total": 31},
  "requests_per_second": {"successful": {"mean": 0.5}}, "request_concurrency": {"successful": {"mean": 0.99}}, "prompt_token_count": {"successful": {"mean": 1000.0}},
  "output_token_count": {"successful": {"mean": 200.0}}, "time_to_first_token_ms": {"successful": {"mean": 81.5}}, "inter_token_latency_ms": {"successful": {"mean": 9.5}}}},
 {"config": {"strategy": {"type_": "constant", "rate": 4.0}}, "duration": 60.0, "metrics": {"request_totals": {"successful": 232, "errored": 3, "incomplete": 5, "total": 240},
  "requests_per_second": {"successful": {"mean": 3.9}}, "request_concurrency": {"successful": {"mean": 9.3}}, "prompt_token_count": {"successful": {"mean": 1000.0}},
  "output_token_count": {"successful": {"mean": 200.0}}, "time_to_first_token_ms": {"successful": {"mean": 91.5}}, "inter_token_latency_ms": {"successful": {"mean": 12.5}}}},
 {"config": {"strategy": {"type_": "throughput"}}, "duration": 60.0, "metrics": {"request_totals": {"successful": 480},
  "requests_per_second": {"successful": {"mean": 8.0}}, "time_to_first_token_ms": {"successful": {"mean": 9000}}, "inter_token_latency_ms": {"successful": null}}}]}`

	inferencePerfFile = `{"load_summary": {"count": 300, "schedule_delay": {"mean": 0.001}, "send_duration": 74.0, "requested_rate": 4.0, "achieved_rate": 4.05},
 "successes": {"count": 299, "latency": {"request_latency": {"mean": 2.58}, "time_per_output_token": {"mean": 0.0062}, "time_to_first_token": {"mean": 0.0915}, "inter_token_latency": {"mean": 0.0062}},
  "throughput": {"requests_per_sec": 3.9}, "prompt_len": {"mean": 1000.0}, "output_len": {"mean": 200.0}}, "failures": {"count": 1, "request_latency": null}}`
)

func TestRead(t *testing.T) {
	of := fleet.Tokens{Prompt: 1000, Output: 200}
	all := math.Inf(1)
	tests := map[string]struct {
		content string
		want    []Measurement
	}{
		"vLLM": {vllmFile, []Measurement{{Source: "f:1", OfferedRps: 4, AchievedRps: 3.9, TTFTSeconds: 0.0815, TBTSeconds: 0.0125, Tokens: of, Requests: 398, Failed: 2, DurationSeconds: 102.5}}},
		"vLLM, appended": {vllmFile + "\n" + strings.Replace(vllmFile, `"request_rate": 4.0`, `"request_rate": "inf"`, 1), []Measurement{
			{Source: "f:1", OfferedRps: 4, AchievedRps: 3.9, TTFTSeconds: 0.0815, TBTSeconds: 0.0125, Tokens: of, Requests: 398, Failed: 2, DurationSeconds: 102.5},
			{Source: "f:4", OfferedRps: all, AchievedRps: 3.9, TTFTSeconds: 0.0815, TBTSeconds: 0.0125, Tokens: of, Requests: 398, Failed: 2, DurationSeconds: 102.5},
		}},
		"vLLM, so many clients": {strings.NewReplacer(`"request_rate": 4.0`, `"request_rate": "inf"`, `"max_concurrency": null`, `"max_concurrency": 16`).Replace(vllmFile), []Measurement{
			{Source: "f:1", AchievedRps: 3.9, Concurrency: 16, TTFTSeconds: 0.0815, TBTSeconds: 0.0125, Tokens: of, Requests: 398, Failed: 2, DurationSeconds: 102.5},
		}},
		"GuideLLM": {guideLLMFile, []Measurement{
			{Source: "f:1: benchmarks[0]", AchievedRps: 0.5, Concurrency: 1, TTFTSeconds: 0.0815, TBTSeconds: 0.0095, Tokens: of, Requests: 30, DurationSeconds: 60},
			{Source: "f:1: benchmarks[1]", OfferedRps: 4, AchievedRps: 3.9, Concurrency: 9.3, TTFTSeconds: 0.0915, TBTSeconds: 0.0125, Tokens: of, Requests: 232, Failed: 3, DurationSeconds: 60},
			{Source: "f:1: benchmarks[2]", OfferedRps: all, AchievedRps: 8, TTFTSeconds: 9, Requests: 480, DurationSeconds: 60},
		}},
		"inference-perf": {inferencePerfFile, []Measurement{
			{Source: "f:1", OfferedRps: 4.05, AchievedRps: 3.9, TTFTSeconds: 0.0915, TBTSeconds: (2.58 - 0.0915) / 199, Tokens: of, Requests: 299, Failed: 1, DurationSeconds: 299 / 3.9},
		}},
		"inference-perf 0.7": {strings.Replace(inferencePerfFile, `"prompt_len": {"mean": 1000.0}`, `"prompt_tokens": {"mean": 1000.0, "total": 299000.0, "cached": 0}`, 1), []Measurement{
			{Source: "f:1", OfferedRps: 4.05, AchievedRps: 3.9, TTFTSeconds: 0.0915, TBTSeconds: (2.58 - 0.0915) / 199, Tokens: of, Requests: 299, Failed: 1, DurationSeconds: 299 / 3.9},
		}},
		"inference-perf that fell behind": {strings.Replace(inferencePerfFile, `"requested_rate": 4.0`, `"requested_rate": 8.0`, 1), []Measurement{
			{Source: "f:1", OfferedRps: 8, AchievedRps: 3.9, TTFTSeconds: 0.0915, TBTSeconds: (2.58 - 0.0915) / 199, Tokens: of, Requests: 299, Failed: 1, DurationSeconds: 299 / 3.9},
		}},
		"CSV": {"\ufeff# of one engine\nRPS, ttft_ms,tbt_s,requests,prompt_tokens,output_tokens,duration_s\n3.9,91.5,0.0125,,1000,200,60\n8,1e3,,480,1000,200,\n", []Measurement{
			{Source: "f:3", AchievedRps: 3.9, TTFTSeconds: 0.0915, TBTSeconds: 0.0125, Tokens: of, DurationSeconds: 60},
			{Source: "f:4", AchievedRps: 8, TTFTSeconds: 1, Tokens: of, Requests: 480},
		}},
		"CSV, all at once": {"offered_rps,rps,ttft_s\ninf,8,1\n", []Measurement{{Source: "f:2", OfferedRps: all, AchievedRps: 8, TTFTSeconds: 1}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Read("f", []byte(tt.content))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The first requests of a run are left out where each is told.
func TestColdRequestsAreLeftOut(t *testing.T) {
	var starts, ttfts, itls, lens []string
	for i := range 120 {
		ttft, gap := 0.1, 0.02
		if i >= 110 { // the last ones in the file are the first in time
			ttft, gap = 5, 1
		}
		starts = append(starts, fmt.Sprint(1000-i))
		ttfts = append(ttfts, fmt.Sprint(ttft))
		itls = append(itls, fmt.Sprintf("[%v, %v]", gap, gap))
		lens = append(lens, "3")
	}
	arrays := fmt.Sprintf(`{"start_times": [%s], "ttfts": [%s], "itls": [%s], "output_lens": [%s], `,
		strings.Join(starts, ","), strings.Join(ttfts, ","), strings.Join(itls, ","), strings.Join(lens, ","))
	ms, err := Read("f", []byte(strings.Replace(vllmFile, "{", arrays, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if m := ms[0]; math.Abs(m.TTFTSeconds-0.1) > 1e-9 || math.Abs(m.TBTSeconds-0.02) > 1e-9 || m.Requests != 110 {
		t.Errorf("TTFT %v, TBT %v of %v requests, want 0.1, 0.02 of 110", m.TTFTSeconds, m.TBTSeconds, m.Requests)
	}
}

func TestReadRefuses(t *testing.T) {
	without := func(file, key string) string { return strings.Replace(file, `"`+key+`"`, `"x"`, 1) }
	tests := map[string]struct{ content, want string }{
		"nothing":                 {" \n", "f: the file is empty"},
		"another tool's":          {"\n{\"a\": 1}", "f:2: not a result that is known; give a result of vllm bench serve"},
		"a list":                  {"[1]", "f:1: not an object"},
		"torn":                    {vllmFile[:300], "f:2: the JSON ends too early; was it cut off?"},
		"not JSON":                {"{\n\"duration\": 1,\n}", "f:3: not JSON"},
		"NaN":                     {"{\n\"mean_ttft_ms\": NaN}", "f:2: not JSON: invalid character 'N' looking for beginning of value; NaN and Infinity come"},
		"a text for a number":     {strings.Replace(vllmFile, "81.5", `"fast"`, 1), "f:3: mean_ttft_ms: a string is no value for it"},
		"vLLM without TTFT":       {without(vllmFile, "mean_ttft_ms"), "f:1: mean_ttft_ms is missing"},
		"vLLM, nothing completed": {strings.Replace(vllmFile, `"completed": 398`, `"completed": 0`, 1), "f:1: completed is missing or no positive"},
		"vLLM, odd rate":          {strings.Replace(vllmFile, `"request_rate": 4.0`, `"request_rate": "many"`, 1), `f:1: request_rate: "many" is neither`},
		"vLLM, rising load":       {strings.Replace(vllmFile, "{", `{"ramp_up_strategy": "linear", `, 1), "f:1: ramp_up_strategy: the load rose"},
		"GuideLLM without runs":   {`{"benchmarks": []}`, "f:1: benchmarks: the report has none"},
		"GuideLLM, not streamed":  {without(guideLLMFile, "time_to_first_token_ms"), "f:1: benchmarks[0]: metrics.time_to_first_token_ms.successful.mean is missing"},
		"GuideLLM, a text":        {strings.Replace(guideLLMFile, `"rate": 4.0`, `"rate": "4"`, 1), "f:5: benchmarks.config.strategy.rate: a string"},
		"a summary of stages":     {without(inferencePerfFile, "requested_rate"), "f:1: load_summary.requested_rate is missing: a summary"},
		"inference-perf, at once": {without(inferencePerfFile, "time_to_first_token"), "f:1: successes.latency.time_to_first_token is missing; measure with api.streaming: true"},
		"CSV, no names":           {"# nothing\n", "f: there is no line of column names"},
		"CSV, no lines":           {"rps,ttft_ms\n", "f: there is no line below"},
		"CSV, no unit":            {"#\nrps,ttft\n1,2\n", `f:2: unknown column "ttft"; columns are rps,`},
		"CSV, twice":              {"rps,ttft_ms,ttft_s\n", "f:1: column ttft_s says what ttft_ms says"},
		"CSV, no load":            {"ttft_ms\n1\n", "f:1: there is no load"},
		"CSV, no TTFT":            {"rps\n1\n", "f:1: there is no TTFT"},
		"CSV, short line":         {"rps,ttft_ms\n1,2\n1\n", "f:3: wrong number of fields"},
		"CSV, a unit":             {"rps,ttft_ms\n1,200ms\n", `f:2: ttft_ms: "200ms" is not a number`},
		"CSV, negative":           {"rps,ttft_ms\n1,200\n-1,200\n", `f:3: rps: "-1" is not a number`},
		"CSV, NaN":                {"rps,ttft_ms\nnan,200\n", `f:2: rps: "nan" is not`},
		"CSV, empty TTFT":         {"rps,ttft_ms\n1,\n", "f:2: TTFT is not known"},
		"CSV, all failed":         {"rps,ttft_ms,requests,failed\n1,200,0,1000\n", "f:2: requests is 0: where nothing was answered there is no TTFT; leave the run out"},
		"CSV, none in a second":   {"offered_rps,rps,ttft_ms\n1,0,200\n", "f:2: rps is 0: where nothing"},
		"CSV, failures of what":   {"rps,ttft_ms,failed\n1,200,0\n1,200,1000\n", "f:3: 1000 requests failed, and how many did not"},
		"CSV, swapped columns":    {"offered_rps,rps,ttft_ms\n1,10,200\n", "f:2: 10 requests per second were completed, and only 1 offered; are the two swapped?"},
		"CSV, swapped, many":      {"offered_rps,rps,ttft_ms\n1.23456,20000,200\n", "f:2: 20000 requests per second were completed, and only 1.235 offered"},
		"CSV, a long duration":    {"rps,ttft_ms,duration_s\n1,200,1e308\n", "f:2: 1e+308 seconds of duration cannot be"},
		"CSV, too long":           {"rps,ttft_ms\n" + strings.Repeat("1,2\n", maxMeasurements+1), "f: more than 10000 lines"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if ms, err := Read("f", []byte(tt.content)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("read %v, error %v, want %q", ms, err, tt.want)
			}
		})
	}
}

// Whatever a file holds is refused or measured, and what is measured can be fitted
// or is refused.
func FuzzRead(f *testing.F) {
	for _, content := range []string{vllmFile, guideLLMFile, inferencePerfFile, "rps,ttft_ms,tbt_ms,requests,prompt_tokens,output_tokens\n1,100,10,100,10,10\n2,110,10,100,10,10\n3,120,10,100,10,10\n4,150,10,100,10,10\n5,500,12,100,10,10\n"} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		ms, err := Read("f", content)
		if (err == nil) != (len(ms) > 0) {
			t.Fatalf("%d measurements, error %v", len(ms), err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Fatalf("error %v does not name the file", err)
		}
		r, err := Fit(ms, Options{Tokens: fleet.Tokens{Prompt: 10, Output: 10}, Resamples: 3})
		if err != nil {
			return
		}
		if c := r.Profile.CapacityRps; !(c > 0) || math.IsInf(c, 0) {
			t.Fatal(errors.New("capacity"), c)
		}
		for _, p := range append(r.TTFT, r.TBT...) {
			if !(p.Seconds > 0) || math.IsInf(p.Seconds, 0) || !(p.Seconds90.Low <= p.Seconds && p.Seconds <= p.Seconds90.High) {
				t.Fatalf("point %+v", p)
			}
		}
		if len(r.SVG()) == 0 || len(r.YAML()) == 0 {
			t.Fatal("nothing is written")
		}
	})
}

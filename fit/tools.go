package fit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"weir/fleet"
)

// vllmResult is what vllm bench serve --save-result writes, as far as it matters:
// https://docs.vllm.ai/en/latest/benchmarking/cli/. Arrays are there with
// --save-detailed.
type vllmResult struct {
	RequestRate    json.RawMessage `json:"request_rate"` // a number, or "inf"
	MaxConcurrency *float64        `json:"max_concurrency"`
	RampUpStrategy *string         `json:"ramp_up_strategy"`

	Completed         float64  `json:"completed"`
	Failed            float64  `json:"failed"`
	Duration          float64  `json:"duration"` // seconds
	InputTokens       float64  `json:"total_input_tokens"`
	OutputTokens      float64  `json:"total_output_tokens"`
	RequestThroughput float64  `json:"request_throughput"`
	MeanTTFTMs        float64  `json:"mean_ttft_ms"`
	MeanTPOTMs        *float64 `json:"mean_tpot_ms"` // mean over requests of the time per token after the first
	MeanITLMs         *float64 `json:"mean_itl_ms"`  // mean over chunks, which may hold several tokens

	StartTimes []float64   `json:"start_times"` // seconds
	TTFTs      []float64   `json:"ttfts"`       // seconds; 0: failed
	ITLs       [][]float64 `json:"itls"`        // seconds
	OutputLens []float64   `json:"output_lens"`
}

// coldRequests are the first of a run, which meet an engine that has not yet
// compiled, cached and batched what the others find.
const coldRequests = 10

func (v vllmResult) measurements(d document) ([]Measurement, error) {
	where := d.where(0)
	if v.RampUpStrategy != nil {
		return nil, fmt.Errorf("%s: ramp_up_strategy: the load rose during the run; measure at one --request-rate each", where)
	}
	offered, err := v.offeredRps(where)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"completed", v.Completed}, {"duration", v.Duration}, {"request_throughput", v.RequestThroughput}, {"mean_ttft_ms", v.MeanTTFTMs}} {
		if err := need(where, f.name, f.value); err != nil {
			return nil, err
		}
	}
	m := Measurement{
		Source: where, OfferedRps: offered, AchievedRps: v.RequestThroughput,
		TTFTSeconds: v.MeanTTFTMs / 1000, TBTSeconds: or(v.MeanTPOTMs, or(v.MeanITLMs, 0)) / 1000,
		Tokens:   fleet.Tokens{Prompt: v.InputTokens / v.Completed, Output: v.OutputTokens / v.Completed},
		Requests: v.Completed, Failed: v.Failed, DurationSeconds: v.Duration, Concurrency: or(v.MaxConcurrency, 0),
	}
	v.leaveOutCold(&m)
	return []Measurement{m}, nil
}

// offeredRps is 0 where only a number of clients was set.
func (v vllmResult) offeredRps(where string) (float64, error) {
	switch text := string(v.RequestRate); text {
	case "", "null":
		return 0, nil
	case `"inf"`:
		if v.MaxConcurrency != nil {
			return 0, nil
		}
		return math.Inf(1), nil
	default:
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate <= 0 {
			return 0, fmt.Errorf("%s: request_rate: %.40s is neither a positive number nor \"inf\"", where, text)
		}
		return rate, nil
	}
}

// leaveOutCold takes the means anew without the run's first requests, where each
// request is told.
func (v vllmResult) leaveOutCold(m *Measurement) {
	n := len(v.TTFTs)
	if n < 10*coldRequests || len(v.StartTimes) != n || len(v.ITLs) != n || len(v.OutputLens) != n {
		return
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(v.StartTimes[a], v.StartTimes[b]), cmp.Compare(a, b))
	})
	var ttft, tbt, requests, decoded float64
	for _, i := range order[coldRequests:] {
		if v.TTFTs[i] <= 0 {
			continue
		}
		ttft, requests = ttft+v.TTFTs[i], requests+1
		if v.OutputLens[i] > 1 {
			for _, gap := range v.ITLs[i] {
				tbt += gap / (v.OutputLens[i] - 1)
			}
			decoded++
		}
	}
	if requests > 0 && decoded > 0 {
		m.TTFTSeconds, m.TBTSeconds, m.Requests = ttft/requests, tbt/decoded, requests
	}
}

// guideLLM is a report of GuideLLM, as far as it matters:
// https://github.com/vllm-project/guidellm/blob/main/docs/guides/outputs.md.
type guideLLM struct {
	Benchmarks []struct {
		Config   guideConfig `json:"config"`
		Args     guideConfig `json:"args"` // before 0.4
		Duration float64     `json:"duration"`
		Metrics  struct {
			Totals struct {
				Successful float64 `json:"successful"`
				Errored    float64 `json:"errored"`
			} `json:"request_totals"`
			RequestsPerSecond guideMetric `json:"requests_per_second"`
			Concurrency       guideMetric `json:"request_concurrency"`
			PromptTokens      guideMetric `json:"prompt_token_count"`
			OutputTokens      guideMetric `json:"output_token_count"`
			TTFTMs            guideMetric `json:"time_to_first_token_ms"`
			ITLMs             guideMetric `json:"inter_token_latency_ms"` // per request, without the first token
		} `json:"metrics"`
	} `json:"benchmarks"`
}

type guideConfig struct {
	Strategy struct {
		Type    string   `json:"type_"`
		Rate    *float64 `json:"rate"`
		Streams *float64 `json:"streams"`
	} `json:"strategy"`
}

// guideMetric is a distribution for each status of requests.
type guideMetric struct {
	Successful *struct {
		Mean float64 `json:"mean"`
	} `json:"successful"`
}

// mean is 0 where it is not known.
func (g guideMetric) mean() float64 {
	if g.Successful == nil {
		return 0
	}
	return g.Successful.Mean
}

func (g guideLLM) measurements(d document) ([]Measurement, error) {
	var ms []Measurement
	for i, b := range g.Benchmarks {
		where := fmt.Sprintf("%s: benchmarks[%d]", d.where(0), i)
		for _, f := range []struct {
			name  string
			value float64
		}{{"requests_per_second", b.Metrics.RequestsPerSecond.mean()}, {"time_to_first_token_ms", b.Metrics.TTFTMs.mean()}} {
			if err := need(where, "metrics."+f.name+".successful.mean", f.value); err != nil {
				return nil, err
			}
		}
		m := Measurement{
			Source: where, AchievedRps: b.Metrics.RequestsPerSecond.mean(), Concurrency: b.Metrics.Concurrency.mean(),
			TTFTSeconds: b.Metrics.TTFTMs.mean() / 1000, TBTSeconds: b.Metrics.ITLMs.mean() / 1000,
			Tokens:   fleet.Tokens{Prompt: b.Metrics.PromptTokens.mean(), Output: b.Metrics.OutputTokens.mean()},
			Requests: b.Metrics.Totals.Successful, Failed: b.Metrics.Totals.Errored, DurationSeconds: b.Duration,
		}
		strategy := b.Config.Strategy
		if strategy.Type == "" {
			strategy = b.Args.Strategy
		}
		switch strategy.Type {
		case "constant", "poisson":
			m.OfferedRps = or(strategy.Rate, 0)
		case "throughput":
			m.OfferedRps = math.Inf(1)
		case "synchronous":
			m.Concurrency = 1
		case "concurrent":
			m.Concurrency = or(strategy.Streams, m.Concurrency)
		}
		ms = append(ms, m)
	}
	if len(ms) == 0 {
		return nil, fmt.Errorf("%s: benchmarks: the report has none; did the run fail?", d.where(0))
	}
	return ms, nil
}

// inferencePerf is the report of one stage of inference-perf, as far as it matters:
// https://github.com/kubernetes-sigs/inference-perf/blob/main/docs/reports.md.
// Times are in seconds.
type inferencePerf struct {
	Load struct {
		Requested    *float64 `json:"requested_rate"`
		Sent         *float64 `json:"achieved_rate"`
		Concurrency  *float64 `json:"concurrency"`
		SendDuration float64  `json:"send_duration"`
	} `json:"load_summary"`
	Successes struct {
		Count   float64 `json:"count"`
		Latency struct {
			Request perfSummary  `json:"request_latency"`
			TTFT    *perfSummary `json:"time_to_first_token"`
			TPOT    *perfSummary `json:"time_per_output_token"`
		} `json:"latency"`
		Throughput struct {
			Requests float64 `json:"requests_per_sec"`
		} `json:"throughput"`
		PromptLen    perfSummary `json:"prompt_len"`    // before 0.7
		PromptTokens perfSummary `json:"prompt_tokens"` // since 0.7
		OutputLen    perfSummary `json:"output_len"`
	} `json:"successes"`
	Failures struct {
		Count float64 `json:"count"`
	} `json:"failures"`
}

type perfSummary struct {
	Mean float64 `json:"mean"`
}

func (p inferencePerf) measurements(d document) ([]Measurement, error) {
	where := d.where(0)
	if p.Load.Requested == nil && p.Load.Concurrency == nil {
		return nil, fmt.Errorf("%s: load_summary.requested_rate is missing: a summary of all stages tells no load; give stage_*_lifecycle_metrics.json", where)
	}
	s := p.Successes
	if s.Latency.TTFT == nil {
		return nil, fmt.Errorf("%s: successes.latency.time_to_first_token is missing; measure with api.streaming: true", where)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"count", s.Count}, {"throughput.requests_per_sec", s.Throughput.Requests}, {"latency.time_to_first_token.mean", s.Latency.TTFT.Mean}} {
		if err := need(where, "successes."+f.name, f.value); err != nil {
			return nil, err
		}
	}
	return []Measurement{{
		Source: where, OfferedRps: p.offeredRps(), AchievedRps: s.Throughput.Requests, Concurrency: or(p.Load.Concurrency, 0),
		TTFTSeconds: s.Latency.TTFT.Mean, TBTSeconds: p.tbtSeconds(),
		Tokens:   fleet.Tokens{Prompt: cmp.Or(s.PromptTokens.Mean, s.PromptLen.Mean), Output: s.OutputLen.Mean},
		Requests: s.Count, Failed: p.Failures.Count, DurationSeconds: s.Count / s.Throughput.Requests,
	}}, nil
}

// offeredRps is what was sent, which chance makes other than what was asked for;
// but where the sender fell behind, what was asked for.
func (p inferencePerf) offeredRps() float64 {
	requested, sent := or(p.Load.Requested, 0), or(p.Load.Sent, 0)
	if requested == 0 || p.Load.Concurrency != nil && *p.Load.Concurrency > 0 {
		return 0
	}
	if sent >= keptUp*requested {
		return sent
	}
	return requested
}

// tbtSeconds comes from the mean request: reports counted chunks for tokens, and
// an engine sends more or fewer of the ones than of the others.
func (p inferencePerf) tbtSeconds() float64 {
	s := p.Successes
	if decode := s.Latency.Request.Mean - s.Latency.TTFT.Mean; decode > 0 && s.OutputLen.Mean > 1 {
		return decode / (s.OutputLen.Mean - 1)
	}
	if s.Latency.TPOT != nil {
		return s.Latency.TPOT.Mean
	}
	return 0
}

func or(p *float64, otherwise float64) float64 {
	if p == nil {
		return otherwise
	}
	return *p
}

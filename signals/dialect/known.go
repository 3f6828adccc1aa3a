package dialect

// Dialects are what Weir reads without being told, in the order in
// which they are tried.
func Dialects() []Dialect {
	return []Dialect{vllm(), sglang(), tgi(), trtllm(), triton(), llamacpp(), lmdeploy(), dynamo()}
}

const metricsPath = "/metrics"

func named(names ...string) Names {
	all := make(Names, len(names))
	for i, n := range names {
		all[i].Name = n
	}
	return all
}

// vllm is vLLM 0.6 to 0.33. An engine label tells its data-parallel ranks.
func vllm() Dialect {
	return Dialect{
		Name:     "vllm",
		Prefixes: []string{"vllm:"},
		Paths:    []string{metricsPath},
		Fields: [fields]Names{
			Running: named("vllm:num_requests_running"),
			Waiting: named("vllm:num_requests_waiting"),
			KVUsage: {
				{Name: "vllm:kv_cache_usage_perc", Versions: "0.10 and later"},
				{Name: "vllm:gpu_cache_usage_perc", Versions: "to 0.10"},
			},
			TTFT: named("vllm:time_to_first_token_seconds"),
			TBT: {
				{Name: "vllm:inter_token_latency_seconds", Versions: "0.10 and later"},
				{Name: "vllm:time_per_output_token_seconds", Versions: "to 0.10"},
			},
			PromptTokens:    named("vllm:prompt_tokens_total"),
			GeneratedTokens: named("vllm:generation_tokens_total"),
		},
	}
}

// sglang is SGLang 0.4.3 to 0.5.23.
func sglang() Dialect {
	return Dialect{
		Name:     "sglang",
		Prefixes: []string{"sglang:"},
		Paths:    []string{metricsPath},
		Lockstep: []string{"tp_rank", "pp_rank", "moe_ep_rank"},
		Fields: [fields]Names{
			Running: named("sglang:num_running_reqs"),
			Waiting: named("sglang:num_queue_reqs"),
			KVUsage: named("sglang:token_usage"),
			TTFT:    named("sglang:time_to_first_token_seconds"),
			TBT: {
				{Name: "sglang:inter_token_latency_seconds", Versions: "after 0.4.3"},
				{Name: "sglang:time_per_output_token_seconds", Versions: "to 0.4.3"},
			},
			PromptTokens:    named("sglang:prompt_tokens_total"),
			GeneratedTokens: named("sglang:generation_tokens_total"),
		},
	}
}

// tgi is Text Generation Inference 3. It tells neither its KV cache's usage nor a
// time to the first token; its time per token is a mean per request. Tokens are
// the sums of its histograms of requests' sizes.
func tgi() Dialect {
	return Dialect{
		Name:     "tgi",
		Prefixes: []string{"tgi_"},
		Paths:    []string{metricsPath},
		Fields: [fields]Names{
			Running:         named("tgi_batch_current_size"),
			Waiting:         named("tgi_queue_size"),
			TBT:             named("tgi_request_mean_time_per_token_duration"),
			PromptTokens:    named("tgi_request_input_length_sum"),
			GeneratedTokens: named("tgi_request_generated_tokens_sum"),
		},
	}
}

// trtllm is trtllm-serve, whose /metrics is something else (JSON).
func trtllm() Dialect {
	return Dialect{
		Name:     "trtllm",
		Prefixes: []string{"trtllm_", "trtllm:"},
		Paths:    []string{"/prometheus/metrics", metricsPath},
		Fields: [fields]Names{
			Running:         named("trtllm_num_requests_running"),
			Waiting:         named("trtllm_num_requests_waiting"),
			KVUsage:         named("trtllm_kv_cache_utilization"),
			TTFT:            named("trtllm_time_to_first_token_seconds", "trtllm:time_to_first_token_seconds"),
			TBT:             named("trtllm_time_per_output_token_seconds", "trtllm:time_per_output_token_seconds"),
			PromptTokens:    named("trtllm_prompt_tokens_total"),
			GeneratedTokens: named("trtllm_generation_tokens_total"),
		},
	}
}

// triton is TensorRT-LLM behind Triton. Its counts of tokens are those of one
// iteration, not counters, and are not read.
func triton() Dialect {
	const requests, blocks = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
	return Dialect{
		Name:     "triton",
		Prefixes: []string{"nv_trt_llm_"},
		Paths:    []string{metricsPath},
		Fields: [fields]Names{
			Running: {
				{Name: requests, Label: "request_type", Is: "scheduled"},
				{Name: requests, Label: "request_type", Is: "active"},
			},
			Waiting: {{Name: requests, Label: "request_type", Is: "waiting"}},
			KVUsage: {{Name: blocks, Label: "kv_cache_block_type", Is: "fraction"}},
		},
	}
}

func llamacpp() Dialect {
	return Dialect{
		Name:     "llamacpp",
		Prefixes: []string{"llamacpp:"},
		Paths:    []string{metricsPath},
		Fields: [fields]Names{
			Running:         named("llamacpp:requests_processing"),
			Waiting:         named("llamacpp:requests_deferred"),
			KVUsage:         {{Name: "llamacpp:kv_cache_usage_ratio", Versions: "to 2025"}},
			PromptTokens:    named("llamacpp:prompt_tokens_total"),
			GeneratedTokens: named("llamacpp:tokens_predicted_total"),
		},
	}
}

// lmdeploy tells its data-parallel ranks as vLLM does.
func lmdeploy() Dialect {
	return Dialect{
		Name:     "lmdeploy",
		Prefixes: []string{"lmdeploy:"},
		Paths:    []string{metricsPath},
		Fields: [fields]Names{
			Running:         named("lmdeploy:num_requests_running"),
			Waiting:         named("lmdeploy:num_requests_waiting"),
			KVUsage:         named("lmdeploy:gpu_cache_usage_perc"),
			TTFT:            named("lmdeploy:time_to_first_token_seconds"),
			TBT:             named("lmdeploy:iter_token_latency", "lmdeploy:time_per_output_token_seconds"),
			PromptTokens:    named("lmdeploy:prompt_tokens_total"),
			GeneratedTokens: named("lmdeploy:generation_tokens_total"),
		},
	}
}

// dynamo is a Dynamo frontend, or one of its workers. A request in flight counts
// as running from its arrival, while it is queued as well. A worker that serves
// its engine's own metrics too is read by these, for they say more.
func dynamo() Dialect {
	return Dialect{
		Name:     "dynamo",
		Prefixes: []string{"dynamo_"},
		Paths:    []string{metricsPath},
		Fields: [fields]Names{
			Running:         named("dynamo_frontend_inflight_requests", "dynamo_component_inflight_requests"),
			Waiting:         named("dynamo_frontend_queued_requests"),
			KVUsage:         named("dynamo_component_kvstats_gpu_cache_usage_percent", "dynamo_component_gpu_cache_usage_percent", "kvstats_gpu_cache_usage_percent"),
			TTFT:            named("dynamo_frontend_time_to_first_token_seconds"),
			TBT:             named("dynamo_frontend_inter_token_latency_seconds"),
			PromptTokens:    named("dynamo_frontend_input_sequence_tokens_sum"),
			GeneratedTokens: named("dynamo_frontend_output_tokens_total", "dynamo_frontend_output_sequence_tokens_sum"),
		},
	}
}

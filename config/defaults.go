package config

import (
	"time"

	"weir/fleet"
)

// What holds where the file says nothing.
const (
	// Long enough that reports of a whole interval are in, short enough that a
	// shift of load is answered before queues are felt.
	defaultTick = 2 * time.Second
	// Demand moves between two ticks; a pool planned to the brim would queue.
	defaultHeadroomPercent = 10
	// Above the noise of measured latencies, so that noise moves nobody.
	defaultChurn = 5 * time.Millisecond
	// A conversation lives for minutes. After ten of them a gain of 10 µs is taken.
	defaultChurnHalving = time.Minute
	// A smaller share is a handful of conversations: not worth a cold cache.
	defaultMinSharePercent = 0.1
	// A long context with images in base64 fits.
	defaultBodyLimit = 32 << 20
	// A long prompt on a busy engine waits minutes for its first token.
	defaultIdle = 5 * time.Minute
	// Behind several Envoys, where turns go now through one and now through another,
	// only some would hold: a conversation would go back and forth.
	defaultHold = 0
	// A hundred requests or more at most loads, whose mean is within some per cent; and
	// loads do not change much in it.
	defaultHistoryStep = fleet.DefaultHistoryStep
	// With idle capacity, half as many retries as requests do no harm, and the
	// death of one engine out of two is covered.
	defaultRetryPercent = 50
	// What one dying engine has in flight must be retried all at once; vLLM runs
	// up to 256 sequences unless told otherwise (max_num_seqs).
	defaultRetryFloor = 256
	// The path that vLLM, SGLang, TGI and llama.cpp answer on.
	defaultHealthPath = "/health"
	// A prior until a profile is fitted: prefill computes many tokens at once,
	// decode one at a time, so that an output token costs more.
	defaultOutputTokenCost = 4
	// TTFT and decode time are both time that a client waits.
	defaultLatencyWeight = 1
)

// defaultReference is a chat turn with some history and an answer of a paragraph.
var defaultReference = fleet.Tokens{Prompt: 1000, Output: 200}

// defaultAffinity goes from what names one conversation to what names its owner;
// the fingerprint is last because unlike conversations may share it. Which client
// sends what, docs/FLEET.md says.
var defaultAffinity = []fleet.AffinityKey{
	{Kind: fleet.AffinityHeader, Name: "x-session-id"},
	{Kind: fleet.AffinityHeader, Name: "session-id"}, // Codex
	{Kind: fleet.AffinityHeader, Name: "session_id"}, // Codex, before
	{Kind: fleet.AffinityHeader, Name: "x-claude-code-session-id"},
	{Kind: fleet.AffinityHeader, Name: "x-opencode-session"},
	{Kind: fleet.AffinityHeader, Name: "x-session-affinity"}, // opencode, to others than its own service
	{Kind: fleet.AffinityHeader, Name: "x-openwebui-chat-id"},
	{Kind: fleet.AffinityHeader, Name: "x-conversation-id"},
	{Kind: fleet.AffinityHeader, Name: "x-litellm-session-id"},
	{Kind: fleet.AffinityHeader, Name: "x-litellm-trace-id"},
	{Kind: fleet.AffinityHeader, Name: "x-dynamo-session-id"},
	{Kind: fleet.AffinityBody, Name: "conversation"}, // OpenAI's Responses API
	{Kind: fleet.AffinityBody, Name: "prompt_cache_key"},
	{Kind: fleet.AffinityBody, Name: "session_id"},        // vLLM, SGLang
	{Kind: fleet.AffinityBody, Name: "session_params.id"}, // SGLang
	{Kind: fleet.AffinityBody, Name: "litellm_session_id"},
	{Kind: fleet.AffinityBody, Name: "metadata.session_id"}, // LiteLLM
	{Kind: fleet.AffinityBody, Name: "metadata.user_id"},    // Anthropic's Messages API: agents put a session in it
	{Kind: fleet.AffinityPrevious},
	{Kind: fleet.AffinityBody, Name: "safety_identifier"}, // OpenAI's successor of user
	{Kind: fleet.AffinityBody, Name: "user"},
	{Kind: fleet.AffinityFingerprint},
}

// Bounds of the tables that a fleet fills. They are far above what one control
// plane has been measured with, and keep a runaway file from taking it down.
const (
	maxFileBytes    = 4 << 20
	maxNodes        = 1_000_000 // values read, every use of an alias counted
	maxNesting      = 32        // the format needs six
	maxProblems     = 1000
	maxFrontEnds    = 1000
	maxPools        = 5000
	maxLinks        = 1_000_000 // front-ends × pools
	maxClasses      = 200
	maxEngines      = 20_000 // of all pools
	maxLimits       = 2000
	maxRules        = 2000 // of all classes, hosts and models multiplied out
	maxCurvePoints  = 64
	maxListed       = 256 // models, labels, capabilities, regions, hosts
	maxRuleHeaders  = 16
	maxAffinityKeys = 32
	maxMetricNames  = 16  // of one field
	maxNameLength   = 63  // names become part of Envoy's cluster and node names
	maxTextLength   = 512 // model names, header values, paths
)

// Ranges beyond which a value can only be a slip.
const (
	minTick, maxTick           = 100 * time.Millisecond, time.Minute
	minBodyLimit, maxBodyLimit = 1 << 10, 128 << 20 // weir-extproc takes messages of twice that
	minIdle, maxIdle           = time.Second, 24 * time.Hour
	maxLatency                 = time.Hour

	minHistoryStep, maxHistoryStep = time.Second, time.Hour
	maxChurn                       = 10 * time.Second
	maxHold                        = time.Hour
	maxChurnHalving                = 24 * time.Hour
	maxRps                         = 1e7
	minCapacityRps                 = 1e-3
	maxTokens                      = 1e8
	maxOutputTokenCost             = 1e4
	maxLatencyWeight               = 1e3
	maxPriority                    = 100
	maxRetryFloor                  = 100_000
	maxUtilisationPercent          = 1000
)

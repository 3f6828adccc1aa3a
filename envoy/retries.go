package envoy

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"

	"weir/fleet"
)

// Retries is how many further engines a request may be tried on.
const Retries = 2

const (
	backOffMostSeconds = 0.25 // of a further retry, which waits up to three times as long
	// An engine that asks for more patience than this in its retry-after is not waited
	// for: the next attempt goes to another engine.
	retryAfterMostSeconds = 1
)

// retryPolicy tries further engines while no byte of a response was seen; how
// many retries there may be at once is bounded by the runtime's budget.
func retryPolicy() *routev3.RetryPolicy {
	p := oncePolicy()
	p.RetryOn = "reset,connect-failure,refused-stream,retriable-status-codes"
	p.RetriableStatusCodes = []uint32{429, 502, 503, 504} // 429 is an engine's own: ours are no attempts
	p.RateLimitedRetryBackOff = &routev3.RetryPolicy_RateLimitedRetryBackOff{
		ResetHeaders: []*routev3.RetryPolicy_ResetHeader{{Name: "retry-after", Format: routev3.RetryPolicy_SECONDS}},
		MaxInterval:  seconds(retryAfterMostSeconds),
	}
	return p
}

// oncePolicy tries further engines where the request has not reached one.
func oncePolicy() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{
		RetryOn:      "connect-failure,refused-stream",
		NumRetries:   u32(Retries),
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{BaseInterval: seconds(fleet.RetryBackOffSeconds), MaxInterval: seconds(backOffMostSeconds)},
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: pack(&previousv3.PreviousHostsPredicate{})},
		}},
		// Maglev draws by the same hashes at each retry: of two engines, five draws would
		// find the sick one again for 3 % of its conversations.
		HostSelectionRetryMaxAttempts: 20,
	}
}

// InferencePaths are the ends of the paths whose POST only computes: asking another
// engine, when one has failed, repeats no effect. A POST to any other path may have
// made something (a file, a batch, a job) by the time that its engine fails.
func InferencePaths() []string {
	return strings.Fields(`/chat/completions /completions /embeddings /responses /messages /messages/count_tokens
		/rerank /score /classify /pooling /moderations /tokenize /detokenize /generate
		/audio/transcriptions /audio/translations /audio/speech /images/generations /images/edits /images/variations`)
}

// onlyComputes says whether a whole path is one of them.
func onlyComputes(path string) bool {
	return slices.ContainsFunc(InferencePaths(), func(end string) bool { return strings.HasSuffix(path, end) })
}

// regexEnds is how many ends of paths one pattern holds: Envoy refuses larger programs.
const regexEnds = 5

// onceMatch is the part of a match that must not reach two engines.
func onceMatch(m *routev3.RouteMatch) *routev3.RouteMatch {
	headers := append(slices.Clone(m.Headers), headerMatch(":method", pattern("POST|PATCH")))
	for ends := range slices.Chunk(InferencePaths(), regexEnds) {
		elsewhere := headerMatch(":path", pattern(`[^?]*(`+strings.Join(ends, "|")+`)/?(\?.*)?`))
		elsewhere.InvertMatch = true
		headers = append(headers, elsewhere)
	}
	return &routev3.RouteMatch{PathSpecifier: m.PathSpecifier, Headers: headers}
}

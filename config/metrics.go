package config

import (
	"regexp"
	"slices"
	"strings"

	"weir/fleet"
)

// dialects and metricFields are what Weir can read of metrics pages, in the words of
// package dialect; a test of cmd/weir holds that they are the same.
var (
	dialects     = []string{"vllm", "sglang", "trtllm", "tgi", "triton", "llamacpp", "lmdeploy", "dynamo"}
	metricFields = []string{"running", "waiting", "kvUsage", "ttft", "tbt", "promptTokens", "generatedTokens"}

	histogramFields   = []string{"ttft", "tbt"}
	histogramSuffixes = []string{"_bucket", "_sum", "_count"}

	metricPattern = regexp.MustCompile(`^[A-Za-z_:][A-Za-z0-9_:]*$`)
)

// metrics reads what the operator knows better of a pool's metrics pages. Names
// without a dialect replace those of the engines' own.
func metrics(n node, engineType string) fleet.Metrics {
	m := n.mapping("dialect", "path", "paths", "names")
	told := fleet.Metrics{
		Dialect: m.at("dialect").oneOf("", dialects...),
		Paths:   distinct(m.oneOrMore("path", "paths"), requestPath),
		Names:   metricNames(m.at("names")),
	}
	if told.Dialect == "" && len(told.Names) > 0 && engineType != otherEngine {
		told.Dialect = engineType
	}
	return told
}

func metricNames(n node) map[string][]string {
	m := n.mapping(metricFields...)
	var out map[string][]string
	for _, field := range metricFields {
		read := metricName
		if slices.Contains(histogramFields, field) {
			read = histogramName
		}
		names := distinct(m.at(field).someOf(maxMetricNames), read)
		if len(names) == 0 {
			continue
		}
		if out == nil {
			out = map[string][]string{}
		}
		out[field] = names
	}
	return out
}

func metricName(n node) string {
	s := n.text()
	if s != "" && !metricPattern.MatchString(s) {
		n.wrong("write it like vllm:num_requests_waiting, without labels", "%q is not a metric's name", s)
	}
	return s
}

// histogramName reads what a histogram's series have in common.
func histogramName(n node) string {
	s := metricName(n)
	for _, suffix := range histogramSuffixes {
		if base, ok := strings.CutSuffix(s, suffix); ok {
			n.wrong("write "+base, "%q is one series of a histogram", s)
		}
	}
	return s
}

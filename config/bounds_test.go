package config

import (
	"fmt"
	"strings"
	"testing"
)

// many writes n items of a list, with %d counting.
func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestTablesHaveCaps(t *testing.T) {
	const pool = "  - {name: P%d, models: [m], engines: [10.%d.0.1:80], profile: {capacity: 1 rps, ttft: 1s}}\n"
	tests := map[string]struct{ old, new, want string }{
		"front-ends": {
			"frontEnds: [", "frontEnds: [" + many(maxFrontEnds, "{name: F%d, listen: 0.0.0.0:80}, "),
			"frontEnds: 1001 entries are too many; keep it to 1000",
		},
		"pools":   {"pools:", "pools:\n" + many(maxPools, strings.Replace(pool, "10.%d", "10.0", 1)), "pools: 5001 entries are too many"},
		"classes": {"classes:", "classes:\n" + many(maxClasses, "  - {name: c%d, match: [{model: m, host: h}]}\n"), "classes: 201 entries are too many"},
		"engines": {
			`["127.0.0.1:11001"]`, "[" + many(maxEngines+1, "%d, ") + "]", "engines: 20001 entries are too many",
		},
		"models":       {"models: [m]", "models: [m, " + many(maxListed, "m%d, ") + "]", "models: 257 entries are too many"},
		"points":       {"ttft: 200ms", "ttft: {" + many(maxCurvePoints+1, "%d%%: 1s, ") + "}", "profile.ttft: 65 entries are too many"},
		"headers":      {"{model: m}", "{model: m, headers: {" + many(maxRuleHeaders+1, "h%d: v, ") + "}}", "match.headers: 17 entries are too many"},
		"affinity":     {"- name: chat", "- name: chat\n    affinity: [" + many(maxAffinityKeys+1, "'header:h%d', ") + "]", "affinity: 33 entries are too many"},
		"metric names": {"models: [m]", "models: [m]\n    metrics: {names: {waiting: [" + many(maxMetricNames+1, "q%d, ") + "]}}", "metrics.names.waiting: 17 entries are too many"},
		"rules": {
			"{model: m}", "{hosts: [" + many(200, "h%d, ") + "], models: [" + many(11, "m%d, ") + "]}",
			"there are more than 2000 rules",
		},
		"keys": {"{model: m}", "{" + many(maxListed+1, "k%d: v, ") + "}", "match: 257 entries are too many"},
		"text": {"{model: m}", "{model: " + strings.Repeat("m", maxTextLength+1) + "}", "match.model: 513 bytes are too long"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(minimal, test.old, test.new, 1)
			if text == minimal {
				t.Fatalf("the fleet has no %q", test.old)
			}
			_, err := Parse("fleet.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %.500v\nwant %s", err, test.want)
			}
		})
	}
}

func TestTooManyLinks(t *testing.T) {
	fleet := "frontEnds:\n" + many(maxFrontEnds, "  - {name: F%d, listen: '0.0.0.0:80'}\n") +
		"pools:\n" + many(maxLinks/maxFrontEnds+1, "  - {name: P%[1]d, models: [m], engines: ['10.0.0.1:%[1]d'], profile: &p%[1]d {capacity: 1 rps, ttft: 1s}}\n") +
		"classes: [{name: c, match: [{model: m}]}]\nnetwork: {default: 1ms}\n"
	_, err := Parse("fleet.yaml", []byte(strings.Replace(fleet, "10.0.0.1:0'", "10.0.0.2:1'", 1)))
	want := "network: there are 1001000 pairs of a front-end and a pool, more than 1000000; split the fleet"
	if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %.500v\nwant %s", err, want)
	}
}

func TestProblemsHaveACap(t *testing.T) {
	_, err := Parse("fleet.yaml", []byte("classes:\n"+many(maxClasses, "  - {name: _%d, match: [{m: 1}, {m: 1}, {m: 1}, {m: 1}, {m: 1}]}\n")))
	if got := strings.Count(err.Error(), "\n") + 1; got != maxProblems {
		t.Errorf("%d problems, want %d", got, maxProblems)
	}
}

func TestManyAliasesAreBounded(t *testing.T) {
	_, err := Parse("fleet.yaml", []byte(bomb()))
	if want := "the file expands to more than 1000000 values; use fewer aliases"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %.300v, want %s", err, want)
	}
}

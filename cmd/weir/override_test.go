package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/config"
	"weir/fleet"
	"weir/signals/dialect"
)

// metricsFleet is a fleet whose only pool has so much to say of its metrics.
func metricsFleet(engineType, metrics string) (*fleet.Fleet, error) {
	return config.Parse("fleet.yaml", fmt.Appendf(nil, `
frontEnds: [{name: A, listen: "127.0.0.1:10001"}]
pools:
  - name: P
    models: [m]
    engines: ["127.0.0.1:11001"]
    engineType: %s
    metrics: %s
    profile: {capacity: 10 rps, ttft: 200ms}
classes: [{name: chat, match: [{model: m}]}]
network: {default: 5ms}
`, engineType, metrics))
}

func TestOverride(t *testing.T) {
	tests := map[string]struct {
		metrics string
		want    dialect.Override
	}{
		"nothing": {"{}", dialect.Override{}},
		"all": {
			"{dialect: sglang, paths: [/a, /b], names: {waiting: [my:queue_len, q], ttft: [t]}}",
			dialect.Override{Dialect: "sglang", Paths: []string{"/a", "/b"}, Fields: map[dialect.Field]dialect.Names{
				dialect.Waiting: {{Name: "my:queue_len"}, {Name: "q"}}, dialect.TTFT: {{Name: "t"}},
			}},
		},
		"names": {
			"{names: {kvUsage: [used]}}",
			dialect.Override{Dialect: "vllm", Fields: map[dialect.Field]dialect.Names{dialect.KVUsage: {{Name: "used"}}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := metricsFleet("vllm", tt.metrics)
			if err != nil {
				t.Fatal(err)
			}
			got := override(&f.Pools[0])
			if len(got.Fields) == 0 {
				got.Fields = nil
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("override (-want +got):\n%s", diff)
			}
		})
	}
}

// The fleet file knows the dialects and the fields that the scraper knows, and no
// others.
func TestFleetFileKnowsWhatIsRead(t *testing.T) {
	var dialects, fields []string
	for _, d := range dialect.Dialects() {
		dialects = append(dialects, d.Name)
	}
	for f := dialect.Running; f <= dialect.GeneratedTokens; f++ {
		fields = append(fields, f.String())
	}
	tests := map[string]struct {
		engineType, metrics, before, separator string
		want                                   []string
	}{
		"engine types": {"?", "{}", "write ", " or ", append(slices.Clone(dialects), "other")},
		"dialects":     {"other", `{dialect: "?"}`, "write ", " or ", dialects},
		"fields":       {"other", `{names: {"?": [x]}}`, "use one of ", ", ", fields},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := metricsFleet(`"`+tt.engineType+`"`, tt.metrics)
			_, list, found := strings.Cut(fmt.Sprint(err), "; "+tt.before)
			if !found {
				t.Fatalf("%v, want a list of what is known", err)
			}
			got := strings.Split(list, tt.separator)
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("known (-scraper +fleet file):\n%s", diff)
			}
		})
	}
}

package config

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

func TestExampleFleets(t *testing.T) {
	files, err := filepath.Glob("../testdata/fleets/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d example fleets (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			checkPromises(t, f)
		})
	}
}

func TestEverything(t *testing.T) {
	got, err := Load("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	headers := []fleet.HeaderRule{{Name: "x-lang", Value: "de"}, {Name: "x-tier", Value: "gold"}}
	completions := func(host, model, as string) fleet.Rule {
		return fleet.Rule{Host: host, Path: "/v1/chat/completions", Exact: true, Headers: headers, Model: model, As: as}
	}
	want := &fleet.Fleet{
		FrontEnds: []fleet.FrontEnd{
			{ID: "east", Listen: "0.0.0.0:8080", Demand: map[fleet.ClassID]float64{"chat": 90, "rest": 0.5}},
			{ID: "west", Listen: "0.0.0.0:8080", Demand: map[fleet.ClassID]float64{}},
		},
		Pools: []fleet.Pool{
			{
				ID: "fast", Region: "eu", Models: []string{"base", "tuned"}, EngineType: "vllm",
				Labels: map[string]string{"tier": "gold", "sku": "h100"}, Capabilities: []string{"tools", "vision"},
				Engines: []fleet.EngineID{"10.0.0.1:8000", "10.0.0.2:8000"},
				Profile: fleet.Profile{
					CapacityRps: 4, Reference: fleet.Tokens{Prompt: 500, Output: 50, Cached: 20}, CacheStated: true, OutputTokenCost: 4,
					TTFT: fleet.Curve{{Utilisation: 0, Seconds: 0.1}, {Utilisation: 0.5, Seconds: 0.15}, {Utilisation: 1, Seconds: 1}},
					TBT:  fleet.Curve{{Seconds: 0.02}},
				},
				TLS: &fleet.TLS{
					SNI: "engines.example.com", CAFile: "/etc/weir/ca.pem",
					CertFile: "/etc/weir/client.pem", KeyFile: "/etc/weir/client.key",
				},
				Metrics: fleet.Metrics{
					Dialect: "sglang", Paths: []string{"/metrics", "/internal/metrics"},
					Names: map[string][]string{"waiting": {"my:queue_len", "old:queue_len"}, "ttft": {"my:ttft_seconds"}},
				},
			},
			{
				ID: "spare", Models: []string{"base"}, EngineType: "other",
				Engines: []fleet.EngineID{"[2001:db8::1]:8000", "[2001:db8::2]:8000"},
				Profile: fleet.Profile{
					CapacityRps: 8, Reference: fleet.Tokens{Prompt: 1000, Output: 200}, OutputTokenCost: 2.5,
					TTFT: fleet.Curve{{Utilisation: 0, Seconds: 0.1}, {Utilisation: 0.25, Seconds: 0.15}, {Utilisation: 1, Seconds: 1}},
					TBT:  fleet.Curve{{Seconds: 0.02}},
				},
				Metrics: fleet.Metrics{Paths: []string{"/stats"}, Names: map[string][]string{"kvUsage": {"cache_used"}}},
			},
		},
		Classes: []fleet.Class{
			{
				ID: "chat",
				Match: []fleet.Rule{
					completions("api.example.com", "base", ""), completions("api.example.com", "Our Best", "tuned"),
					completions("api.example.com", "4", "tuned"), completions("api.example.com", "tuned", ""),
					completions("chat.example.com", "base", ""), completions("chat.example.com", "Our Best", "tuned"),
					completions("chat.example.com", "4", "tuned"), completions("chat.example.com", "tuned", ""),
					{Host: "gold.example.com", Path: "/v1/", Model: "Our Best", As: "tuned"},
					{Host: "gold.example.com", Path: "/v1/", Model: "4", As: "tuned"},
					{Host: "gold.example.com", Path: "/v1/", Model: "tuned"},
				},
				Requires: fleet.Requirements{
					Models: []string{"base"}, Capabilities: []string{"tools"},
					Labels: map[string]string{"tier": "gold"}, Regions: []string{"eu", "us"},
				},
				Priority: -3,
				Tokens:   fleet.Tokens{Prompt: 800, Output: 100},
				Weights:  fleet.LatencyWeight{TTFT: 2, TBT: 0.5},
				Affinity: []fleet.AffinityKey{
					{Kind: fleet.AffinityHeader, Name: "x-session-id"},
					{Kind: fleet.AffinityBody, Name: "metadata.user_id"},
					{Kind: fleet.AffinityFingerprint},
				},
			},
			{
				ID: "rest", Match: []fleet.Rule{{Model: "plain", As: "base"}, {}}, Requires: fleet.Requirements{Models: []string{"base"}},
				Weights: fleet.LatencyWeight{TTFT: 1, TBT: 1}, Affinity: defaultAffinity,
			},
		},
		Network: fleet.Network{Measured: true, RoundTripSeconds: map[fleet.Link]float64{
			{FrontEnd: "east", Pool: "fast"}: 0.001, {FrontEnd: "east", Pool: "spare"}: 0.09,
			{FrontEnd: "west", Pool: "fast"}: 0.09, {FrontEnd: "west", Pool: "spare"}: 0.09,
		}},
		Options: fleet.Options{
			Policy: "waterfall", Shadow: "optimal", Tick: 5 * time.Second, DeclaredOnly: true, Headroom: 0.125, ChurnSeconds: 0.002, ChurnHalving: time.Minute, MinShare: 0.01,
			BodyLimit: 8 << 20, Idle: 90 * time.Second, Origins: []string{"https://app.example.org", "http://localhost:3000"}, Unreadable: "rest", RetryPercent: 20, RetryFloor: 3, HealthPath: "/healthz", Hold: 2 * time.Minute, TellDecision: true, HistoryStep: time.Minute, TenantHeader: "x-tenant",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fleet (-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	f, err := Parse("fleet.yaml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	want := fleet.Options{
		Policy: "optimal", Tick: 2 * time.Second, Headroom: 0.1, ChurnSeconds: 0.005, ChurnHalving: time.Minute, MinShare: 0.001,
		BodyLimit: 32 << 20, Idle: 5 * time.Minute, RetryPercent: 50, RetryFloor: 256, HealthPath: "/health", HistoryStep: time.Minute,
	}
	if diff := cmp.Diff(want, f.Options); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if p := f.Pools[0].Profile; p.OutputTokenCost != 4 || p.Reference != (fleet.Tokens{Prompt: 1000, Output: 200}) || p.TBT != nil {
		t.Errorf("profile is %+v", p)
	}
	c := f.Classes[0]
	if c.Weights != (fleet.LatencyWeight{TTFT: 1, TBT: 1}) || c.Tokens != (fleet.Tokens{}) || c.Priority != 0 {
		t.Errorf("class is %+v", c)
	}
	if diff := cmp.Diff(defaultAffinity, c.Affinity); diff != "" {
		t.Errorf("affinity (-want +got):\n%s", diff)
	}
	c.Affinity[0].Name = "changed"
	if defaultAffinity[0].Name == "changed" {
		t.Error("a fleet shares the table of defaults")
	}
}

// Names alone replace those of the engines' own dialect, not all of them.
func TestMetricNamesAreOfTheEnginesDialect(t *testing.T) {
	const names = "metrics: {names: {waiting: [my:queue_len]}}"
	for engineType, want := range map[string]string{"vllm": "vllm", "other": ""} {
		f, err := Parse("fleet.yaml", []byte(strings.Replace(minimal, "- name: P", "- name: P\n    engineType: "+engineType+"\n    "+names, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Pools[0].Metrics.Dialect; got != want {
			t.Errorf("of %s, dialect %q, want %q", engineType, got, want)
		}
	}
}

func TestEmptyAffinityIsAChoice(t *testing.T) {
	f, err := Parse("fleet.yaml", []byte(strings.Replace(minimal, "- name: chat", "- name: chat\n    affinity: []", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Classes[0].Affinity; len(got) != 0 {
		t.Errorf("affinity is %v, want none", got)
	}
}

func TestLoadMissingFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "fleet.yaml"))
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "fleet file: ") {
		t.Errorf("error is %v", err)
	}
}

func TestLoadNoRegularFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, t.TempDir(), os.DevNull} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path+": not a regular file") {
			t.Errorf("%s: error is %v", path, err)
		}
	}
}

func TestLoadFrom(t *testing.T) {
	f, err := LoadFrom("standard input", strings.NewReader(minimal))
	if err != nil || len(f.Pools) != 1 {
		t.Errorf("fleet %v, error %v", f, err)
	}
	endless := io.MultiReader(strings.NewReader("# air\n"), air{})
	_, err = LoadFrom("standard input", endless)
	if want := "standard input:1:1: the file is larger than 4 MiB; split the fleet"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	_, err = LoadFrom("standard input", iotest.ErrReader(os.ErrDeadlineExceeded))
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("error is %v", err)
	}
}

// air is an endless comment.
type air struct{}

func (air) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '#'
	}
	return len(p), nil
}

func TestLoadLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat("# air\n", maxFileBytes/6+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	if want := path + ":1:1: the file is larger than 4 MiB; split the fleet"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

// minimal is the smallest fleet.
const minimal = `
frontEnds: [{name: A, listen: "127.0.0.1:10001"}]
pools:
  - name: P
    models: [m]
    engines: ["127.0.0.1:11001"]
    profile: {capacity: 10 rps, ttft: 200ms}
classes:
  - name: chat
    match: [{model: m}]
network: {default: 5ms}
`

func TestPolicies(t *testing.T) {
	for text, want := range map[string][2]string{
		"{}":                                     {"optimal", ""},
		"{policy: nearest}":                      {"nearest", ""},
		"{policy: local, shadow: proportional}":  {"local", "proportional"},
		"{policy: even, shadow: none}":           {"even", ""},
		"{policy: waterfall, shadow: waterfall}": {"waterfall", "waterfall"},
	} {
		f, err := Parse("fleet.yaml", []byte(minimal+"options: "+text+"\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := [2]string{f.Options.Policy, f.Options.Shadow}; got != want {
			t.Errorf("%s: policy and shadow %q, want %q", text, got, want)
		}
	}
}
